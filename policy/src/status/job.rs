//! Jobs end: what is finished stays so.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Status, field, sums};
use crate::api::AggregatedStatusItem;

/// The condition of a type, if it holds.
fn condition<'a>(status: Option<&'a Value>, kind: &str) -> Option<&'a Value> {
    let conditions = status?.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn times<'a>(items: &'a [AggregatedStatusItem], name: &'a str) -> impl Iterator<Item = Timestamp> + 'a {
    items.iter().filter_map(move |item| field(item, name)?.as_str()?.parse().ok())
}

/// Failed as soon as one copy failed, complete when all are. A finished Job is not changed any more.
pub(super) fn job(template: &Value, items: &[AggregatedStatusItem]) -> Option<Value> {
    let old = template.get("status");
    if condition(old, "Complete").is_some() || condition(old, "Failed").is_some() {
        return None;
    }
    let old = old.and_then(Value::as_object).cloned().unwrap_or_default();
    let mut status = sums(old, items, &["active", "succeeded", "failed"]);
    let started: Vec<_> = times(items, "startTime").collect();
    if started.len() == items.len()
        && let Some(first) = started.iter().min()
    {
        status.insert("startTime".into(), json!(first.to_string()));
    }
    let failed: Vec<(&str, &Value)> = items
        .iter()
        .filter_map(|item| Some((item.cluster_name.as_str(), condition(item.status.as_ref(), "Failed")?)))
        .collect();
    let complete = items.iter().filter(|item| condition(item.status.as_ref(), "Complete").is_some()).count();
    if let Some((_, first)) = failed.first() {
        let clusters: Vec<_> = failed.iter().map(|(cluster, _)| *cluster).collect();
        let message = format!("Job failed in clusters {}", clusters.join(","));
        let time = first.get("lastTransitionTime").cloned().unwrap_or(Value::Null);
        // The API server takes a failed Job only with both.
        for kind in ["FailureTarget", "Failed"] {
            add(&mut status, kind, "JobFailed", &message, &time);
        }
    } else if !items.is_empty() && complete == items.len() {
        let last = times(items, "completionTime").max().map_or(Value::Null, |time| json!(time.to_string()));
        if !last.is_null() {
            status.insert("completionTime".into(), last.clone());
        }
        for kind in ["SuccessCriteriaMet", "Complete"] {
            add(&mut status, kind, "Completed", "Job completed", &last);
        }
    }
    Some(Value::Object(status))
}

fn add(status: &mut Status, kind: &str, reason: &str, message: &str, time: &Value) {
    let mut condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    if !time.is_null() {
        condition["lastTransitionTime"] = time.clone();
        condition["lastProbeTime"] = time.clone();
    }
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|old| old["type"] != kind);
        conditions.push(condition);
    }
}

/// The running Jobs of all copies, and the latest times.
pub(super) fn cron_job(mut status: Status, items: &[AggregatedStatusItem]) -> Status {
    let active: Vec<Value> =
        items.iter().filter_map(|item| field(item, "active")?.as_array()).flatten().cloned().collect();
    status.insert("active".into(), Value::Array(active));
    for name in ["lastScheduleTime", "lastSuccessfulTime"] {
        if let Some(last) = times(items, name).max() {
            status.insert(name.into(), json!(last.to_string()));
        }
    }
    status
}
