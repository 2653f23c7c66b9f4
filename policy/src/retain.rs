//! What of a member's object stays when the host's copy is updated.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::prune::{JOB_LABELS, is_token};

/// Annotation with the keys of the labels that we set, so that those which go away can be removed.
pub const MANAGED_LABELS: &str = "resourcetemplate.karmada.io/managed-labels";
/// Annotation with the keys of the annotations that we set.
pub const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";
/// Label that says that the member scales the workload by itself.
pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";

/// Notes on an object which of its labels and annotations are ours.
pub fn record_managed(object: &mut Value) {
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let keys = |meta: &Map<String, Value>, field: &str| -> BTreeSet<String> {
        meta.get(field).and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect()
    };
    let labels = keys(meta, "labels");
    let mut annotations = keys(meta, "annotations");
    annotations.extend([MANAGED_LABELS.to_owned(), MANAGED_ANNOTATIONS.to_owned()]);
    let noted = meta.entry("annotations").or_insert_with(|| json!({}));
    if !noted.is_object() {
        *noted = json!({});
    }
    let join = |keys: BTreeSet<String>| json!(keys.into_iter().collect::<Vec<_>>().join(","));
    if let Some(noted) = noted.as_object_mut() {
        noted.insert(MANAGED_LABELS.into(), join(labels));
        noted.insert(MANAGED_ANNOTATIONS.into(), join(annotations));
    }
}

/// Puts into `desired` what the member's object keeps.
pub fn retain(desired: &mut Value, observed: &Value) {
    for field in ["resourceVersion", "finalizers", "ownerReferences"] {
        keep(desired, observed, &format!("/metadata/{field}"));
    }
    keep_unmanaged(desired, observed, "labels", MANAGED_LABELS);
    keep_unmanaged(desired, observed, "annotations", MANAGED_ANNOTATIONS);
    retain_by_kind(desired, observed);
}

/// Puts into `desired` what the member's object keeps because of its kind: all that there is to do where the API server
/// itself knows which fields are whose.
pub fn retain_by_kind(desired: &mut Value, observed: &Value) {
    match desired.get("kind").and_then(Value::as_str).unwrap_or_default() {
        "Deployment" => {
            let labels = desired.pointer("/metadata/labels");
            if labels.and_then(|labels| labels.get(RETAIN_REPLICAS)).and_then(Value::as_str) == Some("true") {
                keep(desired, observed, "/spec/replicas");
            }
        }
        "Service" => {
            for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
                keep_if_absent(desired, observed, &format!("/spec/{field}"));
            }
        }
        "ServiceAccount" => {
            for field in ["secrets", "imagePullSecrets"] {
                union(desired, observed, field);
            }
        }
        "PersistentVolumeClaim" => keep_if_absent(desired, observed, "/spec/volumeName"),
        "PersistentVolume" => keep(desired, observed, "/spec/claimRef"),
        "Job" => {
            keep_if_absent(desired, observed, "/spec/selector");
            for label in JOB_LABELS {
                let label = label.replace('/', "~1");
                keep_if_absent(desired, observed, &format!("/spec/template/metadata/labels/{label}"));
            }
        }
        "Pod" => retain_pod(desired, observed),
        "Secret" if is_token(desired) => keep(desired, observed, "/data"),
        _ => {}
    }
}

/// What the member's API server decided for a pod, which cannot be changed any more.
fn retain_pod(desired: &mut Value, observed: &Value) {
    for field in ["nodeName", "serviceAccountName", "serviceAccount", "volumes"] {
        keep(desired, observed, &format!("/spec/{field}"));
    }
    for list in ["containers", "initContainers"] {
        let pointer = format!("/spec/{list}");
        let live = observed.pointer(&pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for container in desired.pointer_mut(&pointer).and_then(Value::as_array_mut).into_iter().flatten() {
            let twin = live.iter().find(|twin| twin.get("name") == container.get("name"));
            if let Some((mounts, container)) =
                twin.and_then(|twin| twin.get("volumeMounts")).zip(container.as_object_mut())
            {
                container.insert("volumeMounts".into(), mounts.clone());
            }
        }
    }
}

/// Takes over a field of the member's object, if it has it.
fn keep(desired: &mut Value, observed: &Value, pointer: &str) {
    if let Some(value) = observed.pointer(pointer) {
        set(desired, pointer, value.clone());
    }
}

fn keep_if_absent(desired: &mut Value, observed: &Value, pointer: &str) {
    if desired.pointer(pointer).is_none_or(Value::is_null) {
        keep(desired, observed, pointer);
    }
}

/// Sets a field, making the objects on the way to it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        if at.is_null() {
            *at = json!({});
        }
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(part.replace("~1", "/")).or_insert(Value::Null);
    }
    *at = value;
}

/// Keeps labels or annotations that only the member has; those that were ours and are gone go away there too.
fn keep_unmanaged(desired: &mut Value, observed: &Value, field: &str, record: &str) {
    let managed = observed.pointer("/metadata/annotations").and_then(|annotations| annotations.get(record));
    let managed: BTreeSet<&str> = managed.and_then(Value::as_str).unwrap_or_default().split(',').collect();
    let Some(live) = observed.pointer(&format!("/metadata/{field}")).and_then(Value::as_object) else {
        return;
    };
    for (key, value) in live.iter().filter(|(key, _)| !managed.contains(key.as_str())) {
        let pointer = format!("/metadata/{field}/{}", key.replace('/', "~1"));
        if desired.pointer(&pointer).is_none() {
            set(desired, &pointer, value.clone());
        }
    }
}

/// Adds the items that only the member has.
fn union(desired: &mut Value, observed: &Value, field: &str) {
    let Some(live) = observed.get(field).and_then(Value::as_array) else { return };
    let mut items = desired.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let new: Vec<Value> = live
        .iter()
        .filter(|item| !items.iter().any(|have| have.get("name") == item.get("name")))
        .cloned()
        .collect();
    items.extend(new);
    set(desired, &format!("/{field}"), Value::Array(items));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        for (desired, observed, pointer, expected) in [
            (
                json!({"metadata": {}}),
                json!({"metadata": {"resourceVersion": "7"}}),
                "/metadata/resourceVersion",
                json!("7"),
            ),
            (
                json!({"metadata": {"labels": {"a": "new"}}}),
                json!({"metadata": {"labels": {"a": "old", "theirs": "1", "gone": "1"}, "annotations": {MANAGED_LABELS: "a,gone"}}}),
                "/metadata/labels",
                json!({"a": "new", "theirs": "1"}),
            ),
            (
                json!({"kind": "Deployment", "metadata": {"labels": {RETAIN_REPLICAS: "true"}}, "spec": {"replicas": 1}}),
                json!({"spec": {"replicas": 9}}),
                "/spec/replicas",
                json!(9),
            ),
            (
                json!({"kind": "Deployment", "metadata": {}, "spec": {"replicas": 1}}),
                json!({"spec": {"replicas": 9}}),
                "/spec/replicas",
                json!(1),
            ),
            (
                json!({"kind": "Service", "spec": {}}),
                json!({"spec": {"clusterIP": "10.0.0.1"}}),
                "/spec/clusterIP",
                json!("10.0.0.1"),
            ),
            (
                json!({"kind": "Service", "spec": {"clusterIP": "None"}}),
                json!({"spec": {"clusterIP": "10.0.0.1"}}),
                "/spec/clusterIP",
                json!("None"),
            ),
            (
                json!({"kind": "ServiceAccount", "secrets": [{"name": "a"}]}),
                json!({"secrets": [{"name": "a"}, {"name": "b"}]}),
                "/secrets",
                json!([{"name": "a"}, {"name": "b"}]),
            ),
            (
                json!({"kind": "PersistentVolumeClaim", "spec": {}}),
                json!({"spec": {"volumeName": "pv"}}),
                "/spec/volumeName",
                json!("pv"),
            ),
            (
                json!({"kind": "PersistentVolume", "spec": {}}),
                json!({"spec": {"claimRef": {"name": "c"}}}),
                "/spec/claimRef/name",
                json!("c"),
            ),
            (
                json!({"kind": "Job", "spec": {"template": {}}}),
                json!({"spec": {"selector": {"a": 1}, "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u", "x": "y"}}}}}),
                "/spec",
                json!({"selector": {"a": 1}, "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}}}}),
            ),
            (
                json!({"kind": "Pod", "spec": {"containers": [{"name": "a", "image": "new"}]}}),
                json!({"spec": {"nodeName": "n", "volumes": [{"name": "t"}], "containers": [{"name": "a", "image": "old", "volumeMounts": [{"name": "t"}]}]}}),
                "/spec",
                json!({"nodeName": "n", "volumes": [{"name": "t"}], "containers": [{"name": "a", "image": "new", "volumeMounts": [{"name": "t"}]}]}),
            ),
            (
                json!({"kind": "Secret", "type": "kubernetes.io/service-account-token"}),
                json!({"data": {"token": "t"}}),
                "/data/token",
                json!("t"),
            ),
        ] {
            let mut found = desired.clone();
            retain(&mut found, &observed);
            assert_eq!(found.pointer(pointer), Some(&expected), "{desired}");
        }
    }

    #[test]
    fn a_key_that_was_ours_and_is_gone_goes_away() {
        let mut first = json!({"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x/y": "1"}}});
        record_managed(&mut first);
        let mut live = first.clone();
        live["metadata"]["annotations"]["theirs"] = json!("1");
        let mut second = json!({"metadata": {"labels": {"a": "1"}}});
        record_managed(&mut second);
        retain(&mut second, &live);
        assert_eq!(second["metadata"]["labels"], json!({"a": "1"}));
        let annotations = second["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), [MANAGED_ANNOTATIONS, MANAGED_LABELS, "theirs"]);
        let again = second.clone();
        retain(&mut second, &again);
        assert_eq!(second, again, "an object that is as desired does not change");
    }
}
