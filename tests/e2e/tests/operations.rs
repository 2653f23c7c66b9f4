//! What operators do to a fleet, and what happens to it. Each test disturbs some of it, and holds that for itself.

#[path = "operations/crash.rs"]
mod crash;
#[path = "operations/drain.rs"]
mod drain;
#[path = "operations/edge.rs"]
mod edge;
#[path = "operations/outage.rs"]
mod outage;
#[path = "operations/restart.rs"]
mod restart;

use anyhow::{Result, ensure};
use federlet_e2e::SOON;
use federlet_sandbox::{Cluster, eventually};
use tokio::sync::Mutex;

/// Whoever disturbs the two members has this.
static MEMBERS: Mutex<()> = Mutex::const_new(());
/// Whoever disturbs the regions of the edge cluster has this, and takes it after the other.
static REGIONS: Mutex<()> = Mutex::const_new(());

async fn condition(host: &Cluster, node: &str, kind: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].status}}");
    host.kubectl_output(&["get", "node", node, "-o", &path]).await
}

async fn becomes(host: &Cluster, node: &str, kind: &str, status: &str) -> Result<()> {
    eventually(&format!("{node} says {kind}={status}"), 2 * SOON, async || {
        let found = condition(host, node, kind).await?;
        ensure!(found == status, "it says {found}");
        Ok(())
    })
    .await
}
