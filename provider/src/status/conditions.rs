use serde_json::{Value, json};

use super::clean;
use crate::json::{Object, items, text};

/// Conditions of the host's own: its scheduler bound the pod, whatever the member's says about it.
const HOSTS_OWN: [&str; 1] = ["PodScheduled"];

/// More than any pod has.
const LIMIT: usize = 64;

/// The member's conditions in the host's terms, and those that others wrote on the host as they are.
pub(super) fn rewrite(
    host: &Value,
    current: &Object,
    reported: &Object,
    generation: Option<i64>,
) -> Vec<Value> {
    let before = |kind: &str| items(current.get("conditions")).find(|c| text(c, "type") == Some(kind));
    let gates: Vec<&str> =
        items(host.pointer("/spec/readinessGates")).filter_map(|gate| text(gate, "conditionType")).collect();
    let mut conditions: Vec<Value> = vec![];
    for condition in items(reported.get("conditions")).take(LIMIT) {
        let Some(kind) = text(condition, "type") else { continue };
        let taken = conditions.iter().any(|known| text(known, "type") == Some(kind));
        if taken || HOSTS_OWN.contains(&kind) || gates.contains(&kind) || kind.len() > 316 {
            continue;
        }
        let mut condition = tidy(condition, kind);
        if kind == "Ready" {
            gate(&mut condition, &gates, &before);
        }
        keep_transition(&mut condition, before(kind));
        if let Some(generation) = generation {
            condition["observedGeneration"] = generation.into();
        }
        conditions.push(condition);
    }
    for other in items(current.get("conditions")) {
        let known = conditions.iter().any(|known| text(known, "type") == text(other, "type"));
        if !known && text(other, "type").is_some() && !is_kubelets(other) {
            conditions.push(other.clone());
        }
    }
    conditions
}

/// Conditions that a kubelet writes and takes back: not in the report means not any more.
fn is_kubelets(condition: &Value) -> bool {
    const KUBELETS: [&str; 6] = [
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodResizePending",
        "PodResizeInProgress",
    ];
    text(condition, "type").is_some_and(|kind| KUBELETS.contains(&kind))
}

/// Only what a condition has, and each as the API server takes it. `observedGeneration` counts the member's pod.
fn tidy(condition: &Value, kind: &str) -> Value {
    let status =
        text(condition, "status").filter(|status| ["True", "False"].contains(status)).unwrap_or("Unknown");
    let mut tidy = json!({ "type": kind, "status": status });
    if let Some(reason) = text(condition, "reason") {
        tidy["reason"] = clean::word(reason).into();
    }
    if let Some(message) = text(condition, "message") {
        tidy["message"] = clean::text(message).into();
    }
    for time in ["lastProbeTime", "lastTransitionTime"] {
        if let Some(value) = condition.get(time).filter(|value| clean::is_time(value)) {
            tidy[time] = value.clone();
        }
    }
    tidy
}

/// Readiness gates are conditions that someone writes on the host's pod. The pod in the member has none, so whether
/// they hold is for us to say, in the kubelet's words.
fn gate<'a>(ready: &mut Value, gates: &[&str], before: &dyn Fn(&str) -> Option<&'a Value>) {
    if text(ready, "status") != Some("True") {
        return;
    }
    let closed: Vec<String> = gates
        .iter()
        .filter_map(|gate| match before(gate).and_then(|condition| text(condition, "status")) {
            Some("True") => None,
            Some(status) => Some(format!("the status of pod readiness gate \"{gate}\" is \"{status}\"")),
            None => Some(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")),
        })
        .collect();
    if !closed.is_empty() {
        ready["status"] = "False".into();
        ready["reason"] = "ReadinessGatesNotReady".into();
        ready["message"] = closed.join(", ").into();
        // Since when, the member does not know.
        if let Some(object) = ready.as_object_mut() {
            object.remove("lastTransitionTime");
        }
    }
}

/// A transition is a change of status. Without one, its time stays, or every rebuilt pod would look like news.
fn keep_transition(condition: &mut Value, before: Option<&Value>) {
    let Some(before) = before else { return };
    if before.get("status") == condition.get("status")
        && let Some(time) = before.get("lastTransitionTime").filter(|time| !time.is_null())
    {
        condition["lastTransitionTime"] = time.clone();
    }
}
