//! The Node object and those who share it.

use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_e2e::SOON;
use federlet_sandbox::{Sandbox, eventually};
use serde_json::json;

use super::process::Process;

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_comes_back_and_others_keep_what_they_wrote() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::start(&host, "e2e-node").await?;
    let name = node.name.clone();
    let get = async |path: &str| {
        host.kubectl_output(&["get", "node", &name, "-o", &format!("jsonpath={path}")]).await
    };
    host.kubectl_output(&["label", "node", &name, "team=a"]).await?;
    host.kubectl_output(&["taint", "node", &name, "theirs=x:NoSchedule"]).await?;
    let foreign = json!({"status": {"conditions": [{"type": "Foreign", "status": "True"}]}}).to_string();
    host.kubectl_output(&["patch", "node", &name, "--subresource=status", "-p", &foreign]).await?;
    node.terminate().await?;
    node.restart().await?;
    eventually("the new process wrote", SOON, async || {
        let holder = host
            .kubectl_output(&[
                "get",
                "lease",
                &name,
                "-n",
                "kube-node-lease",
                "-o",
                "jsonpath={.spec.holderIdentity}",
            ])
            .await?;
        ensure!(!holder.is_empty());
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(get("{.metadata.labels.team}").await? == "a");
    ensure!(get("{.spec.taints[*].key}").await?.contains("theirs"));
    ensure!(get("{.status.conditions[*].type}").await?.contains("Foreign"));
    let before = get("{.metadata.uid}").await?;
    host.kubectl_output(&["delete", "node", &name, "--wait=false"]).await?;
    eventually("the node is there again and Ready", SOON, async || {
        ensure!(get("{.metadata.uid}").await? != before);
        ensure!(get("{.status.conditions[?(@.type==\"Ready\")].status}").await? == "True");
        let taints = get("{.spec.taints[*].key}").await?;
        ensure!(taints.contains("virtual-kubelet.io/provider"), "{taints}");
        Ok(())
    })
    .await?;
    host.kubectl_output(&["annotate", "node", &name, "federlet.io/leaving=true"]).await?;
    host.kubectl_output(&["delete", "node", &name]).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(get("{.metadata.uid}").await.is_err(), "it came back though it was removed on purpose");
    node.terminate().await
}
