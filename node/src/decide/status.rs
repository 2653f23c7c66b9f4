use serde_json::{Map, Value, json};

use crate::contract::{Phase, Pod};

/// Status fields that other parties of the host write. What the provider says about them is about its own pod.
const FOREIGN: [&str; 4] =
    ["qosClass", "nominatedNodeName", "resourceClaimStatuses", "extendedResourceClaimStatus"];

/// Status fields that a kubelet writes and also takes back. `startTime` is not among them: once said, it stays.
const TAKEN_BACK: [&str; 11] = [
    "reason",
    "message",
    "podIP",
    "podIPs",
    "hostIP",
    "hostIPs",
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
    "resize",
    "resources",
];

/// Conditions that a kubelet writes and also takes back.
const KUBELET_CONDITIONS: [&str; 6] = [
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
    "PodResizePending",
    "PodResizeInProgress",
];

const CONTAINER_STATUSES: [&str; 3] =
    ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// The smallest strategic merge patch that makes the host's status say what the provider reports, or none.
///
/// It touches only what a kubelet owns: conditions of others, the QoS class (immutable), the scheduler's and the
/// claim controller's fields stay as the host has them. It names the UID, so it can never land on another pod of
/// the same name. `observed` is the generation that the provider has accepted; whoever runs the pod may be behind that.
pub fn status_patch(host: &Pod, reported: &Value, observed: Option<i64>) -> Option<Value> {
    let reported = reported.as_object().filter(|fields| !fields.is_empty())?;
    let nothing = Map::new();
    let current = host.status().as_object().unwrap_or(&nothing);
    // A phase that is final stays, whatever is heard later.
    let phase = Phase::of(host.status());
    if phase.is_terminal() && reported.get("phase").and_then(Value::as_str) != Some(phase.as_str()) {
        return None;
    }
    let generation = host.generation().and(observed).map(|accepted| {
        let number = |status: &Map<String, Value>| status.get("observedGeneration").and_then(Value::as_i64);
        let acted_upon = number(reported).map_or(accepted, |reported| reported.min(accepted));
        // What was seen once was seen.
        number(current).map_or(acted_upon, |before| acted_upon.max(before))
    });
    let wanted = wanted(host, current, reported, generation);
    let mut patch = Map::new();
    for (field, value) in &wanted {
        if !same(current.get(field), Some(value)) {
            patch.insert(field.clone(), for_patch(field, value));
        }
    }
    for field in TAKEN_BACK {
        if current.get(field).is_some_and(|v| !v.is_null()) && !wanted.contains_key(field) {
            patch.insert(field.to_owned(), Value::Null);
        }
    }
    let conditions = condition_changes(host, current, reported, generation);
    if !conditions.is_empty() {
        patch.insert("conditions".into(), conditions.into());
    }
    if patch.is_empty() {
        return None;
    }
    Some(json!({ "metadata": { "uid": host.uid() }, "status": patch }))
}

/// The fields of the status, without conditions, as they should be.
fn wanted(
    host: &Pod,
    current: &Map<String, Value>,
    reported: &Map<String, Value>,
    generation: Option<i64>,
) -> Map<String, Value> {
    let mut wanted: Map<String, Value> = reported
        .iter()
        .filter(|(field, value)| {
            !FOREIGN.contains(&field.as_str())
                && !["conditions", "observedGeneration"].contains(&field.as_str())
                && !value.is_null()
        })
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    if let Some(start) = current.get("startTime").filter(|t| !t.is_null()) {
        wanted.insert("startTime".into(), start.clone());
    }
    if let (Some(ip), None) = (wanted.get("podIP").cloned(), wanted.get("podIPs")) {
        wanted.insert("podIPs".into(), json!([{ "ip": ip }]));
    }
    for field in CONTAINER_STATUSES {
        if let Some(Value::Array(statuses)) = wanted.get_mut(field) {
            // Containers that admission added over there are not of this pod, or READY would count them.
            statuses.retain(|s| {
                s.get("name").and_then(Value::as_str).is_some_and(|name| host.has_container(name))
            });
            for status in statuses.iter_mut() {
                keep_restarts(status, current.get(field));
            }
            if statuses.is_empty() {
                wanted.remove(field);
            }
        }
    }
    if let Some(generation) = generation {
        wanted.insert("observedGeneration".into(), generation.into());
    }
    wanted
}

/// A restart count never falls, also when the provider began to count anew.
fn keep_restarts(status: &mut Value, current: Option<&Value>) {
    let known =
        current.and_then(Value::as_array).into_iter().flatten().find(|c| c.get("name") == status.get("name"));
    let known = known.and_then(|c| c.get("restartCount")).and_then(Value::as_u64).unwrap_or(0);
    if status.get("restartCount").and_then(Value::as_u64).unwrap_or(0) < known {
        status["restartCount"] = known.into();
    }
}

/// Addresses are merged by `ip` in a strategic patch unless it says that the list is whole.
fn for_patch(field: &str, value: &Value) -> Value {
    match (field, value) {
        ("podIPs" | "hostIPs", Value::Array(list)) => {
            list.iter().cloned().chain([json!({ "$patch": "replace" })]).collect()
        }
        _ => value.clone(),
    }
}

/// Whether two values say the same. The API server leaves out what is empty, and a provider may not.
fn same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            one.iter().all(|(key, value)| same(Some(value), other.get(key)))
                && other.iter().all(|(key, value)| one.contains_key(key) || same(None, Some(value)))
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            one.iter().zip(other).all(|(one, other)| same(Some(one), Some(other)))
        }
        (one, other) => one == other || (is_empty(one) && is_empty(other)),
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.values().all(|value| is_empty(Some(value))),
        Some(Value::Bool(_) | Value::Number(_)) => false,
    }
}

fn condition_changes(
    host: &Pod,
    current: &Map<String, Value>,
    reported: &Map<String, Value>,
    generation: Option<i64>,
) -> Vec<Value> {
    let current = conditions(current);
    let gates: Vec<&str> = host
        .spec()
        .get("readinessGates")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|gate| gate.get("conditionType")?.as_str())
        .collect();
    let mut said = Vec::new();
    let mut changes = Vec::new();
    for condition in conditions(reported) {
        let Some(kind) = type_of(condition) else { continue };
        // Whether it was scheduled the host's scheduler knows; gates are opened by whoever set them up.
        if kind == "PodScheduled" || gates.contains(&kind) || said.contains(&kind) {
            continue;
        }
        said.push(kind);
        let mut wanted = condition.clone();
        if kind == "Ready" {
            hold_at_gates(&mut wanted, &gates, &current);
        }
        let known = current.iter().find(|c| type_of(c) == Some(kind)).copied();
        settle(&mut wanted, known, generation);
        if known != Some(&wanted) {
            changes.push(wanted);
        }
    }
    for kind in KUBELET_CONDITIONS {
        if !said.contains(&kind) && current.iter().any(|c| type_of(c) == Some(kind)) {
            changes.push(json!({ "type": kind, "$patch": "delete" }));
        }
    }
    changes
}

/// A pod with readiness gates is Ready only when the host's conditions say so for each.
fn hold_at_gates(ready: &mut Value, gates: &[&str], current: &[&Value]) {
    let open = |gate: &str| current.iter().any(|c| type_of(c) == Some(gate) && c["status"] == "True");
    let closed: Vec<&str> = gates.iter().copied().filter(|gate| !open(gate)).collect();
    if ready["status"] == "True" && !closed.is_empty() {
        ready["status"] = "False".into();
        ready["reason"] = "ReadinessGatesNotReady".into();
        ready["message"] =
            format!("corresponding condition of pod readiness gate {closed:?} is not True").into();
    }
}

/// Brings a condition into the form in which the host keeps it, so that only a real change looks like one.
fn settle(wanted: &mut Value, known: Option<&Value>, generation: Option<i64>) {
    let Some(fields) = wanted.as_object_mut() else {
        return;
    };
    // The API server stores an unset probe time as null. It drops a generation if it knows none for pods, and the
    // provider's generation is that of another object anyway.
    fields.entry("lastProbeTime").or_insert(Value::Null);
    fields.remove("observedGeneration");
    // Without one to say, what the host was told before holds: after a restart nobody knows it of a pod that has ended.
    let generation = generation.map(Value::from).or_else(|| known?.get("observedGeneration").cloned());
    if let Some(generation) = generation {
        fields.insert("observedGeneration".into(), generation);
    }
    for field in ["reason", "message"] {
        if fields.get(field).is_some_and(|text| text.is_null() || text == "") {
            fields.remove(field);
        }
    }
    let Some(known) = known.and_then(Value::as_object) else {
        return;
    };
    if known.get("status") == fields.get("status") {
        if let Some(since) = known.get("lastTransitionTime") {
            fields.insert("lastTransitionTime".into(), since.clone());
        }
        if let Some(probed) = known.get("lastProbeTime") {
            fields.insert("lastProbeTime".into(), probed.clone());
        }
    }
    // Merging cannot take a field away by leaving it out.
    for field in ["reason", "message"] {
        if known.contains_key(field) && !fields.contains_key(field) {
            fields.insert(field.into(), Value::Null);
        }
    }
}

fn conditions(status: &Map<String, Value>) -> Vec<&Value> {
    status.get("conditions").and_then(Value::as_array).into_iter().flatten().collect()
}

fn type_of(condition: &Value) -> Option<&str> {
    condition.get("type")?.as_str()
}

#[cfg(test)]
mod tests;
