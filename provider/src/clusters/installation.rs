//! What is nobody's but the installation's goes with it.

use std::time::Duration;

use k8s_openapi::api::{core::v1::Node, rbac::v1::ClusterRole};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::errors::brief;

/// The role of `federlet serve`. When it is gone nobody can act as a node any more, so whatever it owns stays gone.
const ROLE: &str = "federlet";

/// How often to look, and how soon again when something went wrong.
const EVERY: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(2);

/// Sees to it that a node goes when Federlet is uninstalled: no Cluster owns it. For as long as it is polled.
pub(super) async fn tie_to_installation(client: &Client, node: &str) {
    loop {
        let pause = match tie(client, node).await {
            Ok(true) => EVERY,
            Ok(false) => AGAIN,
            Err(error) => {
                tracing::debug!(node, error = brief(&error), "cannot be tied to the installation");
                EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// False if the node is not there yet.
async fn tie(client: &Client, node: &str) -> Result<bool, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(found) = nodes.get_metadata_opt(node).await? else { return Ok(false) };
    if found.owner_references().iter().any(|owner| owner.kind == "ClusterRole") {
        return Ok(true);
    }
    // Started by hand with an administrator's rights, there is no such role, and a person takes the node away.
    let Some(role) = Api::<ClusterRole>::all(client.clone()).get_metadata_opt(ROLE).await? else {
        return Ok(true);
    };
    let owner = json!({
        "apiVersion": ClusterRole::api_version(&()), "kind": ClusterRole::kind(&()), "name": ROLE,
        "uid": role.uid().unwrap_or_default(),
    });
    let patch = json!({ "metadata": { "uid": found.uid(), "ownerReferences": [owner] } });
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| true)
}
