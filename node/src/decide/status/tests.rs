#![allow(clippy::needless_pass_by_value, reason = "JSON literals read better without a reference")]

use proptest::prelude::*;

use super::*;

fn host(status: Value) -> Pod {
    host_with(json!({}), json!({"containers": [{"name": "app"}]}), status)
}

fn host_with(metadata: Value, spec: Value, status: Value) -> Pod {
    let mut meta = json!({"namespace": "n", "name": "p", "uid": "u"});
    meta.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    Pod::try_from(json!({"metadata": meta, "spec": spec, "status": status})).unwrap()
}

fn patch(host: &Pod, reported: &Value) -> Value {
    status_patch(host, reported, None).map_or(Value::Null, |p| p["status"].clone())
}

#[test]
fn nothing_changed_nothing_written() {
    let status = json!({
        "phase": "Running", "qosClass": "BestEffort", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "app", "restartCount": 0}],
    });
    let mut reported = status.clone();
    // The other cluster classes, times and places its pod by itself.
    reported["qosClass"] = json!("Guaranteed");
    reported["conditions"][0]["lastTransitionTime"] = json!("2026-02-02T00:00:00Z");
    reported["conditions"].as_array_mut().unwrap().push(json!({"type": "PodScheduled", "status": "False"}));
    assert_eq!(status_patch(&host(status), &reported, Some(3)), None);
}

#[test]
fn what_is_empty_is_the_same_as_what_is_not_there() {
    let host = host(
        json!({"phase": "Running", "containerStatuses": [{"name": "app", "imageID": "", "ready": true}]}),
    );
    let said = |status: Value| json!({"phase": "Running", "message": "", "containerStatuses": [status]});
    let loose =
        said(json!({"name": "app", "ready": true, "containerID": "", "lastState": {}, "resources": null}));
    assert_eq!(status_patch(&host, &loose, None), None);
    let changed = said(json!({"name": "app", "ready": false}));
    assert!(status_patch(&host, &changed, None).is_some());
}

#[test]
fn a_provider_that_says_nothing_yet_changes_nothing() {
    for silence in [json!(null), json!({}), json!("x")] {
        assert_eq!(status_patch(&host(json!({"phase": "Pending"})), &silence, None), None);
    }
}

#[test]
fn the_patch_names_the_uid() {
    let patch = status_patch(&host(json!({})), &json!({"phase": "Running"}), None).unwrap();
    assert_eq!(patch, json!({"metadata": {"uid": "u"}, "status": {"phase": "Running"}}));
}

#[test]
fn other_writers_keep_their_fields_and_conditions() {
    let host = host(json!({
        "phase": "Pending", "qosClass": "Burstable", "nominatedNodeName": "n",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "DisruptionTarget", "status": "True"}],
    }));
    let reported = json!({
        "phase": "Running", "qosClass": "BestEffort", "nominatedNodeName": "x",
        "conditions": [{"type": "PodScheduled", "status": "False"},
                       {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    let ready = json!({"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    assert_eq!(patch(&host, &reported), json!({"phase": "Running", "conditions": [ready]}));
}

#[test]
fn what_a_kubelet_takes_back_goes() {
    let host = host(json!({
        "phase": "Pending", "reason": "ProviderUnavailable", "message": "…", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "PodResizePending", "status": "True"}],
    }));
    let expected = json!({"phase": "Running", "reason": null, "message": null,
                          "conditions": [{"type": "PodResizePending", "$patch": "delete"}]});
    assert_eq!(patch(&host, &json!({"phase": "Running"})), expected);
}

#[test]
fn addresses_are_replaced_not_merged() {
    let host = host(json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}));
    let expected = json!({"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "replace"}]});
    assert_eq!(patch(&host, &json!({"phase": "Running", "podIP": "10.0.0.2"})), expected);
}

#[test]
fn a_final_phase_stays() {
    let host = host(json!({"phase": "Succeeded"}));
    assert_eq!(status_patch(&host, &json!({"phase": "Running", "podIP": "10.0.0.2"}), None), None);
    assert_eq!(status_patch(&host, &json!({"phase": "Failed"}), None), None);
}

#[test]
fn containers_that_admission_added_over_there_are_not_shown() {
    let reported = json!({"phase": "Running", "containerStatuses": [{"name": "app"}, {"name": "istio-proxy"}],
                          "initContainerStatuses": [{"name": "istio-init"}]});
    assert_eq!(
        patch(&host(json!({"phase": "Running"})), &reported),
        json!({"containerStatuses": [{"name": "app"}]})
    );
}

#[test]
fn restart_counts_never_fall() {
    let host = host(json!({"phase": "Running", "containerStatuses": [{"name": "app", "restartCount": 4}]}));
    let counted =
        |n: u64| json!({"phase": "Running", "containerStatuses": [{"name": "app", "restartCount": n}]});
    assert_eq!(status_patch(&host, &counted(1), None), None);
    assert_eq!(patch(&host, &counted(5))["containerStatuses"][0]["restartCount"], 5);
}

#[test]
fn a_readiness_gate_holds_until_the_host_opens_it() {
    let spec = json!({"containers": [], "readinessGates": [{"conditionType": "lb.example/attached"}]});
    let reported = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let closed = host_with(json!({}), spec.clone(), json!({"phase": "Running"}));
    let held = &patch(&closed, &reported)["conditions"][0];
    assert_eq!((&held["status"], &held["reason"]), (&json!("False"), &json!("ReadinessGatesNotReady")));
    let gate = json!({"type": "lb.example/attached", "status": "True"});
    let open = host_with(json!({}), spec, json!({"phase": "Running", "conditions": [gate]}));
    assert_eq!(patch(&open, &reported)["conditions"][0]["status"], "True");
}

#[test]
fn generations_are_the_hosts_or_none() {
    let reported = json!({"phase": "Running", "observedGeneration": 9,
                          "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 9}]});
    let spec = json!({"containers": []});
    let old = host_with(json!({}), spec.clone(), json!({}));
    let status = status_patch(&old, &reported, Some(1)).unwrap()["status"].clone();
    assert_eq!(
        (status.get("observedGeneration"), status["conditions"][0].get("observedGeneration")),
        (None, None)
    );
    let new = host_with(json!({"generation": 2}), spec, json!({}));
    let status = status_patch(&new, &reported, Some(1)).unwrap()["status"].clone();
    assert_eq!(
        (&status["observedGeneration"], &status["conditions"][0]["observedGeneration"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn a_generation_counts_as_seen_when_whoever_runs_the_pod_says_so() {
    let spec = json!({"containers": []});
    // What the provider accepted, what it says that was acted upon, what the host has, and what it is told.
    for (accepted, reported, current, told) in [
        (Some(2), Some(1), Some(1), None),
        (Some(2), Some(2), Some(1), Some(2)),
        (Some(1), Some(2), Some(1), None),
        (Some(2), None, Some(1), Some(2)),
        (Some(2), Some(1), None, Some(1)),
        // Never less than before.
        (Some(2), Some(1), Some(2), None),
        (None, Some(2), Some(1), None),
    ] {
        let status = json!({"phase": "Running", "observedGeneration": current});
        let host = host_with(json!({"generation": 2}), spec.clone(), status);
        let report = json!({"phase": "Running", "observedGeneration": reported});
        let patch = status_patch(&host, &report, accepted);
        let found = patch.and_then(|patch| patch["status"]["observedGeneration"].as_i64());
        assert_eq!(found, told, "{accepted:?} {reported:?} {current:?}");
    }
}

#[test]
fn what_was_seen_before_a_restart_is_not_written_again() {
    let condition = |generation: i64, status: &str| {
        json!({"type": "Ready", "status": status, "lastProbeTime": null,
               "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation})
    };
    let status = |conditions: Value| json!({"phase": "Succeeded", "conditions": [conditions]});
    let host = host_with(json!({"generation": 2}), json!({"containers": []}), status(condition(2, "False")));
    assert_eq!(status_patch(&host, &status(condition(7, "False")), None), None);
    let told = patch(&host, &status(condition(7, "True")));
    assert_eq!(told["conditions"][0]["observedGeneration"], 2, "and never the one of another object");
}

/// What the API server does with our patches, as far as this test needs it.
fn apply(host: &Pod, patch: &Value) -> Pod {
    let mut status = host.status().as_object().cloned().unwrap_or_default();
    for (field, value) in patch["status"].as_object().unwrap() {
        match (field.as_str(), value) {
            (_, Value::Null) => drop(status.remove(field)),
            ("conditions", Value::Array(changes)) => {
                let list = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut().unwrap();
                for change in changes {
                    let at = list.iter().position(|c| c["type"] == change["type"]);
                    match (at, change.get("$patch").is_some()) {
                        (Some(at), true) => drop(list.remove(at)),
                        (Some(at), false) => {
                            for (k, v) in change.as_object().unwrap() {
                                if v.is_null() && k != "lastProbeTime" {
                                    list[at].as_object_mut().unwrap().remove(k);
                                } else {
                                    list[at][k] = v.clone();
                                }
                            }
                        }
                        (None, false) => list.push(change.clone()),
                        (None, true) => {}
                    }
                }
            }
            ("podIPs" | "hostIPs", Value::Array(list)) => {
                let whole: Vec<_> = list.iter().filter(|e| e.get("$patch").is_none()).cloned().collect();
                status.insert(field.clone(), whole.into());
            }
            _ => drop(status.insert(field.clone(), value.clone())),
        }
    }
    host.clone().with_status(Value::Object(status))
}

fn some_status() -> impl Strategy<Value = Value> {
    let condition = (
        prop::sample::select(vec!["Ready", "Initialized", "PodScheduled", "DisruptionTarget", "PodResizePending", "Own"]),
        prop::sample::select(vec!["True", "False"]),
        prop::option::of(prop::sample::select(vec!["A", "B", ""])),
    )
        .prop_map(|(kind, status, reason)| {
            let mut condition = json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            if let Some(reason) = reason.filter(|r| !r.is_empty()) {
                condition["reason"] = json!(reason);
            }
            condition
        });
    (
        prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"]),
        prop::option::of(prop::sample::select(vec!["10.0.0.1", "10.0.0.2"])),
        prop::option::of(prop::sample::select(vec!["Evicted", "x"])),
        prop::collection::vec(condition, 0..4),
        prop::collection::vec((prop::sample::select(vec!["app", "sidecar"]), 0..3u64), 0..2),
    )
        .prop_map(|(phase, ip, reason, mut conditions, containers)| {
            let mut seen = std::collections::HashSet::new();
            conditions.retain(|c| seen.insert(c["type"].as_str().unwrap().to_owned()));
            let mut status = json!({"phase": phase, "conditions": conditions});
            if let Some(ip) = ip {
                status["podIP"] = json!(ip);
                status["podIPs"] = json!([{"ip": ip}]);
            }
            if let Some(reason) = reason {
                status["reason"] = json!(reason);
            }
            if !containers.is_empty() {
                status["containerStatuses"] = containers
                    .into_iter()
                    .map(|(name, n)| json!({"name": name, "restartCount": n}))
                    .collect();
            }
            status
        })
}

proptest! {
    /// Once written, the same report asks for no second write; and a stranger's conditions are as they were.
    #[test]
    fn one_write_is_enough(current in some_status(), reported in some_status(), generation in prop::option::of(1..3i64)) {
        let metadata = generation.map_or(json!({}), |g| json!({"generation": g}));
        let before = host_with(metadata, json!({"containers": [{"name": "app"}]}), current);
        if let Some(patch) = status_patch(&before, &reported, generation) {
            let after = apply(&before, &patch);
            prop_assert_eq!(status_patch(&after, &reported, generation), None);
            let scheduled = |pod: &Pod| pod.status()["conditions"].as_array().unwrap().iter()
                .find(|c| c["type"] == "PodScheduled").cloned();
            prop_assert_eq!(scheduled(&before), scheduled(&after));
            prop_assert!(!before.phase().is_terminal() || after.phase() == before.phase());
        }
    }
}
