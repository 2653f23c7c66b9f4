//! What is known about the kinds that run pods.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::divide::{
    Shares,
    webster::{self, TieBreak},
};

/// Where the pod of an object is: the object itself for a Pod, its template for what makes pods.
#[must_use]
pub fn pod_path(api_version: &str, kind: &str) -> Option<&'static str> {
    match (api_version, kind) {
        ("v1", "Pod") => Some(""),
        ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch/v1", "Job")
        | ("v1", "ReplicationController") => Some("/spec/template"),
        ("batch/v1", "CronJob") => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

/// The same, for an object.
#[must_use]
pub fn pod_path_of(object: &Value) -> Option<&'static str> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    pod_path(text("apiVersion"), text("kind"))
}

/// Where the number of replicas of a kind is.
fn replicas_path(object: &Value) -> Option<&'static str> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet") | ("v1", "ReplicationController") => {
            Some("/spec/replicas")
        }
        ("batch/v1", "Job") => Some("/spec/parallelism"),
        _ => None,
    }
}

/// How many replicas an object asks for. `None` for kinds without such a number; a bare Pod is one replica.
#[must_use]
pub fn replicas(object: &Value) -> Option<u32> {
    let Some(path) = replicas_path(object) else {
        return (pod_path_of(object) == Some("")).then_some(1);
    };
    let number = |path: &str| {
        let count = object.pointer(path).and_then(Value::as_u64)?;
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    };
    let given = number(path).unwrap_or(1);
    // A Job never runs more pods at once than it has to complete.
    let most = number("/spec/completions").filter(|_| path == "/spec/parallelism");
    Some(most.map_or(given, |most| given.min(most)))
}

/// Sets how many replicas an object asks for, if its kind has such a number.
pub fn set_replicas(object: &mut Value, replicas: u32) {
    let Some(field) = replicas_path(object).and_then(|path| path.strip_prefix("/spec/")) else { return };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(field.to_owned(), json!(replicas));
    }
}

/// Sets how often a Job is to complete, if it says so at all.
pub fn set_completions(object: &mut Value, completions: u32) {
    if let Some(field) = object.pointer_mut("/spec/completions") {
        *field = json!(completions);
    }
}

/// Divides the completions of a Job as its replicas are divided. `None` if the object has none.
#[must_use]
pub fn completions(object: &Value, shares: &Shares, ties: TieBreak) -> Option<BTreeMap<String, u32>> {
    if object.get("kind").and_then(Value::as_str) != Some("Job") {
        return None;
    }
    let total = u32::try_from(object.pointer("/spec/completions")?.as_u64()?).ok()?;
    let weights: Vec<_> = shares.iter().map(|(name, share)| (name.as_str(), u64::from(*share))).collect();
    let divided = webster::divide(total, &weights, ties);
    Some(shares.keys().cloned().zip(divided).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_pods_and_replicas_are() {
        for (api_version, kind, spec, path, count) in [
            ("v1", "Pod", json!({}), Some(""), Some(1)),
            ("apps/v1", "Deployment", json!({}), Some("/spec/template"), Some(1)),
            ("apps/v1", "StatefulSet", json!({"replicas": 0}), Some("/spec/template"), Some(0)),
            ("apps/v1", "DaemonSet", json!({}), Some("/spec/template"), None),
            ("batch/v1", "Job", json!({"parallelism": 3}), Some("/spec/template"), Some(3)),
            ("batch/v1", "Job", json!({"parallelism": 9, "completions": 2}), Some("/spec/template"), Some(2)),
            ("batch/v1", "CronJob", json!({}), Some("/spec/jobTemplate/spec/template"), None),
            ("v1", "Service", json!({}), None, None),
            ("example.com/v1", "Deployment", json!({}), None, None),
        ] {
            let mut object = json!({"apiVersion": api_version, "kind": kind, "spec": spec});
            assert_eq!(pod_path_of(&object), path, "{kind}");
            assert_eq!(replicas(&object), count, "{kind}");
            set_replicas(&mut object, 2);
            let expected = if kind == "Pod" { Some(1) } else { count.map(|_| 2) };
            assert_eq!(replicas(&object), expected, "{kind}");
        }
    }

    #[test]
    fn completions_follow_replicas() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": 6}});
        let shares = Shares::from([("a".into(), 1), ("b".into(), 2)]);
        let divided = completions(&job, &shares, TieBreak::FirstName).unwrap();
        assert_eq!(divided, BTreeMap::from([("a".into(), 2), ("b".into(), 4)]));
        assert_eq!(completions(&json!({"kind": "Job"}), &shares, TieBreak::FirstName), None);
    }
}
