use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::clean;
use crate::json::{Object, items, list_mut, text};

/// Which statuses belong to which containers.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// Keeps the statuses of containers that the host pod has, in its order. What the member's webhooks injected is not
/// part of the pod: READY would say 2/1.
pub(super) fn rewrite(status: &mut Object, host: &Value, current: &Object) {
    for (list, containers) in LISTS {
        let Some(Value::Array(reported)) = status.remove(list) else { continue };
        let mut reported: BTreeMap<String, Value> = reported
            .into_iter()
            .filter_map(|status| Some((text(&status, "name")?.to_owned(), status)))
            .collect();
        let mut kept = vec![];
        for container in items(host.pointer(&format!("/spec/{containers}"))) {
            let Some(mut status) = text(container, "name").and_then(|name| reported.remove(name)) else {
                continue;
            };
            let before =
                items(current.get(list)).find(|before| text(before, "name") == text(container, "name"));
            tidy(&mut status);
            if let Some(before) = before {
                if before_is_final(before, &status, host, container) {
                    status = before.clone();
                }
                keep_restarts(&mut status, before);
            }
            kept.push(status);
        }
        if !kept.is_empty() {
            list_mut(status, list).append(&mut kept);
        }
    }
}

/// What the API server demands of a container status.
fn tidy(status: &mut Value) {
    let Some(status) = status.as_object_mut() else { return };
    for field in ["state", "lastState"] {
        match status.get_mut(field).and_then(Value::as_object_mut) {
            Some(state) => tidy_state(state),
            None => drop(status.remove(field)),
        }
    }
    let restarts = status.get("restartCount").and_then(Value::as_i64).unwrap_or(0).max(0);
    status.insert("restartCount".into(), restarts.into());
    let ready = status.get("ready").and_then(Value::as_bool).unwrap_or(false);
    status.insert("ready".into(), ready.into());
    for field in ["image", "imageID"] {
        if !status.get(field).is_some_and(Value::is_string) {
            status.insert(field.to_owned(), "".into());
        }
    }
    // Devices by the member's names: the host knows none of them.
    status.remove("allocatedResourcesStatus");
}

/// One state at most, with well-formed times.
fn tidy_state(state: &mut Object) {
    let chosen = ["terminated", "running", "waiting"]
        .into_iter()
        .find(|kind| state.get(*kind).is_some_and(Value::is_object));
    state.retain(|kind, _| Some(kind.as_str()) == chosen);
    for detail in state.values_mut().filter_map(Value::as_object_mut) {
        for time in ["startedAt", "finishedAt"] {
            if detail.get(time).is_some_and(|time| !clean::is_time(time)) {
                detail.remove(time);
            }
        }
        if let Some(Value::String(reason)) = detail.get_mut("reason") {
            *reason = clean::word(reason);
        }
    }
    if let Some(ended) = state.get_mut("terminated")
        && !ended.get("exitCode").is_some_and(Value::is_i64)
    {
        ended["exitCode"] = json!(0);
    }
}

/// Whether the host has seen this container end for good. A status that says otherwise is of a pod that was built
/// anew, and the API server would reject it.
fn before_is_final(before: &Value, now: &Value, host: &Value, container: &Value) -> bool {
    let Some(ended) = before.pointer("/state/terminated") else { return false };
    if now.pointer("/state/terminated").is_some() {
        return false;
    }
    // By a rule any exit may be no end, and one of another container may begin all of them again.
    let ruled = |containers: &str| {
        items(host.pointer(containers))
            .any(|container| items(container.get("restartPolicyRules")).next().is_some())
    };
    if ruled("/spec/containers") || ruled("/spec/initContainers") {
        return false;
    }
    let policy = text(container, "restartPolicy")
        .or_else(|| host.pointer("/spec/restartPolicy").and_then(Value::as_str))
        .unwrap_or("Always");
    match policy {
        "Never" => true,
        "OnFailure" => ended.get("exitCode").and_then(Value::as_i64) == Some(0),
        _ => false,
    }
}

/// A pod that was built anew in the member starts to count again; on the host it is still the same pod.
fn keep_restarts(status: &mut Value, before: &Value) {
    let count = |status: &Value| status.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
    if count(before) > count(status)
        && let Some(status) = status.as_object_mut()
    {
        status.insert("restartCount".into(), count(before).into());
    }
}
