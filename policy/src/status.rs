//! One status for an object that is in many clusters.

mod job;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::api::AggregatedStatusItem;

/// The status of a member's object, with what is needed to know whether it is about the present template.
#[must_use]
pub fn reflect(object: &Value, template_generation: i64) -> Option<Value> {
    let mut status = object.get("status")?.clone();
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    if let (Some(map), Some(generation)) = (status.as_object_mut(), generation) {
        map.insert("generation".into(), json!(generation));
        map.insert("resourceTemplateGeneration".into(), json!(template_generation));
    }
    Some(status)
}

/// The status of the template, from those of its copies. `None` if the kind has no such rule, or nothing is to
/// be changed.
#[must_use]
pub fn aggregate(template: &Value, items: &[AggregatedStatusItem]) -> Option<Value> {
    let text = |pointer: &str| template.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let old = template.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let status = match (text("/apiVersion"), text("/kind")) {
        ("apps/v1", "Deployment") => counted(template, old, items, &DEPLOYMENT),
        ("apps/v1", "ReplicaSet") => counted(template, old, items, &REPLICA_SET),
        ("apps/v1", "StatefulSet") => counted(template, old, items, &STATEFUL_SET),
        ("apps/v1", "DaemonSet") => counted(template, old, items, &DAEMON_SET),
        ("batch/v1", "Job") => return job::job(template, items),
        ("batch/v1", "CronJob") => job::cron_job(old, items),
        ("v1", "Pod") => pod(old, items)?,
        ("v1", "Service") if text("/spec/type") == "LoadBalancer" => ingress(old, items),
        ("networking.k8s.io/v1", "Ingress") => ingress(old, items),
        ("v1", "PersistentVolumeClaim") => phase(old, items, &["Lost", "Pending", "Bound"])?,
        ("v1", "PersistentVolume") => {
            phase(old, items, &["Failed", "Pending", "Available", "Bound", "Released"])?
        }
        ("policy/v1", "PodDisruptionBudget") => budget(old, items),
        ("autoscaling/v2" | "autoscaling/v1", "HorizontalPodAutoscaler") => {
            sums(old, items, &["currentReplicas", "desiredReplicas"])
        }
        _ => return None,
    };
    Some(Value::Object(status))
}

const DEPLOYMENT: [&str; 5] =
    ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "unavailableReplicas"];
const REPLICA_SET: [&str; 4] = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
const STATEFUL_SET: [&str; 5] =
    ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
const DAEMON_SET: [&str; 7] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
];

type Status = Map<String, Value>;

/// A field of the status of a copy.
fn field<'a>(item: &'a AggregatedStatusItem, name: &str) -> Option<&'a Value> {
    item.status.as_ref()?.get(name)
}

fn sums(mut status: Status, items: &[AggregatedStatusItem], fields: &[&str]) -> Status {
    for name in fields {
        let sum = items.iter().filter_map(|item| field(item, name)?.as_i64()).fold(0, i64::saturating_add);
        status.insert((*name).to_owned(), json!(sum));
    }
    status
}

/// Sums counters. The template's generation counts as observed once every copy is of it and has observed it.
fn counted(template: &Value, old: Status, items: &[AggregatedStatusItem], fields: &[&str]) -> Status {
    let mut status = sums(old, items, fields);
    let generation = template.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    let observed = items.iter().all(|item| {
        let number = |name: &str| field(item, name).and_then(Value::as_i64);
        number("resourceTemplateGeneration") == Some(generation)
            && number("observedGeneration")
                .zip(number("generation"))
                .is_some_and(|(observed, own)| observed >= own)
    });
    if observed {
        status.insert("observedGeneration".into(), json!(generation));
    }
    status
}

/// The first phase of `order` that a copy is in; a copy whose status is not known is pending.
fn phase(mut status: Status, items: &[AggregatedStatusItem], order: &[&str]) -> Option<Status> {
    let phases: BTreeSet<&str> =
        items.iter().map(|item| field(item, "phase").and_then(Value::as_str).unwrap_or("Pending")).collect();
    let phase = order.iter().find(|phase| phases.contains(*phase))?;
    status.insert("phase".into(), json!(phase));
    Some(status)
}

fn pod(status: Status, items: &[AggregatedStatusItem]) -> Option<Status> {
    let mut status = phase(status, items, &["Failed", "Pending", "Unknown", "Running", "Succeeded"])?;
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        let all: Vec<Value> =
            items.iter().filter_map(|item| field(item, list)?.as_array()).flatten().cloned().collect();
        if !all.is_empty() {
            status.insert(list.into(), Value::Array(all));
        }
    }
    Some(status)
}

/// All entries of the copies' load balancers, each once, sorted.
fn ingress(mut status: Status, items: &[AggregatedStatusItem]) -> Status {
    let lists = items.iter().filter_map(|item| field(item, "loadBalancer")?.get("ingress")?.as_array());
    let text =
        |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut all: Vec<Value> = lists.flatten().cloned().collect();
    all.sort_by_key(|entry| (text(entry, "ip"), text(entry, "hostname"), entry.to_string()));
    all.dedup();
    status.insert("loadBalancer".into(), if all.is_empty() { json!({}) } else { json!({ "ingress": all }) });
    status
}

fn budget(status: Status, items: &[AggregatedStatusItem]) -> Status {
    let counters = ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"];
    let mut status = sums(status, items, &counters);
    let mut disrupted = Map::new();
    for item in items {
        for (pod, time) in field(item, "disruptedPods").and_then(Value::as_object).into_iter().flatten() {
            disrupted.insert(format!("{}/{pod}", item.cluster_name), time.clone());
        }
    }
    status.insert("disruptedPods".into(), Value::Object(disrupted));
    status
}

#[cfg(test)]
mod tests;
