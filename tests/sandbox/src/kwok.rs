//! Nodes that KWOK plays: they cost nothing, run nothing, and are Ready.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::json;

use crate::{
    addons, builds::Binaries, certificates::Certificates, component::Component, kubeconfig, machine::Machine,
    plan::ClusterPlan,
};

/// Nodes created at the same time.
const AT_ONCE: usize = 16;

/// Starts KWOK and creates the nodes that it plays.
pub async fn start(
    cluster: &ClusterPlan,
    machine: &Machine,
    certificates: &Certificates,
    binaries: &Binaries,
    client: &Client,
) -> Result<()> {
    let path = machine.dir().join("kwok.kubeconfig");
    kubeconfig::write(&path, &kubeconfig::for_client(cluster, certificates, "admin")?)?;
    let component = Component {
        id: "kwok".to_owned(),
        machine: machine.name().to_owned(),
        program: binaries.kwok()?,
        args: vec![
            format!("--kubeconfig={}", path.display()),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
            format!("--node-ip={}", cluster.control_plane().address),
            // Without leases, nodes under load miss their heartbeats and go NotReady.
            "--node-lease-duration-seconds=40".to_owned(),
        ],
    };
    component.start(machine, &cluster.name).await?;
    stream::iter(0..cluster.kwok_nodes)
        .map(|index| addons::apply_object(client, node(&cluster.name, index)))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

fn node(cluster: &str, index: u32) -> serde_json::Value {
    let name = format!("{cluster}-kwok-{index}");
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": { "kwok.x-k8s.io/node": "fake" },
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
            },
        },
        "status": {
            "allocatable": { "cpu": "32", "memory": "256Gi", "pods": "1000" },
            "capacity": { "cpu": "32", "memory": "256Gi", "pods": "1000" },
        },
    })
}
