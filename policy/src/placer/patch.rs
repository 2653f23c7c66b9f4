//! What is written into pods.

use federlet_provider::{capacity::fit_expressions, fleet::FLEET_TAINT};
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Value, json};

use super::{plan::Pin, seen::SeenPod};
use crate::stamp::{DELETION_COST, GATE, NODE_LABEL};

/// What admission requires of the nodes of a gated pod; it can be tightened there.
const EXPRESSIONS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions";

/// The gate off, the node in, what it has to tolerate there, and the order in which it goes: one write, on exactly this pod,
/// and only while it is gated.
pub(super) fn pin_patch(pod: &SeenPod, pin: &Pin, fleet: Option<&str>, tolerations: &[Toleration]) -> Value {
    let gate = format!("/spec/schedulingGates/{}", pod.gate.unwrap_or_default());
    let mut patch = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": pod.uid }),
        json!({ "op": "test", "path": format!("{gate}/name"), "value": GATE }),
        json!({ "op": "remove", "path": gate }),
    ];
    patch.push(if pod.has_node_selector {
        let path = format!("/spec/nodeSelector/{}", escaped(NODE_LABEL));
        json!({ "op": "add", "path": path, "value": pin.cluster })
    } else {
        json!({ "op": "add", "path": "/spec/nodeSelector", "value": { NODE_LABEL: pin.cluster } })
    });
    let on_fleet = fleet == Some(pin.cluster.as_str());
    let of_fleet = json!({ "key": FLEET_TAINT, "operator": "Exists", "effect": "NoSchedule" });
    let tolerations: Vec<Value> =
        on_fleet.then_some(of_fleet).into_iter().chain(tolerations.iter().map(|one| json!(one))).collect();
    if pod.has_tolerations {
        let add = |one: Value| json!({ "op": "add", "path": "/spec/tolerations/-", "value": one });
        patch.extend(tolerations.into_iter().map(add));
    } else if !tolerations.is_empty() {
        patch.push(json!({ "op": "add", "path": "/spec/tolerations", "value": tolerations }));
    }
    if !on_fleet && pod.has_our_affinity && !pod.may_preempt {
        // A sum of machines with a little room each must not draw a pod that fits on none of them.
        let room = fit_expressions(&pod.requests).into_iter();
        patch
            .extend(room.map(|one| json!({ "op": "add", "path": format!("{EXPRESSIONS}/-"), "value": one })));
    }
    patch.extend(pin.cost.map(|cost| cost_operation(pod, cost)));
    Value::Array(patch)
}

pub(super) fn cost_patch(pod: &SeenPod, cost: i64) -> Value {
    json!([{ "op": "test", "path": "/metadata/uid", "value": pod.uid }, cost_operation(pod, cost)])
}

fn cost_operation(pod: &SeenPod, cost: i64) -> Value {
    if !pod.has_annotations {
        let value = json!({ DELETION_COST: cost.to_string() });
        return json!({ "op": "add", "path": "/metadata/annotations", "value": value });
    }
    let path = format!("/metadata/annotations/{}", escaped(DELETION_COST));
    json!({ "op": "add", "path": path, "value": cost.to_string() })
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pod_has_to_tolerate_is_added() {
        let toleration = json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"});
        let more: Vec<Toleration> = vec![serde_json::from_value(toleration.clone()).unwrap()];
        let fleet = json!({"key": FLEET_TAINT, "operator": "Exists", "effect": "NoSchedule"});
        let own = json!({"key": "own"});
        for (has, cluster, more, expected) in [
            (false, "m1", &[][..], Value::Null),
            (false, "m1", &more, json!([toleration])),
            (true, "m1", &more, json!([own, toleration])),
            (true, "fleet", &more, json!([own, fleet, toleration])),
            (false, "fleet", &[], json!([fleet])),
        ] {
            let mut pod = json!({"metadata": {"uid": "u"}, "spec": {"schedulingGates": [{"name": GATE}]}});
            if has {
                pod["spec"]["tolerations"] = json!([own]);
            }
            let seen = SeenPod { uid: "u".into(), gate: Some(0), has_tolerations: has, ..SeenPod::default() };
            let pin = Pin { pod: 0, cluster: cluster.into(), cost: None };
            let patch: json_patch::Patch =
                serde_json::from_value(pin_patch(&seen, &pin, Some("fleet"), more)).unwrap();
            json_patch::patch(&mut pod, &patch).unwrap();
            assert_eq!(pod["spec"]["tolerations"], expected, "{cluster}");
            assert_eq!(pod["spec"]["nodeSelector"], json!({NODE_LABEL: cluster}));
        }
    }
}
