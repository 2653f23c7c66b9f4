use serde_json::{Value, json};

use crate::json::{items, list_mut, text};

/// The reason of a pod that nobody hears of.
const REASON: &str = "MemberUnreachable";

/// The status of a host pod while its member cannot be reached and its node stays Ready, as in a region whose link is
/// down: still Running, since it most likely is, but not Ready, so that Services send nobody there.
///
/// `now` is the time of the change, in RFC 3339. None if the status says so already, or says that the pod is over.
/// When the node itself becomes NotReady, the host's own controllers do this and more, and this is not needed.
pub fn unreachable(host: &Value, since: &str, now: &str) -> Option<Value> {
    let status = host.get("status")?;
    if matches!(text(status, "phase"), Some("Succeeded" | "Failed")) {
        return None;
    }
    let ready =
        |status: &Value| items(status.get("conditions")).find(|c| text(c, "type") == Some("Ready")).cloned();
    let before = ready(status);
    if before.as_ref().is_some_and(|ready| text(ready, "reason") == Some(REASON)) {
        return None;
    }
    let was_ready = before.as_ref().is_some_and(|ready| text(ready, "status") == Some("True"));
    // A pod that was not ready has a better reason for that than we do.
    if before.is_some() && !was_ready {
        return None;
    }
    let mut condition = json!({
        "type": "Ready",
        "status": "False",
        "reason": REASON,
        "message": format!("the member has not been heard of since {since}; the pod may well be running"),
        "lastTransitionTime": now,
    });
    if let Some(generation) = before.as_ref().and_then(|ready| ready.get("observedGeneration")) {
        condition["observedGeneration"] = generation.clone();
    }
    let mut status = status.clone();
    let conditions = list_mut(status.as_object_mut()?, "conditions");
    match conditions.iter_mut().find(|c| text(c, "type") == Some("Ready")) {
        Some(ready) => *ready = condition,
        None => conditions.push(condition),
    }
    Some(status)
}
