//! What of a member's object stays when the host's copy is updated.

use serde_json::{Value, json};

use crate::prune::{JOB_LABELS, is_token};

/// Label that says that the member scales the workload by itself.
pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";

/// Puts into `desired` what the member's object keeps because of its kind. All else the API server sees to, which knows
/// which fields are whose.
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
            retain_by_kind(&mut found, &observed);
            assert_eq!(found.pointer(pointer), Some(&expected), "{desired}");
        }
    }
}
