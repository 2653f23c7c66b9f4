use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::contract::{Phase, Pod};

/// The exit code of a container that was killed, or of which nobody knows how it ended.
const KILLED: i64 = 137;

/// The status of a pod that is over though the provider did not say how: what is known, made final.
///
/// Containers that had ended keep their result; the others count as killed. Succeeded only if every container ended
/// well, else Failed.
pub fn end_status(host: &Pod, reason: &str, message: &str, now: Timestamp) -> Value {
    let mut status = host.status().as_object().cloned().unwrap_or_default();
    let mut all_well = true;
    let mut any = false;
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if container.pointer("/state/terminated").is_none() {
                container["state"] = json!({"terminated": {
                    "exitCode": KILLED, "reason": reason, "message": message,
                    "startedAt": null, "finishedAt": null,
                }});
            }
            if list == "containerStatuses" {
                any = true;
                all_well &=
                    container.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0);
            }
            container["ready"] = false.into();
            container["started"] = false.into();
        }
    }
    let phase = if any && all_well { Phase::Succeeded } else { Phase::Failed };
    if phase == Phase::Failed {
        status.insert("reason".into(), reason.into());
        status.insert("message".into(), message.into());
    }
    status.insert("phase".into(), phase.as_str().into());
    let why = if phase == Phase::Failed { "PodFailed" } else { "PodCompleted" };
    for kind in ["Ready", "ContainersReady"] {
        set_condition(&mut status, kind, why, now);
    }
    Value::Object(status)
}

/// The status of a pod that cannot start for now: Pending as it is, and why.
///
/// It carries no `startTime`, by which one knows later that nothing of it ever ran.
pub fn waiting_status(host: &Pod, reason: &str, message: &str) -> Value {
    let mut status = host.status().as_object().cloned().unwrap_or_default();
    status.entry("phase").or_insert("Pending".into());
    status.insert("reason".into(), reason.into());
    status.insert("message".into(), message.into());
    Value::Object(status)
}

/// A strategic merge patch by which a pod that is Ready is so no more, because its node is not; none if it is not Ready.
pub fn unready_patch(host: &Pod, now: Timestamp) -> Option<Value> {
    let conditions = host.status().get("conditions").and_then(Value::as_array)?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
    if ready["status"] != "True" || host.phase().is_terminal() {
        return None;
    }
    let unready = json!({"type": "Ready", "status": "False", "reason": "NodeNotReady",
                         "message": "the provider of the node does not answer",
                         "lastTransitionTime": seconds(now)});
    Some(json!({"metadata": {"uid": host.uid()}, "status": {"conditions": [unready]}}))
}

fn set_condition(status: &mut Map<String, Value>, kind: &str, reason: &str, now: Timestamp) {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    let known = list.iter().position(|c| c["type"] == kind);
    let mut condition = json!({"type": kind, "status": "False", "reason": reason});
    let since =
        known.map(|i| &list[i]).filter(|c| c["status"] == "False").map(|c| c["lastTransitionTime"].clone());
    condition["lastTransitionTime"] = since.unwrap_or_else(|| seconds(now).into());
    match known {
        Some(i) => list[i] = condition,
        None => list.push(condition),
    }
}

/// A time as the API server writes it: whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "JSON literals read better without a reference")]
mod tests {
    use super::*;

    fn pod(status: Value) -> Pod {
        let metadata = json!({"namespace": "n", "name": "p", "uid": "u"});
        Pod::try_from(json!({"metadata": metadata, "status": status})).unwrap()
    }

    #[test]
    fn what_ran_counts_as_killed_and_what_ended_keeps_its_result() {
        let host = pod(json!({"phase": "Running", "containerStatuses": [
            {"name": "a", "ready": true, "state": {"running": {}}},
            {"name": "b", "ready": false, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}));
        let end = end_status(&host, "PodLost", "gone", Timestamp::UNIX_EPOCH);
        assert_eq!(end["phase"], "Failed");
        assert_eq!(end["reason"], "PodLost");
        assert_eq!(end["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
        assert_eq!(end["containerStatuses"][0]["ready"], false);
        assert_eq!(end["containerStatuses"][1]["state"]["terminated"]["reason"], "Completed");
        assert_eq!(end["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn only_a_pod_that_is_ready_can_cease_to_be() {
        let with = |phase: &str, ready: &str| {
            pod(json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}))
        };
        let patch = unready_patch(&with("Running", "True"), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["status"]["conditions"][0]["status"], "False");
        for other in [with("Running", "False"), with("Succeeded", "True"), pod(json!({}))] {
            assert_eq!(unready_patch(&other, Timestamp::UNIX_EPOCH), None);
        }
    }

    #[test]
    fn a_pod_whose_containers_all_ended_well_succeeded() {
        let host = pod(json!({"phase": "Running", "containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 0}}}]}));
        let end = end_status(&host, "PodLost", "gone", Timestamp::UNIX_EPOCH);
        assert_eq!((&end["phase"], end.get("reason")), (&json!("Succeeded"), None));
        // Nothing known is not success.
        assert_eq!(end_status(&pod(json!({})), "r", "m", Timestamp::UNIX_EPOCH)["phase"], "Failed");
    }
}
