//! `federlet cordon`, `uncordon` and `drain`: what kubectl does to a node, under the names that people know.

mod drain;
mod drainable;

use anyhow::bail;
use clap::Args;
pub(crate) use drain::DrainArgs;
use federlet_provider::names::MemberName;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    host::{HostArgs, answered},
    output::say,
    progress::awaited,
};

/// The flags of `federlet cordon` and `federlet uncordon`.
#[derive(Debug, Args)]
pub(crate) struct CordonArgs {
    /// The names of Clusters.
    #[arg(required = true)]
    names: Vec<MemberName>,

    #[command(flatten)]
    host: HostArgs,
}

impl CordonArgs {
    /// Lets no new pods onto the nodes, or lets them again.
    pub(crate) async fn run(self, cordoned: bool) -> anyhow::Result<()> {
        let host = self.host.client().await?;
        let word = if cordoned { "cordoned" } else { "uncordoned" };
        for name in &self.names {
            let set = set_cordoned(&host, name.as_str(), cordoned);
            let changed = awaited("asking the host", set).await?;
            say!("node/{name} {}{word}", if changed { "" } else { "already " });
        }
        Ok(())
    }
}

/// Whether that was new.
pub(crate) async fn set_cordoned(host: &Client, name: &str, cordoned: bool) -> anyhow::Result<bool> {
    let nodes: Api<Node> = Api::all(host.clone());
    let says = |error: kube::Error| answered("the host", &error);
    let Some(node) = nodes.get_opt(name).await.map_err(says)? else {
        bail!("there is no node {name}: see `federlet get clusters`");
    };
    if node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false) == cordoned {
        return Ok(false);
    }
    let patch = json!({ "spec": { "unschedulable": if cordoned { Some(true) } else { None } } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(says)?;
    Ok(true)
}
