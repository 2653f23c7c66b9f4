//! What admission writes into a pod, so that it goes where its policy says.
//!
//! A pod is gated unless its cluster is certain: only the one who counts all pods of the workload can say where the next
//! one goes. While it is gated its affinity can be tightened and never loosened, so it begins as wide as it can be.

pub(crate) mod constraints;

use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Map, Value, json};

use crate::{
    api::{Placement, PropagationSpec},
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
    /// What the nodes of clusters are tainted with.
    pub tolerations: &'a [Toleration],
    /// How it gets there.
    pub way: Way,
}

/// The scheduler that a policy names, if it is not the usual one.
#[must_use]
pub fn scheduler(spec: &PropagationSpec) -> Option<&str> {
    Some(spec.scheduler_name.as_str())
        .filter(|name| !name.is_empty() && *name != PropagationSpec::DEFAULT_SCHEDULER)
}

/// The one cluster that a placement can ever mean, whatever clusters there are.
#[must_use]
pub fn only_cluster(placement: &Placement) -> Option<&str> {
    let affinity = placement.cluster_affinity.as_ref()?;
    let mut named = affinity.cluster_names.iter().filter(|name| !affinity.exclude.contains(name));
    let first = named.next()?;
    named.all(|name| name == first).then_some(first)
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
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match &steering.way {
        Way::Gate => {
            let gates = list(spec, "schedulingGates");
            if !gates.iter().any(|gate| gate.get("name").and_then(Value::as_str) == Some(GATE)) {
                gates.push(json!({ "name": GATE }));
            }
            spec.insert("affinity".into(), require("type", &["virtual-kubelet"]));
        }
        Way::Only(cluster) => drop(spec.insert("affinity".into(), require(NODE_LABEL, &[cluster]))),
        Way::Daemon(_) => {}
    }
    if let Some(scheduler) = steering.scheduler {
        spec.insert("schedulerName".into(), scheduler.into());
    }
    let tolerations = list(spec, "tolerations");
    for toleration in steering.tolerations.iter().chain(&steering.placement.cluster_tolerations) {
        let toleration = json!(toleration);
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
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

fn require(label: &str, values: &[&str]) -> Value {
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": label, "operator": "In", "values": values }] }
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
