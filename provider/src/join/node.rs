//! Whose a Node of the host is. A machine of the host that has the name of a Cluster is neither served nor touched.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt};

/// By this name the host remembers who registers our nodes.
const REGISTRAR: &str = "federlet-register";

/// Whether a Node is virtual, and not a machine. One that was registered a moment ago has no label yet: the process may
/// have ended in between.
pub fn is_virtual(node: &impl ResourceExt) -> bool {
    let is_labelled = node.labels().get("type").is_some_and(|kind| kind == "virtual-kubelet");
    is_labelled || node.managed_fields().iter().any(|said| said.manager.as_deref() == Some(REGISTRAR))
}

/// Whether the host has a machine of this name.
pub async fn is_machine(host: &Client, name: &str) -> Result<bool, kube::Error> {
    let nodes: Api<Node> = Api::all(host.clone());
    Ok(nodes.get_metadata_opt(name).await?.is_some_and(|node| !is_virtual(&node)))
}

/// What to tell somebody who chose the name of a machine.
pub fn name_taken(name: &str) -> String {
    format!("the host has a node {name} already: choose another name")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_machine_of_the_host_is_told_from_a_node_of_ours() {
        let cases: [(Value, bool); 5] = [
            (json!({"labels": {"type": "virtual-kubelet"}}), true),
            (json!({"managedFields": [{"manager": "federlet-register", "operation": "Update"}]}), true),
            (json!({"labels": {"type": "worker"}}), false),
            // Somebody cordoned it with a tool of ours.
            (json!({"managedFields": [{"manager": "kubelet"}, {"manager": "federlet"}]}), false),
            (json!({}), false),
        ];
        for (metadata, ours) in cases {
            let node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            assert_eq!(is_virtual(&node), ours, "{metadata}");
        }
    }
}
