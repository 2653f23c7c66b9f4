use proptest::prelude::*;

use super::*;

fn view() -> View {
    View {
        host_version: Version::v1(36),
        pod_addresses: PodAddresses::Keep,
        node_addresses: vec!["10.1.1.1".parse().unwrap()],
    }
}

fn host() -> Value {
    json!({
        "metadata": { "name": "web", "generation": 4 },
        "spec": { "containers": [{ "name": "app" }, { "name": "log" }], "initContainers": [{ "name": "init" }], "restartPolicy": "Always" },
        "status": { "phase": "Pending", "qosClass": "Burstable", "conditions": [
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-16T00:00:00Z" },
        ] },
    })
}

fn member() -> Value {
    json!({
        "metadata": { "name": "web", "uid": "m", "generation": 2 },
        "status": {
            "phase": "Running", "qosClass": "BestEffort", "hostIP": "192.168.0.9", "hostIPs": [{ "ip": "192.168.0.9" }],
            "podIP": "10.244.0.5", "podIPs": [{ "ip": "10.244.0.5" }, { "ip": "fd00::5" }], "startTime": "2026-11-16T00:00:01Z",
            "observedGeneration": 2, "nominatedNodeName": "machine-2", "futureField": { "a": [1, "b"] },
            "conditions": [
                { "type": "PodScheduled", "status": "True", "observedGeneration": 2 },
                { "type": "Ready", "status": "True", "observedGeneration": 2, "lastTransitionTime": "2026-11-16T00:00:03Z" },
                { "type": "example.com/custom", "status": "True" },
            ],
            "containerStatuses": [
                { "name": "log", "ready": true, "restartCount": 2, "image": "l", "imageID": "l", "state": { "running": { "startedAt": "2026-11-16T00:00:02Z" } } },
                { "name": "istio-proxy", "ready": true, "restartCount": 0 },
                { "name": "app", "ready": true, "restartCount": 0, "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } } },
            ],
            "initContainerStatuses": [{ "name": "istio-init", "ready": true, "restartCount": 0 }],
        },
    })
}

fn with_status(mut pod: Value, status: &Value) -> Value {
    for (field, value) in status.as_object().unwrap() {
        pod["status"][field] = value.clone();
    }
    pod
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    items(status.get("conditions")).find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

#[test]
fn a_running_pod_is_shown_whole() {
    let status = status(&host(), &member(), &view());
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["qosClass"], "Burstable", "it can never change on the host");
    assert_eq!(status["startTime"], "2026-11-16T00:00:01Z");
    assert_eq!((&status["podIP"], &status["podIPs"][1]["ip"]), (&json!("10.244.0.5"), &json!("fd00::5")));
    assert_eq!((&status["hostIP"], &status["hostIPs"]), (&json!("10.1.1.1"), &json!([{ "ip": "10.1.1.1" }])));
    assert_eq!(status.get("nominatedNodeName"), None);
    assert_eq!(status["futureField"], json!({ "a": [1, "b"] }));
    assert_eq!(condition(&status, "example.com/custom")["status"], "True");
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["reason"], "OOMKilled");
}

#[test]
fn containers_that_the_member_injected_are_not_shown() {
    let status = status(&host(), &member(), &view());
    let names: Vec<&Value> = items(status.get("containerStatuses")).map(|c| &c["name"]).collect();
    assert_eq!(names, ["app", "log"], "in the order of the host pod");
    assert_eq!(status.get("initContainerStatuses"), None);
}

#[test]
fn what_the_host_says_again_changes_nothing() {
    let once = status(&host(), &member(), &view());
    let mut host = host();
    host["status"] = once.clone();
    assert_eq!(status(&host, &member(), &view()), once);
}

#[test]
fn generations_are_the_hosts_and_only_where_the_host_knows_them() {
    let at =
        |minor, member: &Value| status(&host(), member, &View { host_version: Version::v1(minor), ..view() });
    let new = at(34, &member());
    assert_eq!(
        (&new["observedGeneration"], &condition(&new, "Ready")["observedGeneration"]),
        (&json!(4), &json!(4))
    );
    let old = at(33, &member());
    assert!(!old.to_string().contains("observedGeneration"), "{old}");
    let behind = with_status(member(), &json!({ "observedGeneration": 1 }));
    assert_eq!(at(36, &behind).get("observedGeneration"), None);
    // A resize that the member's kubelet has yet to look at leaves on the host what it had seen before.
    let seen = with_status(host(), &json!({ "observedGeneration": 3 }));
    assert_eq!(status(&seen, &behind, &view())["observedGeneration"], json!(3));
}

#[test]
fn the_host_keeps_its_own_scheduling() {
    let status = status(&host(), &member(), &view());
    assert_eq!(condition(&status, "PodScheduled"), &host()["status"]["conditions"][0]);
}

#[test]
fn addresses_can_be_hidden_and_bad_ones_never_pass() {
    let hidden = status(
        &host(),
        &member(),
        &View { pod_addresses: PodAddresses::Hide, node_addresses: vec![], ..view() },
    );
    assert_eq!((hidden.get("podIP"), hidden.get("podIPs")), (None, None));
    assert_eq!(hidden["hostIP"], "192.168.0.9");
    let bad = json!({ "podIP": "999.1.1.1", "podIPs": [{ "ip": "x" }, { "ip": "10.0.0.1" }, { "ip": "10.0.0.2" }] });
    let status = status(&host(), &with_status(member(), &bad), &view());
    assert_eq!(status["podIPs"], json!([{ "ip": "10.0.0.1" }]));
}

#[test]
fn restarts_never_go_backwards() {
    let counted =
        with_status(host(), &json!({ "containerStatuses": [{ "name": "log", "restartCount": 7 }] }));
    let status = status(&counted, &member(), &view());
    assert_eq!(
        (&status["containerStatuses"][0]["restartCount"], &status["containerStatuses"][1]["restartCount"]),
        (&json!(0), &json!(7))
    );
}

#[test]
fn a_container_that_ended_for_good_stays_ended() {
    let ended = |code: i64| json!({ "containerStatuses": [{ "name": "log", "restartCount": 0, "state": { "terminated": { "exitCode": code } } }] });
    for (policy, code, stays) in [
        ("Never", 1, true),
        ("Never", 0, true),
        ("OnFailure", 0, true),
        ("OnFailure", 1, false),
        ("Always", 0, false),
    ] {
        let mut host = with_status(host(), &ended(code));
        host["spec"]["restartPolicy"] = policy.into();
        let status = status(&host, &member(), &view());
        assert_eq!(
            status["containerStatuses"][1]["state"].get("terminated").is_some(),
            stays,
            "{policy} {code}"
        );
    }
}

#[test]
fn a_container_that_a_rule_may_begin_again_has_not_ended_for_good() {
    let ended = json!({ "containerStatuses": [{ "name": "log", "restartCount": 0, "state": { "terminated": { "exitCode": 42 } } }] });
    let mut never = with_status(host(), &ended);
    never["spec"]["restartPolicy"] = "Never".into();
    let at = |name: &str| {
        never["spec"]["containers"].as_array().unwrap().iter().position(|c| c["name"] == name).unwrap()
    };
    let log = at("log");
    let other = (log + 1) % never["spec"]["containers"].as_array().unwrap().len();
    let rule =
        |action: &str| json!([{ "action": action, "exitCodes": { "operator": "In", "values": [42] } }]);
    let runs = |host: &Value| {
        status(host, &member(), &view())["containerStatuses"][1]["state"].get("terminated").is_none()
    };
    assert!(!runs(&never));
    for (container, action) in [(log, "Restart"), (other, "RestartAllContainers")] {
        let mut ruled = never.clone();
        ruled["spec"]["containers"][container]["restartPolicyRules"] = rule(action);
        assert!(runs(&ruled), "{action}");
    }
    // Its own policy counts more than the pod's.
    let mut own = never.clone();
    own["spec"]["containers"][log]["restartPolicy"] = "OnFailure".into();
    assert!(runs(&own));
}

#[test]
fn a_pod_that_is_over_is_never_seen_running_again() {
    for phase in ["Succeeded", "Failed"] {
        let over = with_status(host(), &json!({ "phase": phase, "reason": "X" }));
        assert_eq!(status(&over, &member(), &view()), over["status"]);
    }
}

#[test]
fn why_it_waits_in_the_member_is_said_on_the_host() {
    let waiting = |kind: &str, status: &str, reason: &str| {
        json!({ "metadata": {}, "status": { "phase": "Pending", "conditions": [
            { "type": kind, "status": status, "reason": reason, "message": "0/3 nodes are available" } ] } })
    };
    let shown = status(&host(), &waiting("PodScheduled", "False", "Unschedulable"), &view());
    assert_eq!(
        (&shown["reason"], &shown["message"]),
        (&json!("Unschedulable"), &json!("0/3 nodes are available"))
    );
    assert_eq!(condition(&shown, "PodScheduled")["status"], "True");
    let held = status(&host(), &waiting("HeldUpgrade", "True", "Waiting"), &view());
    assert_eq!((&held["phase"], &held["reason"]), (&json!("Pending"), &json!("HeldUpgrade")));
    let fine = status(&host(), &waiting("PodScheduled", "True", ""), &view());
    assert_eq!(fine.get("reason"), None);
}

#[test]
fn reasons_of_an_end_are_the_members() {
    let evicted = with_status(
        member(),
        &json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory." }),
    );
    let shown = status(&host(), &evicted, &view());
    assert_eq!((&shown["phase"], &shown["reason"]), (&json!("Failed"), &json!("Evicted")));
    assert_eq!(shown["message"], "The node was low on resource: memory.");
}

#[test]
fn readiness_gates_are_kept_on_the_host() {
    let mut host = host();
    host["spec"]["readinessGates"] = json!([{ "conditionType": "lb/ready" }]);
    let shown = status(&host, &member(), &view());
    assert_eq!(
        (&condition(&shown, "Ready")["status"], &condition(&shown, "Ready")["reason"]),
        (&json!("False"), &json!("ReadinessGatesNotReady"))
    );
    host["status"]["conditions"] = json!([{ "type": "lb/ready", "status": "True" }]);
    let shown = status(&host, &member(), &view());
    assert_eq!(condition(&shown, "Ready")["status"], "True");
    assert_eq!(condition(&shown, "lb/ready")["status"], "True", "it is another's, and stays");
    // The member cannot open a gate of the host.
    let forged = with_status(
        member(),
        &json!({ "conditions": [{ "type": "Ready", "status": "True" }, { "type": "lb/ready", "status": "True" }] }),
    );
    host["status"]["conditions"] = json!([]);
    assert_eq!(condition(&status(&host, &forged, &view()), "Ready")["status"], "False");
}

#[test]
fn the_time_of_a_transition_is_that_of_a_change() {
    let was = json!({ "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }, { "type": "Initialized", "status": "True" }] });
    let shown = status(&with_status(host(), &was), &member(), &view());
    assert_eq!(condition(&shown, "Ready")["lastTransitionTime"], "2026-01-01T00:00:00Z");
    assert_eq!(condition(&shown, "Initialized"), &Value::Null, "the kubelet has taken it back");
}

#[test]
fn nobody_hears_of_a_region_and_its_pods_stay_running_but_not_ready() {
    let (since, now) = ("2026-11-16T01:00:00Z", "2026-11-16T01:01:00Z");
    let mut host = host();
    host["status"] = status(&host, &member(), &view());
    let shown = unreachable(&host, since, now).unwrap();
    assert_eq!(shown["phase"], "Running");
    let ready = condition(&shown, "Ready");
    assert_eq!(
        (&ready["status"], &ready["reason"], &ready["lastTransitionTime"]),
        (&json!("False"), &json!("MemberUnreachable"), &json!(now))
    );
    assert_eq!(shown["containerStatuses"], host["status"]["containerStatuses"]);
    let back = host.clone();
    host["status"] = shown;
    assert_eq!(unreachable(&host, since, now), None, "said once");
    assert_eq!(
        condition(&status(&host, &member(), &view()), "Ready")["status"],
        "True",
        "and it comes back by itself"
    );
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(unreachable(&with_status(back.clone(), &json!({ "phase": phase })), since, now), None);
    }
    let not_ready =
        json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotReady" }] });
    assert_eq!(unreachable(&with_status(back, &not_ready), since, now), None);
}

#[test]
fn a_pod_that_the_member_took_away_ends_with_its_reason() {
    let now = "2026-11-16T02:00:00Z";
    let last = status(&host(), &member(), &view());
    for (seen, reason) in [
        (None, "MemberPodDeleted"),
        (Some(json!({ "reason": "Evicted", "message": "disk" })), "Evicted"),
        (
            Some(
                json!({ "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler" }] }),
            ),
            "PreemptionByScheduler",
        ),
        (
            Some(json!({ "conditions": [{ "type": "DisruptionTarget", "status": "False", "reason": "X" }] })),
            "MemberPodDeleted",
        ),
    ] {
        let seen = seen.map(|status| json!({ "status": status }));
        let end = ended(&last, seen.as_ref(), now);
        assert_eq!((&end["phase"], &end["reason"]), (&json!("Failed"), &json!(reason)));
        assert_eq!(end["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
        assert_eq!(end["containerStatuses"][0]["ready"], false);
        assert_eq!(condition(&end, "Ready")["status"], "False");
    }
    let done = json!({ "phase": "Succeeded" });
    assert_eq!(ended(&done, None, now), done);
}

#[test]
fn what_a_member_says_is_bounded() {
    let long = "x".repeat(1 << 14);
    let hostile = with_status(
        member(),
        &json!({
            "phase": "Hacked", "reason": "two words\u{1b}[31m", "message": long.as_str(), "startTime": "yesterday",
            "conditions": vec![json!({ "type": "A", "status": "Maybe", "reason": long.as_str(), "message": long.as_str(), "lastTransitionTime": "x" }); 1000],
            "containerStatuses": [{ "name": "app", "ready": "yes", "restartCount": -5, "state": { "running": { "startedAt": "x" }, "waiting": {}, "terminated": "no" } }],
            "huge": vec![long; 500], "resize": 7,
        }),
    );
    let shown = status(&host(), &hostile, &view());
    assert!(shown.to_string().len() < 64 * 1024, "{}", shown.to_string().len());
    assert_eq!((&shown["phase"], &shown["reason"]), (&json!("Pending"), &json!("twowords31m")));
    assert_eq!(shown.get("startTime"), None);
    assert_eq!(shown.get("huge"), None);
    assert_eq!(condition(&shown, "A")["status"], "Unknown");
    assert_eq!(
        shown["containerStatuses"][0],
        json!({ "name": "app", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": { "running": {} } })
    );
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9:. -]{0,12}".prop_map(Value::from),
        prop::sample::select(vec!["app", "Ready", "True", "False", "Running", "Failed"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(
                prop::sample::select(vec![
                    "type",
                    "status",
                    "name",
                    "state",
                    "running",
                    "terminated",
                    "reason",
                    "ip",
                    "x"
                ])
                .prop_map(str::to_owned),
                inner,
                0..5,
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_status_gives_a_status_and_settles(
        fields in prop::collection::vec((prop::sample::select(vec![
            "phase", "conditions", "containerStatuses", "podIP", "podIPs", "hostIP", "startTime", "reason", "observedGeneration", "y",
        ]), anything()), 0..6),
    ) {
        let mut member = member();
        for (field, value) in fields {
            member["status"][field] = value;
        }
        let mut host = host();
        let first = status(&host, &member, &view());
        host["status"] = first.clone();
        // Seen again, the same report is no news.
        prop_assert_eq!(status(&host, &member, &view()), first);
        let _ = (unreachable(&host, "a", "b"), ended(&host["status"], Some(&member), "c"));
    }

    #[test]
    fn restart_counts_only_grow(counts in prop::collection::vec(0i64..10, 1..6)) {
        let mut host = host();
        let mut highest = 0;
        for count in counts {
            let report = json!({ "containerStatuses": [{ "name": "app", "restartCount": count }] });
            host["status"] = status(&host, &with_status(member(), &report), &view());
            highest = highest.max(count);
            prop_assert_eq!(&host["status"]["containerStatuses"][0]["restartCount"], &json!(highest));
        }
    }
}
