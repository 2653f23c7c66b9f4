//! What of an object belongs to the host alone and is not sent to members.

use serde_json::{Map, Value};

/// Takes away what the host's API server and controllers wrote.
pub fn prune(object: &mut Value) {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, name) = (
        text("kind"),
        object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
    );
    remove(object, "", &["status"]);
    remove(
        object,
        "/metadata",
        &[
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "managedFields",
            "resourceVersion",
            "selfLink",
            "uid",
            "ownerReferences",
            "finalizers",
        ],
    );
    // A second copy of everything, as it was before overrides.
    remove(object, "/metadata/annotations", &["kubectl.kubernetes.io/last-applied-configuration"]);
    match kind.as_str() {
        "Deployment" => {
            if let Some(annotations) = map(object, "/metadata/annotations") {
                annotations.retain(|key, _| !key.starts_with("deployment.kubernetes.io/"));
            }
        }
        "Job" => prune_job(object),
        "ServiceAccount" => {
            // Tokens that the host made for the account mean nothing elsewhere.
            let is_made = |secret: &Value| {
                let secret = secret.get("name").and_then(Value::as_str).unwrap_or_default();
                secret.strip_prefix(&name).is_some_and(|rest| rest.starts_with("-token-"))
            };
            if let Some(secrets) = object.get_mut("secrets").and_then(Value::as_array_mut) {
                secrets.retain(|secret| !is_made(secret));
            }
        }
        "Service" if object.pointer("/spec/clusterIP").and_then(Value::as_str) != Some("None") => {
            remove(object, "/spec", &["clusterIP", "clusterIPs"]);
        }
        "Secret" if is_token(object) => {
            remove(object, "", &["data"]);
            remove(object, "/metadata/annotations", &["kubernetes.io/service-account.uid"]);
        }
        "PersistentVolumeClaim" => prune_claim(object),
        _ => {}
    }
}

/// Whether a Secret holds the token of a service account.
pub(crate) fn is_token(secret: &Value) -> bool {
    secret.get("type").and_then(Value::as_str) == Some("kubernetes.io/service-account-token")
}

/// Labels that a Job puts on its pods when it makes its own selector.
pub(crate) const JOB_LABELS: [&str; 4] =
    ["controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"];

fn prune_job(job: &mut Value) {
    remove(job, "/spec", &["ttlSecondsAfterFinished"]);
    if job.pointer("/spec/manualSelector").and_then(Value::as_bool) != Some(true) {
        remove(job, "/spec", &["selector"]);
        remove(job, "/spec/template/metadata/labels", &JOB_LABELS);
    }
}

/// A claim that the host bound must not look bound in a member, or the member takes it for lost.
fn prune_claim(claim: &mut Value) {
    const BOUND_HERE: &str = "pv.kubernetes.io/bound-by-controller";
    if map(claim, "/metadata/annotations").is_some_and(|annotations| annotations.contains_key(BOUND_HERE)) {
        remove(claim, "/spec", &["volumeName"]);
    }
    let annotations = ["volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed", BOUND_HERE];
    remove(claim, "/metadata/annotations", &annotations);
}

fn map<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    object.pointer_mut(pointer).and_then(Value::as_object_mut)
}

fn remove(object: &mut Value, pointer: &str, keys: &[&str]) {
    if let Some(map) = map(object, pointer) {
        for key in keys {
            map.remove(*key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables() {
        for (before, after) in [
            (
                json!({"kind": "ConfigMap", "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "generation": 1, "managedFields": [],
                    "ownerReferences": [], "finalizers": [], "creationTimestamp": "t", "labels": {"x": "y"}}, "data": {"a": "b"}, "status": {}}),
                json!({"kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"a": "b"}}),
            ),
            (
                json!({"kind": "Secret", "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}}}),
                json!({"kind": "Secret", "metadata": {"annotations": {"mine": "1"}}}),
            ),
            (
                json!({"kind": "Deployment", "metadata": {"annotations": {"deployment.kubernetes.io/revision": "3", "mine": "1"}}}),
                json!({"kind": "Deployment", "metadata": {"annotations": {"mine": "1"}}}),
            ),
            (
                json!({"kind": "Job", "spec": {"ttlSecondsAfterFinished": 1, "selector": {}, "template": {"metadata": {"labels": {"controller-uid": "u", "app": "x"}}}}}),
                json!({"kind": "Job", "spec": {"template": {"metadata": {"labels": {"app": "x"}}}}}),
            ),
            (
                json!({"kind": "Job", "spec": {"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}}),
                json!({"kind": "Job", "spec": {"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}}),
            ),
            (
                json!({"kind": "ServiceAccount", "metadata": {"name": "sa"}, "secrets": [{"name": "sa-token-x"}, {"name": "mine"}]}),
                json!({"kind": "ServiceAccount", "metadata": {"name": "sa"}, "secrets": [{"name": "mine"}]}),
            ),
            (
                json!({"kind": "Service", "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"nodePort": 30000}]}}),
                json!({"kind": "Service", "spec": {"ports": [{"nodePort": 30000}]}}),
            ),
            (
                json!({"kind": "Service", "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
                json!({"kind": "Service", "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
            ),
            (
                json!({"kind": "Secret", "type": "kubernetes.io/service-account-token", "data": {"token": "t"}}),
                json!({"kind": "Secret", "type": "kubernetes.io/service-account-token"}),
            ),
            (
                json!({"kind": "Secret", "type": "Opaque", "data": {"a": "b"}}),
                json!({"kind": "Secret", "type": "Opaque", "data": {"a": "b"}}),
            ),
            (
                json!({"kind": "PersistentVolumeClaim", "metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n", "pv.kubernetes.io/bound-by-controller": "yes"}}, "spec": {"volumeName": "pv"}}),
                json!({"kind": "PersistentVolumeClaim", "metadata": {"annotations": {}}, "spec": {}}),
            ),
            (
                json!({"kind": "PersistentVolumeClaim", "metadata": {}, "spec": {"volumeName": "pv"}}),
                json!({"kind": "PersistentVolumeClaim", "metadata": {}, "spec": {"volumeName": "pv"}}),
            ),
            (json!("odd"), json!("odd")),
        ] {
            let mut found = before.clone();
            prune(&mut found);
            assert_eq!(found, after, "{before}");
            let again = found.clone();
            prune(&mut found);
            assert_eq!(found, again, "pruning twice is pruning once");
        }
    }
}
