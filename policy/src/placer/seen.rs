//! A pod that a policy steers, as far as placing it needs.

use std::collections::BTreeMap;

use federlet_provider::{
    capacity::{Resources, may_preempt, requests},
    fleet::copies_well,
    marks,
    target::TAINT,
};
use k8s_openapi::api::core::v1::Toleration;
use serde_json::Value;

use super::{claims::claims, nodes::UNSCHEDULABLE};
use crate::{
    owners::Owner,
    stamp::{self, DELETION_COST, GATE, NODE_LABEL, Workload},
};

/// Labels by which controllers tell the templates of pods apart.
const TEMPLATES: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// What is known of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SeenPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Resource versions of one kind can be compared.
    pub(super) version: u64,
    pub(super) workload: Workload,
    pub(super) owner: Option<Owner>,
    /// Where our gate is in the list, while it is there.
    pub(super) gate: Option<usize>,
    pub(super) has_node_selector: bool,
    pub(super) has_annotations: bool,
    pub(super) has_tolerations: bool,
    /// Whether its affinity is the one that admission gave it.
    pub(super) has_our_affinity: bool,
    /// What it tolerates, if we and not the host drive it out of a cluster.
    pub(super) tolerations: Option<Vec<Toleration>>,
    /// What of its tolerations may matter for what people put on nodes; most pods have none of that kind.
    pub(super) tolerates: Vec<Toleration>,
    /// Whether it may push others aside.
    pub(super) may_preempt: bool,
    /// The cluster that it is pinned to or runs in.
    pub(super) cluster: Option<String>,
    /// Whether the host's scheduler has bound it.
    pub(super) bound: bool,
    /// What its deletion cost says.
    pub(super) cost: Option<i64>,
    pub(super) over: bool,
    pub(super) deleting: bool,
    pub(super) ready: bool,
    /// Why it is not Ready, in one word, if a container says.
    pub(super) unready: Option<String>,
    /// Whether its copies are well, by cluster, if it has any. Nobody can tell of some.
    pub(super) copies: BTreeMap<String, Option<bool>>,
    /// The claims that it uses.
    pub(super) claims: Vec<String>,
    /// The template that it was made from.
    pub(super) template: Option<String>,
    pub(super) ordinal: Option<u32>,
    pub(super) created: String,
    pub(super) requests: Resources,
}

/// Pods that are divided together: those of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) namespace: String,
    pub(super) uid: String,
}

impl SeenPod {
    /// Reads a pod; none if nobody marked it.
    pub(super) fn read(pod: &Value) -> Option<Self> {
        let workload = Workload::of(pod)?;
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let owner = Owner::of(pod);
        let name = text("/metadata/name");
        let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
        let selector = pod.pointer("/spec/nodeSelector");
        let node = || Some(text("/spec/nodeName")).filter(|node| !node.is_empty());
        let pinned = selector.and_then(|all| all.get(NODE_LABEL)?.as_str()).map(str::to_owned);
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let annotations = pod.pointer("/metadata/annotations").filter(|all| all.is_object());
        Some(Self {
            uid: text("/metadata/uid"),
            version: text("/metadata/resourceVersion").parse().unwrap_or(0),
            gate: gates.and_then(|gates| gates.iter().position(|gate| gate["name"] == GATE)),
            has_node_selector: selector.is_some_and(Value::is_object),
            has_annotations: annotations.is_some(),
            has_tolerations: pod.pointer("/spec/tolerations").is_some_and(Value::is_array),
            has_our_affinity: terms(pod).is_some_and(is_ours),
            tolerations: annotations
                .and_then(|all| serde_json::from_str(all.get(marks::TOLERATIONS)?.as_str()?).ok()),
            tolerates: tolerates(pod),
            may_preempt: may_preempt(pod),
            bound: node().is_some(),
            cluster: node().or(pinned).or_else(|| only(pod)),
            cost: annotations.and_then(|all| all.get(DELETION_COST)?.as_str()?.parse().ok()),
            over: matches!(text("/status/phase").as_str(), "Succeeded" | "Failed"),
            deleting: pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
            ready: conditions.is_some_and(|all| all.iter().any(is_ready)),
            unready: unready(pod),
            claims: claims(pod),
            copies: copies_well(&pod["status"]),
            template: TEMPLATES.iter().find_map(|label| Some(marks::label(pod, label)?.to_owned())),
            ordinal: stamp::ordinal(owner.as_ref(), &name),
            created: text("/metadata/creationTimestamp"),
            requests: requests(pod),
            namespace: text("/metadata/namespace"),
            name,
            workload,
            owner,
        })
    }

    /// With whom it is divided.
    pub(super) fn group(&self) -> Group {
        let uid = if self.workload.uid.is_empty() { &self.uid } else { &self.workload.uid };
        Group { namespace: self.namespace.clone(), uid: uid.clone() }
    }

    /// Each revision is divided on its own: it has an owner of its own.
    pub(super) fn revision(&self) -> &str {
        self.owner.as_ref().map_or("", |owner| &owner.uid)
    }

    /// Whether it takes part.
    pub(super) fn counts(&self) -> bool {
        !self.over && !self.deleting
    }

    /// Whether it is for us to say where it goes. A daemon set makes each of its pods for one node.
    pub(super) fn is_placed(&self) -> bool {
        !self.is_daemon() && (self.is_gated() || self.cluster.is_some())
    }

    /// Whether it was made for its node.
    pub(super) fn is_daemon(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet")
    }

    pub(super) fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    /// Its position.
    pub(super) fn position(&self) -> Option<u32> {
        self.cost.and_then(stamp::position)
    }

    /// Whether whoever made it takes away the one with the least cost first, and we may say which that is.
    pub(super) fn heeds_cost(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == "ReplicaSet")
            && self.cost.is_none_or(|cost| cost < 0)
    }

    /// Whether it comes back when it is taken away, and nobody counts it as a failure.
    pub(super) fn comes_back(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !matches!(owner.kind.as_str(), "Job" | "DaemonSet"))
    }
}

/// The tolerations that are not about how a node is, nor about ours.
fn tolerates(pod: &Value) -> Vec<Toleration> {
    let all = pod.pointer("/spec/tolerations").and_then(Value::as_array).into_iter().flatten();
    let matters = |toleration: &&Value| {
        let key = toleration.get("key").and_then(Value::as_str).unwrap_or_default();
        key == UNSCHEDULABLE || (key != TAINT && !key.starts_with("node.kubernetes.io/"))
    };
    all.filter(matters).filter_map(|toleration| serde_json::from_value(toleration.clone()).ok()).collect()
}

/// What the first container that waits, waits for.
fn unready(pod: &Value) -> Option<String> {
    let of = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let mut statuses = of("/status/initContainerStatuses").chain(of("/status/containerStatuses"));
    statuses.find_map(|status| Some(status.pointer("/state/waiting/reason")?.as_str()?.to_owned()))
}

fn terms(pod: &Value) -> Option<&Value> {
    pod.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    )
}

fn is_ours(terms: &Value) -> bool {
    let alone = terms.as_array().is_some_and(|all| all.len() == 1);
    alone && terms.pointer("/0/matchExpressions").is_some_and(Value::is_array)
}

/// The one node that its affinity names.
fn only(pod: &Value) -> Option<String> {
    let terms = terms(pod)?;
    let expression = terms.get(0)?.get("matchExpressions")?.get(0)?;
    let values = expression.get("values")?.as_array()?;
    let named = expression.get("key")?.as_str()? == NODE_LABEL && values.len() == 1;
    values.first()?.as_str().filter(|_| named).map(str::to_owned)
}
