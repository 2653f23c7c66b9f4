//! The copy of a pod for one cluster: a pod of the host, pinned to the node of that cluster.

use federlet_node::contract::Pod;
use serde_json::{Map, Value, json};

use super::{FLEET_TAINT, choice::Chosen};
use crate::{
    capacity::room_for,
    json::{Object, items, members, object_mut, text},
    marks,
    names::shortened,
    settings::{REGION_LABEL, ZONE_LABEL},
};

/// By this label of a node a copy is pinned to it.
pub(super) const NODE_LABEL: &str = "kubernetes.io/hostname";
/// Which of its siblings a ReplicaSet takes away first. Copies have no such siblings.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Labels that the host gives a pod when it is bound, from those of its node.
const OF_THE_NODE: [&str; 2] = [REGION_LABEL, ZONE_LABEL];
/// The longest name that the API server takes for a pod.
const NAME_LIMIT: usize = 253;

/// Parts of a spec that belong to the one pod that the host admitted and scheduled. Whoever admits the copy fills them
/// in again: a priority that it did not compute itself it would refuse.
const OF_THE_POD: [&str; 7] = [
    "nodeName",
    "affinity",
    "nodeSelector",
    "priority",
    "preemptionPolicy",
    "schedulingGates",
    "ephemeralContainers",
];

/// The name of a copy on the host.
pub(super) fn name(pod: &str, cluster: &str) -> String {
    shortened(&format!("{pod}-{cluster}"), NAME_LIMIT)
}

/// The copy for a cluster, as it is created.
pub(super) fn copy(pod: &Pod, cluster: &str, chosen: &Chosen) -> Value {
    let (labels, annotations) = marked(pod, chosen.uncounted);
    let mut spec = pod.spec().as_object().cloned().unwrap_or_default();
    for field in OF_THE_POD {
        spec.remove(field);
    }
    spec.insert("nodeSelector".into(), json!({ NODE_LABEL: cluster }));
    let room = room_for(pod.json());
    if !room.is_empty() {
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": room }] });
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms });
        spec.insert("affinity".into(), json!({ "nodeAffinity": required }));
    }
    if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
        tolerations.retain(|toleration| text(toleration, "key") != Some(FLEET_TAINT));
    }
    // No finalizers: those who put them on the pod look at the pod. And no other owner: what two own goes only with both.
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name(pod.key().name(), cluster), "namespace": pod.key().namespace(),
            "labels": labels, "annotations": annotations, "ownerReferences": [chosen.owner],
        },
        "spec": spec,
    })
}

/// What differs in a copy that is there from what it should be, and can change in a pod that runs. A strategic patch for
/// exactly this copy; none if it is as it should be.
pub(super) fn patch(pod: &Pod, copy: &Value, uncounted: bool) -> Option<Value> {
    let mut metadata = Object::new();
    let (labels, annotations) = marked(pod, uncounted);
    for (field, wanted) in [("labels", labels), ("annotations", annotations)] {
        let there = copy.pointer(&format!("/metadata/{field}"));
        let changed = wanted.iter().filter(|(key, value)| there.and_then(|all| all.get(*key)) != Some(value));
        let mut changes: Object = changed.map(|(key, value)| (key.clone(), value.clone())).collect();
        let over = members(there).filter(|(key, _)| !wanted.contains_key(*key));
        changes.extend(over.map(|(key, _)| (key.clone(), Value::Null)));
        changes.retain(|key, _| !OF_THE_NODE.contains(&key.as_str()));
        if !changes.is_empty() {
            metadata.insert(field.into(), changes.into());
        }
    }
    let mut spec = Object::new();
    for list in ["initContainers", "containers"] {
        let images: Vec<Value> = items(pod.spec().get(list))
            .filter(|wanted| {
                let there = items(copy.pointer(&format!("/spec/{list}")));
                let mut same = there.filter(|one| one.get("name") == wanted.get("name"));
                same.next().is_some_and(|one| one.get("image") != wanted.get("image"))
            })
            .map(|wanted| json!({ "name": wanted.get("name"), "image": wanted.get("image") }))
            .collect();
        if !images.is_empty() {
            spec.insert(list.into(), images.into());
        }
    }
    if metadata.is_empty() && spec.is_empty() {
        return None;
    }
    metadata.insert("uid".into(), copy.pointer("/metadata/uid").cloned().unwrap_or_default());
    let mut patch = json!({ "metadata": metadata });
    if !spec.is_empty() {
        patch["spec"] = spec.into();
    }
    Some(patch)
}

/// Labels and annotations of a copy on the host.
fn marked(pod: &Pod, uncounted: bool) -> (Object, Object) {
    let (mut labels, mut annotations) = (labels(pod), annotations(pod));
    if uncounted {
        let copy_of = labels.remove(marks::COPY_OF);
        annotations.insert(marks::LABELS.into(), Value::Object(labels).to_string().into());
        labels = copy_of.map(|uid| (marks::COPY_OF.to_owned(), uid)).into_iter().collect();
    }
    (labels, annotations)
}

/// A copy with the labels that it has in its member. None if those are the labels that it has.
pub(crate) fn relabelled(copy: &Pod) -> Option<Pod> {
    let copy_of = marks::label(copy.json(), marks::COPY_OF)?;
    let mut labels: Object = serde_json::from_str(marks::annotation(copy.json(), marks::LABELS)?).ok()?;
    labels.insert(marks::COPY_OF.into(), copy_of.into());
    let of_the_node =
        OF_THE_NODE.into_iter().filter_map(|key| Some((key.to_owned(), copy.label(key)?.into())));
    labels.extend(of_the_node);
    let mut json = copy.json().clone();
    json["metadata"]["labels"] = Value::Object(labels);
    Pod::try_from(json).ok()
}

/// Services and budgets find copies by the labels of their pod. The label by which the placer finds pods is not for them.
fn labels(pod: &Pod) -> Object {
    let mut labels = map(pod, "labels");
    labels.remove(marks::WORKLOAD);
    labels.insert(marks::COPY_OF.into(), pod.uid().into());
    labels
}

fn annotations(pod: &Pod) -> Object {
    let mut annotations = map(pod, "annotations");
    annotations.remove(DELETION_COST);
    annotations.insert(marks::MEMBER_NAME.into(), pod.key().name().into());
    let owners = pod.metadata().get("ownerReferences");
    if let Some(maker) = items(owners).find(|owner| owner.get("controller") == Some(&true.into())) {
        annotations.insert(marks::MADE_BY.into(), maker.to_string().into());
    }
    // A pod that is its own workload had no UID when that was written.
    let stamp = annotations.get(marks::WORKLOAD).and_then(Value::as_str);
    if let Some(mut workload) = stamp.and_then(|text| serde_json::from_str::<Object>(text).ok())
        && workload.get("uid").and_then(Value::as_str).is_none_or(str::is_empty)
    {
        workload.insert("name".into(), pod.key().name().into());
        workload.insert("uid".into(), pod.uid().into());
        annotations.insert(marks::WORKLOAD.into(), Value::Object(workload).to_string().into());
    }
    annotations
}

fn map(pod: &Pod, field: &str) -> Object {
    pod.metadata().get(field).and_then(Value::as_object).cloned().unwrap_or_else(Map::new)
}

/// What of a copy later decisions look at.
pub(super) fn reduced(copy: &Value) -> Value {
    let pick = |parent: &str, fields: &[&str]| -> Object {
        let parent = copy.get(parent);
        let take = |field: &&str| Some(((*field).to_owned(), parent?.get(*field)?.clone()));
        fields.iter().filter_map(take).collect()
    };
    let mut kept = Object::new();
    kept.insert(
        "metadata".into(),
        pick(
            "metadata",
            &[
                "namespace",
                "name",
                "uid",
                "labels",
                "annotations",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            ],
        )
        .into(),
    );
    let mut spec = pick("spec", &["terminationGracePeriodSeconds", "restartPolicy", "nodeName"]);
    for list in ["initContainers", "containers"] {
        let containers: Vec<Value> = items(copy.pointer(&format!("/spec/{list}")))
            .map(|container| json!({ "name": container.get("name"), "image": container.get("image") }))
            .collect();
        if !containers.is_empty() {
            spec.insert(list.into(), containers.into());
        }
    }
    object_mut(&mut kept, "spec").extend(spec);
    kept.insert("status".into(), copy.get("status").cloned().unwrap_or_default());
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        Pod::try_from(json!({
            "metadata": {
                "namespace": "shop", "name": "web-0", "uid": "p1", "finalizers": ["batch.kubernetes.io/job-tracking"],
                "labels": {"app": "web", "federlet.io/workload": "w1"},
                "annotations": {"note": "x", "controller.kubernetes.io/pod-deletion-cost": "-1",
                    "federlet.io/workload": "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"web-\"}"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s1", "controller": true}],
            },
            "spec": {
                "nodeName": "fleet", "nodeSelector": {"kubernetes.io/hostname": "fleet"}, "priority": 0, "hostname": "web-0",
                "tolerations": [{"operator": "Exists"}, {"key": "federlet.io/fleet", "operator": "Exists"}],
                "containers": [{"name": "app", "image": "nginx"}],
            },
            "status": {"phase": "Running"},
        }))
        .unwrap()
    }

    fn chosen(uncounted: bool) -> Chosen {
        Chosen { owner: owner(), clusters: [].into(), held: [].into(), uncounted }
    }

    fn owner() -> Value {
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "name": "web-statefulset", "uid": "b1", "controller": true})
    }

    #[test]
    fn a_copy_is_a_pod_of_its_own_with_the_name_of_its_pod_in_the_member() {
        let copy = copy(&pod(), "m1", &chosen(false));
        let metadata = &copy["metadata"];
        assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("web-0-m1"), &json!("shop")));
        assert_eq!(metadata["labels"], json!({"app": "web", "federlet.io/copy-of": "p1"}));
        assert_eq!(metadata["ownerReferences"], json!([owner()]));
        assert_eq!((metadata.get("finalizers"), copy.get("status")), (None, None));
        let annotations = &metadata["annotations"];
        assert_eq!((&annotations["note"], &annotations[marks::MEMBER_NAME]), (&json!("x"), &json!("web-0")));
        assert_eq!(annotations.get(DELETION_COST), None);
        assert!(annotations[marks::MADE_BY].as_str().unwrap().contains("StatefulSet"));
        let workload: Value = serde_json::from_str(annotations[marks::WORKLOAD].as_str().unwrap()).unwrap();
        assert_eq!(workload, json!({"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "p1"}));
        assert_eq!(
            copy["spec"],
            json!({
                "nodeSelector": {"kubernetes.io/hostname": "m1"}, "hostname": "web-0",
                "tolerations": [{"operator": "Exists"}], "containers": [{"name": "app", "image": "nginx"}],
            })
        );
    }

    #[test]
    fn a_copy_that_nobody_is_to_count_has_its_labels_in_the_member_alone() {
        let parent = pod();
        let mut uncounted = copy(&parent, "m1", &chosen(true));
        assert_eq!(uncounted["metadata"]["labels"], json!({"federlet.io/copy-of": "p1"}));
        uncounted["metadata"]["uid"] = "c1".into();
        assert_eq!(patch(&parent, &uncounted, true), None);
        let there = relabelled(&Pod::try_from(uncounted.clone()).unwrap()).unwrap();
        assert_eq!(there.metadata()["labels"], json!({"app": "web", "federlet.io/copy-of": "p1"}));

        let mut counted = copy(&parent, "m1", &chosen(false));
        counted["metadata"]["uid"] = "c1".into();
        assert!(relabelled(&Pod::try_from(counted.clone()).unwrap()).is_none());
        let change = patch(&parent, &counted, true).unwrap();
        assert_eq!(change["metadata"]["labels"], json!({"app": null}));
        assert_eq!(change["metadata"]["annotations"], json!({"federlet.io/labels": "{\"app\":\"web\"}"}));
        let back = patch(&parent, &uncounted, false).unwrap();
        assert_eq!(back["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(back["metadata"]["annotations"], json!({"federlet.io/labels": null}));
    }

    #[test]
    fn a_copy_waits_for_a_machine_with_room() {
        let mut json = pod().into_json();
        json["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
        let copy = copy(&Pod::try_from(json).unwrap(), "m1", &chosen(false));
        let terms = &copy["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"];
        assert_eq!(
            terms,
            &json!([{"matchExpressions": [{"key": "room.federlet.io/cpu", "operator": "Gt", "values": ["1999"]}]}])
        );
    }

    #[test]
    fn what_the_host_says_of_the_place_of_a_copy_stays() {
        let mut parent = pod().into_json();
        parent["metadata"]["labels"]["topology.kubernetes.io/region"] = "everywhere".into();
        let parent = Pod::try_from(parent).unwrap();
        for uncounted in [false, true] {
            let mut there = copy(&parent, "m1", &chosen(uncounted));
            there["metadata"]["uid"] = "c1".into();
            there["metadata"]["labels"]["topology.kubernetes.io/region"] = "north".into();
            there["metadata"]["labels"]["topology.kubernetes.io/zone"] = "n1".into();
            assert_eq!(patch(&parent, &reduced(&there), uncounted), None);
            let there = Pod::try_from(there).unwrap();
            let in_member = relabelled(&there).unwrap_or(there);
            assert_eq!(in_member.label("topology.kubernetes.io/region"), Some("north"));
            assert_eq!(in_member.label("topology.kubernetes.io/zone"), Some("n1"));
            assert_eq!(in_member.label("app"), Some("web"));
        }
    }

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        assert_eq!(name("web", "m1"), "web-m1");
        let long = name(&"x".repeat(250), "member1");
        assert_eq!(long.len(), 253);
        assert_ne!(long, name(&"x".repeat(250), "member2"));
    }

    #[test]
    fn only_what_differs_is_written_and_only_to_that_copy() {
        let parent = pod();
        let mut there = copy(&parent, "m1", &chosen(false));
        there["metadata"]["uid"] = "c1".into();
        let there = reduced(&there);
        assert_eq!(patch(&parent, &there, false), None);
        let mut json = parent.into_json();
        json["metadata"]["labels"]["more"] = "yes".into();
        json["metadata"]["annotations"].as_object_mut().unwrap().remove("note");
        json["spec"]["containers"][0]["image"] = "nginx:2".into();
        assert_eq!(
            patch(&Pod::try_from(json).unwrap(), &there, false),
            Some(json!({
                "metadata": {"uid": "c1", "labels": {"more": "yes"}, "annotations": {"note": null}},
                "spec": {"containers": [{"name": "app", "image": "nginx:2"}]},
            }))
        );
    }
}
