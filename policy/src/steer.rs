//! What admission writes into a pod, so that it goes where its policy says.
//!
//! A pod is gated unless its cluster is certain: only the one who counts all pods of the workload can say where the next
//! one goes. While it is gated its affinity can be tightened and never loosened, so it begins as wide as it can be.

pub(crate) mod constraints;
pub(crate) mod room;

use federlet_provider::capacity::room_for;
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Map, Value, json};

use crate::{
    api::{Placement, PriorityClassSource, PropagationSpec},
    claim::PolicyKey,
    stamp::{self, GATE, NODE_LABEL, Workload},
};

/// How a pod gets to its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The placer decides.
    Gate,
    /// The policy can only ever mean this one.
    Only(String),
    /// A daemon set made it for this node, which is one that the policy means.
    Daemon(String),
}

/// What is to be written.
#[derive(Clone, Debug)]
pub struct Steering<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Its policy, for people to read.
    pub policy: &'a PolicyKey,
    /// What the policy says about clusters.
    pub placement: &'a Placement,
    /// The scheduler that the policy names, if it is not the usual one.
    pub scheduler: Option<&'a str>,
    /// The priority class that the policy names.
    pub priority_class: Option<&'a str>,
    /// What the nodes of clusters are tainted with.
    pub tolerations: &'a [Toleration],
    /// Whether it stays in a cluster that fails until the placer lets it go.
    pub waits: bool,
    /// How it gets there.
    pub way: Way,
}

/// The scheduler that a policy names, if it is not the usual one.
#[must_use]
pub fn scheduler(spec: &PropagationSpec) -> Option<&str> {
    Some(spec.scheduler_name.as_str())
        .filter(|name| !name.is_empty() && *name != PropagationSpec::DEFAULT_SCHEDULER)
}

/// The priority class that a policy gives to pods.
#[must_use]
pub fn priority_class(spec: &PropagationSpec) -> Option<&str> {
    let priority = spec.schedule_priority.as_ref()?;
    let named = priority.priority_class_source == PriorityClassSource::KubePriorityClass;
    Some(priority.priority_class_name.as_str()).filter(|name| named && !name.is_empty())
}

/// The one cluster that a placement can ever mean, whatever clusters there are.
#[must_use]
pub fn only_cluster(placement: &Placement) -> Option<&str> {
    let affinity = placement.cluster_affinity.as_ref()?;
    let mut named = affinity.cluster_names.iter().filter(|name| !affinity.exclude.contains(name));
    let first = named.next()?;
    named.all(|name| name == first).then_some(first)
}

/// The one cluster that a placement means, whatever that cluster is like: nothing else is asked of it.
#[must_use]
pub fn certain_cluster(placement: &Placement) -> Option<&str> {
    let affinity = placement.cluster_affinity.as_ref()?;
    let asks = affinity.label_selector.is_some()
        || affinity.field_selector.is_some()
        || placement.workload_affinity.is_some()
        || !placement.spread_constraints.is_empty();
    only_cluster(placement).filter(|_| !asks)
}

/// The node that a daemon set made a pod for.
#[must_use]
pub fn daemon_node(pod: &Value) -> Option<&str> {
    let terms = pod.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    )?;
    let field = terms.get(0)?.get("matchFields")?.get(0)?;
    let named = field.get("key").and_then(Value::as_str) == Some("metadata.name");
    field.get("values")?.get(0)?.as_str().filter(|_| named)
}

/// Writes it into the pod.
pub fn steer(pod: &mut Value, steering: &Steering<'_>) {
    let daemon = matches!(steering.way, Way::Daemon(_));
    if !daemon {
        constraints::move_away(pod);
    }
    mark(pod, steering);
    // Another priority is computed after us: whether it may push others aside, nobody knows yet.
    let room = if steering.priority_class.is_some() { vec![] } else { room_for(pod) };
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match &steering.way {
        Way::Gate => {
            let gates = list(spec, "schedulingGates");
            if !gates.iter().any(|gate| gate.get("name").and_then(Value::as_str) == Some(GATE)) {
                gates.push(json!({ "name": GATE }));
            }
            spec.insert("affinity".into(), require("type", "virtual-kubelet", vec![]));
        }
        Way::Only(cluster) => drop(spec.insert("affinity".into(), require(NODE_LABEL, cluster, room))),
        Way::Daemon(_) => {}
    }
    if let Some(scheduler) = steering.scheduler {
        spec.insert("schedulerName".into(), scheduler.into());
    }
    if let Some(class) = steering.priority_class
        && spec.get("priorityClassName").and_then(Value::as_str) != Some(class)
    {
        spec.insert("priorityClassName".into(), class.into());
        // The host computed these from another class, and does it again from this one.
        spec.remove("priority");
        spec.remove("preemptionPolicy");
    }
    let tolerations = list(spec, "tolerations");
    for toleration in steering.tolerations.iter().chain(&steering.placement.cluster_tolerations) {
        let toleration = json!(toleration);
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    if steering.waits {
        let own = std::mem::take(tolerations);
        // What has an end would end it, however long the others last.
        tolerations.extend(own.iter().filter(|one| one.get("tolerationSeconds").is_none()).cloned());
        tolerations.push(json!({ "operator": "Exists", "effect": "NoExecute" }));
        if let Some(metadata) = pod.as_object_mut().map(|pod| map(pod, "metadata")) {
            let own = Value::Array(own).to_string();
            map(metadata, "annotations").insert(federlet_provider::marks::TOLERATIONS.into(), own.into());
        }
    }
}

fn mark(pod: &mut Value, steering: &Steering<'_>) {
    let Some(metadata) = pod.as_object_mut().map(|pod| map(pod, "metadata")) else { return };
    map(metadata, "labels").insert(stamp::WORKLOAD.into(), steering.workload.label().into());
    let annotations = map(metadata, "annotations");
    annotations.insert(stamp::WORKLOAD.into(), json!(steering.workload).to_string().into());
    annotations.insert(stamp::POLICY.into(), steering.policy.to_string().into());
    if matches!(steering.way, Way::Daemon(_)) {
        annotations.insert(federlet_provider::marks::RUN_DAEMONSET.into(), "true".into());
    }
}

/// An affinity to nodes with this label that also meet what else is required.
fn require(label: &str, value: &str, more: Vec<Value>) -> Value {
    let mut all = vec![json!({ "key": label, "operator": "In", "values": [value] })];
    all.extend(more);
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": all }
    ] } } })
}

fn map<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = parent.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was just made one"),
    }
}

fn list<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let value = parent.entry(key).or_insert_with(|| json!([]));
    if !value.is_array() {
        *value = json!([]);
    }
    match value {
        Value::Array(list) => list,
        _ => unreachable!("it was just made one"),
    }
}

#[cfg(test)]
mod tests;
