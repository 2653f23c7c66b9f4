use proptest::prelude::*;

use super::*;
use crate::{
    target::Target,
    translate::tests::{cluster, pod, pod_with, region, sent},
};

const NEW: Version = Version::v1(36);

/// The pod as the member has it after creation: with a UID, defaults, and what its webhooks did.
fn created(pod: &MemberPod) -> Value {
    let mut there = pod.json.clone();
    there["metadata"]["uid"] = "member-uid".into();
    there["metadata"]["resourceVersion"] = "1".into();
    there["metadata"]["labels"]["injected"] = "yes".into();
    there["spec"]["nodeName"] = "machine-1".into();
    there["spec"]["serviceAccountName"] = "default".into();
    there["spec"]["terminationGracePeriodSeconds"] = 30.into();
    for container in there["spec"]["containers"].as_array_mut().unwrap() {
        let image = format!("mirror.example/{}", container["image"].as_str().unwrap());
        container["image"] = image.into();
        container["resources"]["limits"] = json!({ "cpu": "2" });
        container["imagePullPolicy"] = "IfNotPresent".into();
    }
    there["spec"]["containers"].as_array_mut().unwrap().push(json!({ "name": "sidecar", "image": "mesh" }));
    let default = json!({ "key": "member-default", "operator": "Exists" });
    crate::json::list_mut(there["spec"].as_object_mut().unwrap(), "tolerations").push(default);
    there
}

/// What an API server does with a strategic merge patch, as far as our patches go.
fn apply(pod: &mut Value, patch: &Value) {
    for (field, value) in patch.as_object().unwrap() {
        match value {
            Value::Null => drop(pod.as_object_mut().unwrap().remove(field)),
            Value::Array(list) if field.to_lowercase().ends_with("containers") => {
                for item in list {
                    let there = crate::json::list_mut(pod.as_object_mut().unwrap(), field);
                    match there.iter_mut().find(|c| c["name"] == item["name"]) {
                        Some(container) => apply(container, item),
                        None => there.push(item.clone()),
                    }
                }
            }
            Value::Object(_) => {
                if !pod.get(field).is_some_and(Value::is_object) {
                    pod[field] = json!({});
                }
                apply(&mut pod[field], value);
            }
            other => pod[field] = other.clone(),
        }
    }
}

/// Carries out plans until there is nothing left, and says how many writes that took.
fn converge(desired: &MemberPod, there: &mut Value) -> usize {
    let mut writes = 0;
    for _ in 0..5 {
        let plan = plan(desired, there, NEW);
        if plan.is_empty() {
            return writes;
        }
        for patch in [plan.ephemeral, plan.resize, plan.patch].into_iter().flatten() {
            assert_eq!(patch["metadata"]["uid"], "member-uid", "every write names its pod");
            apply(there, &patch);
            writes += 1;
        }
    }
    panic!("the plans never end");
}

#[test]
fn nothing_changed_means_nothing_to_write() {
    for target in [cluster(), region()] {
        let desired = sent(&pod(), &target);
        assert_eq!(plan(&desired, &desired.json, NEW), UpdatePlan::default());
        assert_eq!(
            plan(&desired, &created(&desired), NEW),
            UpdatePlan::default(),
            "the member's changes are its own"
        );
    }
}

#[test]
fn labels_and_annotations_follow_and_the_members_own_stay() {
    let mut host = pod();
    host["metadata"]["labels"]["old"] = "1".into();
    let mut there = created(&sent(&host, &cluster()));
    host["metadata"]["labels"] = json!({ "app": "api", "new": "1" });
    host["metadata"]["annotations"] = json!({});
    let desired = sent(&host, &cluster());
    let patch = plan(&desired, &there, NEW).patch.unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({ "app": "api", "new": "1", "old": null }));
    assert_eq!(patch["metadata"]["annotations"]["note"], Value::Null);
    assert_eq!(patch.get("spec"), None);
    assert_eq!(converge(&desired, &mut there), 1);
    assert_eq!(there["metadata"]["labels"]["injected"], "yes");
    assert_eq!(there["metadata"]["labels"].get("old"), None);
}

#[test]
fn a_new_image_follows_though_a_webhook_rewrites_images() {
    let mut host = pod();
    let mut there = created(&sent(&host, &cluster()));
    host["spec"]["containers"][0]["image"] = "nginx:2".into();
    let desired = sent(&host, &cluster());
    let patch = plan(&desired, &there, NEW).patch.unwrap();
    assert_eq!(patch["spec"], json!({ "containers": [{ "name": "app", "image": "nginx:2" }] }));
    apply(&mut there, &patch);
    there["spec"]["containers"][0]["image"] = "mirror.example/nginx:2".into();
    assert!(plan(&desired, &there, NEW).is_empty());
}

#[test]
fn tolerations_are_added_and_never_taken_away() {
    let mut host = pod();
    let mut there = created(&sent(&host, &cluster()));
    let before = there["spec"]["tolerations"].as_array().unwrap().len();
    host["spec"]["tolerations"].as_array_mut().unwrap().push(json!({ "key": "new", "operator": "Exists" }));
    host["spec"]["tolerations"].as_array_mut().unwrap().remove(3);
    host["spec"]["tolerations"][1]["tolerationSeconds"] = 60.into();
    assert_eq!(converge(&sent(&host, &cluster()), &mut there), 1);
    let after = there["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(after.len(), before + 1);
    assert_eq!(after[0]["tolerationSeconds"], 60);
    assert!(after.iter().any(|t| t["key"] == "member-default") && after.iter().any(|t| t["key"] == "gpu"));
}

#[test]
fn a_deadline_only_comes_nearer() {
    let at = |seconds: Option<i64>| sent(&pod_with(&json!({ "activeDeadlineSeconds": seconds })), &cluster());
    for (from, to, patched) in [
        (None, Some(60), true),
        (Some(60), Some(30), true),
        (Some(60), Some(90), false),
        (Some(60), None, false),
    ] {
        let plan = plan(&at(to), &created(&at(from)), NEW);
        assert_eq!(plan.patch.is_some(), patched, "{from:?} to {to:?}");
    }
}

#[test]
fn new_ephemeral_containers_are_added_once() {
    let debug = |names: &[&str]| {
        let list: Vec<Value> = names.iter().map(|name| json!({ "name": name, "image": "busybox" })).collect();
        sent(&pod_with(&json!({ "ephemeralContainers": list })), &cluster())
    };
    let mut there = created(&debug(&[]));
    assert_eq!(converge(&debug(&["a"]), &mut there), 1);
    let plan = plan(&debug(&["a", "b"]), &there, NEW);
    let added = plan.ephemeral.unwrap();
    assert_eq!(added["spec"]["ephemeralContainers"].as_array().unwrap().len(), 1);
    assert_eq!(added["spec"]["ephemeralContainers"][0]["name"], "b");
    assert_eq!(plan.patch, None);
}

#[test]
fn a_refused_ephemeral_container_is_told_once_also_over_a_restart() {
    let debug = |name: &str| json!({ "name": name, "image": "a", "securityContext": { "privileged": true } });
    let with = |list: &[Value]| sent(&pod_with(&json!({ "ephemeralContainers": list })), &cluster());
    let mut there = created(&with(&[]));
    for list in [vec![debug("one")], vec![debug("one"), debug("two")]] {
        let desired = with(&list);
        assert_eq!(desired.notices.len(), list.len());
        let first = plan(&desired, &there, NEW);
        assert!(!first.is_empty() && first.ephemeral.is_none(), "there is something to tell: {first:?}");
        assert_eq!(converge(&desired, &mut there), 1);
        assert!(plan(&desired, &there, NEW).is_empty(), "and then not again");
    }
}

#[test]
fn a_resize_follows_and_is_not_lost_halfway() {
    let mut host = pod();
    let mut there = created(&sent(&host, &cluster()));
    host["spec"]["containers"][0]["resources"]["requests"] =
        json!({ "cpu": "0.2", "memory": "64Mi", "gpu": "1" });
    let desired = sent(&host, &cluster());
    let first = plan(&desired, &there, NEW);
    let want = json!({ "containers": [{ "name": "app", "resources": { "requests": { "cpu": "200m" } } }] });
    assert_eq!(first.resize.as_ref().unwrap()["spec"], want);
    // The other write lands and the resize does not: it is planned again.
    if let Some(patch) = &first.patch {
        apply(&mut there, patch);
    }
    assert_eq!(plan(&desired, &there, NEW).resize, first.resize);
    converge(&desired, &mut there);
    assert_eq!(there["spec"]["containers"][0]["resources"]["requests"]["cpu"], "200m");
    assert_eq!(there["spec"]["containers"][0]["resources"]["limits"]["cpu"], "2");
    // From then on the member may change it as it likes.
    there["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "300m".into();
    assert!(plan(&desired, &there, NEW).is_empty());
}

#[test]
fn a_resize_can_be_taken_back_halfway() {
    let (small, mut large) = (pod(), pod());
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
    let (small, large) = (sent(&small, &cluster()), sent(&large, &cluster()));
    let mut there = created(&small);
    let first = plan(&large, &there, NEW);
    for patch in [first.resize, first.patch].into_iter().flatten() {
        apply(&mut there, &patch);
    }
    // It has landed and nobody has noted it yet, when the user changes their mind.
    converge(&small, &mut there);
    assert_eq!(there["spec"]["containers"][0]["resources"]["requests"]["cpu"], "100m");
}

#[test]
fn an_old_member_cannot_resize_and_says_so_once() {
    let mut host = pod();
    let mut there = created(&sent(&host, &cluster()));
    host["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1".into();
    let desired = sent(&host, &cluster());
    let old = plan(&desired, &there, Version::v1(32));
    assert_eq!((old.resize, old.notices[0].reason), (None, "MemberTooOld"));
    apply(&mut there, &old.patch.unwrap());
    assert_eq!(plan(&desired, &there, Version::v1(32)), UpdatePlan::default());
}

#[test]
fn a_resize_of_the_pod_as_a_whole_follows_too() {
    let mut host = pod();
    host["spec"]["resources"] = json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2" } });
    let mut there = created(&sent(&host, &cluster()));
    host["spec"]["resources"]["requests"]["cpu"] = "1500m".into();
    let desired = sent(&host, &cluster());
    let first = plan(&desired, &there, NEW);
    let want = json!({ "resources": { "requests": { "cpu": "1500m" } } });
    assert_eq!(first.resize.as_ref().unwrap()["spec"], want);
    if let Some(patch) = &first.patch {
        apply(&mut there, patch);
    }
    assert_eq!(plan(&desired, &there, NEW).resize, first.resize, "it did not land");
    let old = plan(&desired, &there, Version::v1(35));
    assert_eq!((old.resize, old.notices[0].reason), (None, "MemberTooOld"));
    converge(&desired, &mut there);
    assert_eq!(there["spec"]["resources"]["requests"]["cpu"], "1500m");
    assert!(plan(&desired, &there, NEW).is_empty());
}

#[test]
fn what_is_over_or_going_is_left_alone() {
    let mut host = pod();
    let there = created(&sent(&host, &cluster()));
    host["metadata"]["labels"]["app"] = "other".into();
    let desired = sent(&host, &cluster());
    assert!(!plan(&desired, &there, NEW).is_empty());
    for change in
        [json!({ "status": { "phase": "Succeeded" } }), json!({ "metadata": { "deletionTimestamp": "now" } })]
    {
        let mut there = there.clone();
        apply(&mut there, &change);
        assert!(plan(&desired, &there, NEW).is_empty());
    }
}

fn changed_pod() -> impl Strategy<Value = Value> {
    (
        prop::collection::btree_map("[a-c]", "[a-c]", 0..3),
        "[a-c]",
        prop::option::of(1i64..3),
        prop::sample::select(vec!["100m", "0.1", "1", "2"]),
        prop::collection::vec("[a-c]", 0..3),
        prop::collection::btree_set("[a-c]", 0..3),
    )
        .prop_map(|(labels, image, deadline, cpu, tolerated, debug)| {
            let mut pod = pod();
            pod["metadata"]["labels"] = json!(labels);
            pod["spec"]["containers"][0]["image"] = image.into();
            pod["spec"]["activeDeadlineSeconds"] = json!(deadline);
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
            pod["spec"]["tolerations"] =
                tolerated.iter().map(|key| json!({ "key": key, "operator": "Exists" })).collect();
            pod["spec"]["ephemeralContainers"] =
                debug.iter().map(|name| json!({ "name": name, "image": "b" })).collect();
            pod
        })
}

proptest! {
    #[test]
    fn a_pod_needs_no_update_to_become_itself(host in changed_pod(), in_region in any::<bool>()) {
        let target: Target = if in_region { region() } else { cluster() };
        let desired = sent(&host, &target);
        let plan = plan(&desired, &desired.json, NEW);
        prop_assert_eq!(plan.patch, None);
        prop_assert_eq!(plan.resize, None);
        prop_assert_eq!(plan.ephemeral.is_some(), !desired.ephemeral.is_empty());
    }

    #[test]
    fn every_change_settles_in_few_writes(from in changed_pod(), to in changed_pod()) {
        let mut there = created(&sent(&from, &cluster()));
        let desired = sent(&to, &cluster());
        // Ephemeral containers, resize, patch, and the note that the resize has landed.
        prop_assert!(converge(&desired, &mut there) <= 4);
        prop_assert!(plan(&desired, &there, NEW).is_empty());
        let cpu = |pod: &Value| -> crate::quantity::Quantity {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap().parse().unwrap()
        };
        prop_assert_eq!(cpu(&there), cpu(&desired.json));
        let (have, want) = (&there["metadata"]["labels"], &desired.json["metadata"]["labels"]);
        for (key, value) in want.as_object().unwrap() {
            prop_assert_eq!(&have[key], value);
        }
    }
}
