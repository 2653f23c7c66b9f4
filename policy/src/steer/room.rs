//! Pods that no policy steers, and that tolerate the nodes of clusters: they go to such a node only while one of its machines
//! has room for them. The sum that the scheduler sees says nothing about that.

use federlet_provider::capacity::{room_for, room_label};
use serde_json::{Value, json};

use super::{list, map};

/// Says it in the affinity of a pod. False if there is nothing to say.
///
/// Nodes that say nothing of their machines, such as machines of the host, are open as before: each term of the affinity is
/// there twice, once for either kind of node.
pub(crate) fn ask_for_room(pod: &mut Value) -> bool {
    let room = room_for(pod);
    if room.is_empty() || made_for_a_node(pod) {
        return false;
    }
    let silent = json!({ "key": room_label("cpu"), "operator": "DoesNotExist" });
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return false };
    let affinity = map(map(spec, "affinity"), "nodeAffinity");
    let required = map(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    let terms = list(required, "nodeSelectorTerms");
    if terms.is_empty() {
        terms.push(json!({}));
    }
    let with = |term: &Value, more: &[Value]| {
        let mut term = term.as_object().cloned().unwrap_or_default();
        list(&mut term, "matchExpressions").extend_from_slice(more);
        Value::Object(term)
    };
    *terms = terms
        .iter()
        .flat_map(|term| [with(term, &room), with(term, std::slice::from_ref(&silent))])
        .collect();
    true
}

/// A daemon set makes each of its pods for one node, and none of them may wait for another.
fn made_for_a_node(pod: &Value) -> bool {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let by_daemon_set = owners.is_some_and(|all| all.iter().any(|owner| owner["kind"] == "DaemonSet"));
    by_daemon_set
        || pod.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: Value) -> Value {
        let mut pod = json!({"metadata": {}, "spec": {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}}}],
        }});
        pod["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        pod
    }

    fn terms(pod: &Value) -> &Value {
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    }

    #[test]
    fn a_cluster_needs_a_machine_with_room_and_other_nodes_need_nothing() {
        let mut plain = pod(json!({}));
        assert!(ask_for_room(&mut plain));
        let room = json!([
            {"key": "room.federlet.io/cpu", "operator": "Gt", "values": ["1999"]},
            {"key": "room.federlet.io/nvidia.com_gpu", "operator": "Gt", "values": ["0"]},
        ]);
        let silent = json!([{"key": "room.federlet.io/cpu", "operator": "DoesNotExist"}]);
        assert_eq!(terms(&plain), &json!([{"matchExpressions": room}, {"matchExpressions": silent}]));
    }

    #[test]
    fn what_the_user_requires_holds_in_each_case() {
        let (a, b) = (
            json!({"key": "a", "operator": "Exists"}),
            json!({"key": "metadata.name", "operator": "In", "values": ["n"]}),
        );
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [a]}, {"matchFields": [b]}]});
        let affinity = json!({"podAffinity": {}, "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let mut choosy = pod(json!({"affinity": affinity}));
        assert!(ask_for_room(&mut choosy));
        let terms = terms(&choosy).as_array().unwrap();
        assert_eq!(terms.len(), 4);
        assert!(terms[..2].iter().all(|term| term["matchExpressions"][0] == a));
        assert!(terms[2..].iter().all(|term| term["matchFields"][0] == b));
        assert!(choosy["spec"]["affinity"].get("podAffinity").is_some());
    }

    #[test]
    fn who_asks_for_nothing_or_is_made_for_a_node_stays_as_it_is() {
        let mut bound = pod(json!({"nodeName": "m1"}));
        assert!(!ask_for_room(&mut bound));
        let mut daemon = pod(json!({}));
        daemon["metadata"]["ownerReferences"] = json!([{"kind": "DaemonSet"}]);
        assert!(!ask_for_room(&mut daemon));
        let mut idle = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}]}});
        let before = idle.clone();
        assert!(!ask_for_room(&mut idle));
        assert_eq!(idle, before);
    }
}
