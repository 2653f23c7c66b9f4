use serde_json::{Value, json};

use super::clean;
use crate::json::{Object, items, items_mut, text};

/// The reason if the member gave none.
const DELETED: &str = "MemberPodDeleted";

/// What kubelets say of a container whose end nobody saw.
const UNKNOWN_END: (&str, i64) = ("ContainerStatusUnknown", 137);

/// The last status of a host pod whose pod in the member is gone for good, without the host having asked.
///
/// `last` is the status as it was last mirrored by [`status`](super::status()), and `member` the member pod as it was
/// last seen. Ended with the member's own reason, the host pod is replaced by its controller: an eviction there is an
/// eviction here. A pod that had ended well before it was cleared away has still ended well.
pub fn ended(last: &Value, member: Option<&Value>, now: &str) -> Value {
    let nothing = Object::new();
    let mut status = last.as_object().unwrap_or(&nothing).clone();
    if matches!(super::phase(&status), "Succeeded" | "Failed") {
        return Value::Object(status);
    }
    let (reason, message) = cause(member);
    status.insert("phase".into(), "Failed".into());
    status.insert("reason".into(), clean::word(&reason).into());
    status.insert("message".into(), clean::text(&message).into());
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for container in items_mut(status.get_mut(list)).filter_map(Value::as_object_mut) {
            end(container);
        }
    }
    for condition in items_mut(status.get_mut("conditions")) {
        let live = matches!(text(condition, "type"), Some("Ready" | "ContainersReady"));
        if live && text(condition, "status") == Some("True") {
            condition["status"] = "False".into();
            condition["reason"] = "PodFailed".into();
            condition["lastTransitionTime"] = now.into();
        }
    }
    Value::Object(status)
}

/// Why the member ended it: its own reason, or the one of the disruption that it announced.
fn cause(member: Option<&Value>) -> (String, String) {
    let default = || "the pod was deleted in the member".to_owned();
    let Some(status) = member.and_then(|member| member.get("status")) else {
        return (DELETED.to_owned(), default());
    };
    let disruption = items(status.get("conditions"))
        .find(|c| text(c, "type") == Some("DisruptionTarget") && text(c, "status") == Some("True"));
    let said =
        |field| text(status, field).or_else(|| disruption.and_then(|condition| text(condition, field)));
    (said("reason").unwrap_or(DELETED).to_owned(), said("message").map_or_else(default, str::to_owned))
}

fn end(container: &mut Object) {
    container.insert("ready".into(), false.into());
    if container.contains_key("started") {
        container.insert("started".into(), false.into());
    }
    let state = container.get("state").cloned().unwrap_or_default();
    if state.get("terminated").is_none() {
        let (reason, code) = UNKNOWN_END;
        let message = "the container could not be found when the pod was gone";
        let ended = json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } });
        container.insert("state".into(), ended);
    }
}
