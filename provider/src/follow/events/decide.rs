//! An Event about a member's pod, as the host should show it.

use federlet_node::contract::PodId;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    json::text,
    names::shortened,
    status::clean::{is_time, text as clean_text, word},
};

/// The longest message that API servers take for an Event.
const MESSAGE_LIMIT: usize = 1024;

/// The pod of the member that an Event is about: namespace, name and UID there.
pub(super) fn about(event: &Value) -> Option<(&str, &str, &str)> {
    let object = event.get("involvedObject").filter(|object| text(object, "kind") == Some("Pod"))?;
    Some((text(object, "namespace")?, text(object, "name")?, text(object, "uid")?))
}

/// Whether the place at which to go on hearing is of no use any more. A member that does not answer, or has too much to do,
/// still knows it.
pub(super) fn forgets(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if ![429, 500, 503].contains(&status.code))
}

/// The Event to write on the host. None if it says nothing.
pub(super) fn translated(event: &Value, pod: &PodId, node: &str) -> Option<Value> {
    let metadata = event.get("metadata")?;
    let uid = text(metadata, "uid")?;
    let reason = word(text(event, "reason")?);
    if reason.is_empty() {
        return None;
    }
    let (first, last) = times(event)?;
    let source = event.get("source").and_then(|source| text(source, "component"));
    let component = word(source.or_else(|| text(event, "reportingComponent")).unwrap_or("federlet"));
    let mut about = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": pod.key().namespace(), "name": pod.key().name(), "uid": pod.uid(),
    });
    if let Some(part) = event.get("involvedObject").and_then(|object| text(object, "fieldPath")) {
        about["fieldPath"] = clean_text(part).chars().take(256).collect::<String>().into();
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "namespace": pod.key().namespace(), "name": name(pod, uid) },
        "involvedObject": about,
        "type": if text(event, "type") == Some("Warning") { "Warning" } else { "Normal" },
        "reason": reason,
        "message": message(event),
        // Which part of the member said it, and through which node.
        "source": { "component": component, "host": node },
        "reportingComponent": component,
        "reportingInstance": node,
        "firstTimestamp": first,
        "lastTimestamp": last,
        "count": count(event),
    }))
}

/// What changes when the same Event happens again.
pub(super) fn repeated(translated: &Value) -> Value {
    let field = |name: &str| translated.get(name).cloned().unwrap_or_default();
    json!({ "count": field("count"), "lastTimestamp": field("lastTimestamp"), "message": field("message") })
}

/// The same Event of the member has the same name for ever, so that no restart tells it twice.
fn name(pod: &PodId, event_uid: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(pod.uid().as_bytes());
    hash.update([0]);
    hash.update(event_uid.as_bytes());
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{digest}", shortened(pod.key().name(), 200))
}

fn message(event: &Value) -> String {
    let mut message = clean_text(text(event, "message").or_else(|| text(event, "note")).unwrap_or_default());
    if message.len() > MESSAGE_LIMIT {
        let end =
            (0..=MESSAGE_LIMIT - '…'.len_utf8()).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

fn count(event: &Value) -> i64 {
    let series = event.pointer("/series/count").and_then(Value::as_i64);
    // The first one is not part of the series.
    event
        .get("count")
        .and_then(Value::as_i64)
        .or(series.map(|n| n + 1))
        .unwrap_or(1)
        .clamp(1, i64::from(i32::MAX))
}

/// When it happened first and last, by the member's clock.
fn times(event: &Value) -> Option<(String, String)> {
    let time = |at: &str| {
        let value = event.pointer(at).filter(|time| is_time(time))?.as_str()?;
        // Kubernetes' older Events know whole seconds only.
        Some(format!("{}Z", value.trim_end_matches('Z').split('.').next()?))
    };
    let begun = || {
        time("/firstTimestamp").or_else(|| time("/eventTime")).or_else(|| time("/metadata/creationTimestamp"))
    };
    let first = begun()?;
    let last =
        time("/lastTimestamp").or_else(|| time("/series/lastObservedTime")).unwrap_or_else(|| first.clone());
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use federlet_node::contract::PodKey;

    use super::*;

    fn pod() -> PodId {
        PodId::new(PodKey::new("shop", "web"), "u1")
    }

    fn event(changes: &Value) -> Value {
        let mut event = json!({
            "metadata": { "uid": "e1", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "involvedObject": { "kind": "Pod", "namespace": "shop-x", "name": "web", "uid": "m1", "fieldPath": "spec.containers{app}" },
            "type": "Warning", "reason": "BackOff", "message": "Back-off pulling image", "count": 3,
            "source": { "component": "kubelet", "host": "worker-1" },
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z",
        });
        for (field, value) in changes.as_object().into_iter().flatten() {
            event[field] = value.clone();
        }
        event
    }

    #[test]
    fn says_the_same_about_the_hosts_pod() {
        let event = event(&json!({}));
        assert_eq!(about(&event), Some(("shop-x", "web", "m1")));
        let there = translated(&event, &pod(), "member1").unwrap();
        let object = &there["involvedObject"];
        assert_eq!((&object["namespace"], &object["uid"]), (&json!("shop"), &json!("u1")));
        assert_eq!(object["fieldPath"], "spec.containers{app}");
        for field in ["type", "reason", "message", "count", "firstTimestamp", "lastTimestamp"] {
            assert_eq!(there[field], event[field], "{field}");
        }
        assert_eq!(there["source"], json!({ "component": "kubelet", "host": "member1" }));
    }

    #[test]
    fn the_same_event_has_the_same_name_and_another_has_another() {
        let name =
            |event: &Value, pod: &PodId| translated(event, pod, "n").unwrap()["metadata"]["name"].clone();
        let first = event(&json!({}));
        let again = event(&json!({ "count": 4, "lastTimestamp": "2026-01-01T00:02:00Z" }));
        assert_eq!(name(&first, &pod()), name(&again, &pod()));
        let other = event(&json!({ "metadata": { "uid": "e2" } }));
        assert_ne!(name(&first, &pod()), name(&other, &pod()));
        let next = PodId::new(PodKey::new("shop", "web"), "u2");
        assert_ne!(name(&first, &pod()), name(&first, &next));
        let repeated = repeated(&translated(&again, &pod(), "n").unwrap());
        assert_eq!(
            (&repeated["count"], &repeated["lastTimestamp"]),
            (&json!(4), &json!("2026-01-01T00:02:00Z"))
        );
    }

    #[test]
    fn what_happened_while_a_member_was_away_is_heard_when_it_is_back() {
        let answer = |code: u16| {
            let status = json!({ "code": code, "message": "", "reason": "", "status": "Failure" });
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        assert!(!forgets(&kube::Error::Service("connection refused".into())));
        for (code, expected) in
            [(410, true), (504, true), (403, true), (429, false), (500, false), (503, false)]
        {
            assert_eq!(forgets(&answer(code)), expected, "{code}");
        }
    }

    #[test]
    fn newer_events_count_in_a_series() {
        let newer = event(&json!({
            "count": null, "firstTimestamp": null, "lastTimestamp": null, "source": {}, "reportingComponent": "default-scheduler",
            "eventTime": "2026-01-01T00:00:00.123456Z",
            "series": { "count": 5, "lastObservedTime": "2026-01-01T00:05:00.000000Z" },
        }));
        let there = translated(&newer, &pod(), "n").unwrap();
        assert_eq!((&there["count"], &there["lastTimestamp"]), (&json!(6), &json!("2026-01-01T00:05:00Z")));
        assert_eq!(
            (&there["firstTimestamp"], &there["source"]["component"]),
            (&json!("2026-01-01T00:00:00Z"), &json!("default-scheduler"))
        );
    }

    #[test]
    fn what_a_member_says_is_bounded_and_text() {
        let wild = event(&json!({
            "message": format!("\u{1b}[31m{}", "ä".repeat(5000)), "reason": "Back Off\n", "type": "Terrible", "count": -7,
            "lastTimestamp": "tomorrow",
        }));
        let there = translated(&wild, &pod(), "n").unwrap();
        let message = there["message"].as_str().unwrap();
        assert!(message.len() <= MESSAGE_LIMIT && message.ends_with('…') && !message.contains('\u{1b}'));
        assert_eq!(
            (&there["reason"], &there["type"], &there["count"]),
            (&json!("BackOff"), &json!("Normal"), &json!(1))
        );
        for nothing in [json!({ "reason": "" }), json!({ "reason": null }), json!({ "metadata": {} })] {
            assert_eq!(translated(&event(&nothing), &pod(), "n"), None, "{nothing}");
        }
        for other in
            [json!({ "involvedObject": { "kind": "Node", "name": "x" } }), json!({ "involvedObject": null })]
        {
            assert_eq!(about(&event(&other)), None);
        }
    }
}
