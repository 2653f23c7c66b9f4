//! What fits on no machine of a cluster is not sent there, however much its machines have together.

use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON, objects,
    scene::{deployment, policy},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::played::{Played, played};

/// More than one of the two machines of a cluster has, less than both.
const TOO_MUCH: &str = "40";
/// Less than one has.
const FITS: &str = "20";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_only_where_one_machine_has_room() -> Result<()> {
    played(async |played| {
        let host = played.on_host("room");
        played.host.kubectl_output(&["create", "namespace", "room"]).await?;
        plays(played, &host).await
    })
    .await
}

async fn plays(played: &Played, host: &Kubectl) -> Result<()> {
    let offers = ["get", "node", "member1", "-o", "jsonpath={.status.allocatable.cpu}"];
    let offered: u64 = played.host.kubectl_output(&offers).await?.parse()?;
    ensure!(offered > 40, "together the machines have enough, or this shows nothing: {offered}");

    // Nobody steers these; they only tolerate the nodes of clusters.
    for (name, cpu) in [("large", TOO_MUCH), ("small", FITS)] {
        let asks = json!({"containers": [container(cpu)]});
        objects::create(host, &objects::pod(name, &objects::spec("member1", asks))).await?;
    }
    host.run("wait pod/small --for=condition=Ready --timeout=240s").await?;
    is_unschedulable(host, "large").await?;

    let pinned = json!({"clusterAffinity": {"clusterNames": ["member1"]}});
    let weights: Vec<Value> = ["member1", "member2"]
        .map(|name| json!({"targetCluster": {"clusterNames": [name]}, "weight": 1}))
        .to_vec();
    let divided = json!({
        "clusterAffinity": {"clusterNames": ["member1", "member2"]},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": weights},
        },
    });
    for (name, placement) in [("pinned", &pinned), ("divided", &divided)] {
        played.apply("room", &policy(name, "Deployment", name, placement)).await?;
    }
    played.is_covered("room").await?;
    for (name, replicas) in [("pinned", 1), ("divided", 2)] {
        let mut large = deployment(name, replicas);
        large["spec"]["template"]["spec"]["containers"] = json!([container(TOO_MUCH)]);
        played.apply("room", &large).await?;
        is_unschedulable(host, &format!("-lapp={name}")).await?;
    }
    for member in ["member1", "member2"] {
        let there = played.in_member(member, "room")?.run("get pods -o name").await?;
        let expected = if member == "member1" { "pod/small" } else { "" };
        ensure!(there.trim() == expected, "{member} has {there}");
    }
    // As soon as there is a machine that is large enough, they run.
    let more = r#"{"status": {"allocatable": {"cpu": "100"}, "capacity": {"cpu": "100"}}}"#;
    let words = ["patch", "node", "member1-kwok-0", "--subresource=status", "--type=merge", "-p"];
    let member = played.in_member("member1", "room")?;
    member.args(&[&words[..], &[more]].concat()).await?;
    let outcome = host.run("wait pod/large --for=condition=Ready --timeout=240s").await;
    let before = more.replace("100", "32");
    member.args(&[&words[..], &[&before]].concat()).await?;
    outcome.map(drop)
}

fn container(cpu: &str) -> Value {
    json!({"name": "app", "image": "nginx", "resources": {"requests": {"cpu": cpu}}})
}

/// Waits until the host's scheduler has said of all these pods that no node takes them.
async fn is_unschedulable(host: &Kubectl, pods: &str) -> Result<()> {
    let path = "jsonpath={..status.conditions[?(@.type==\"PodScheduled\")].reason}";
    eventually(&format!("{pods} waits on the host"), SOON, async || {
        let said = host.args(&["get", "pods", pods, "-o", path]).await?;
        let waits = said.split_whitespace().all(|reason| reason == "Unschedulable");
        ensure!(waits && !said.is_empty(), "it says {said:?}");
        Ok(())
    })
    .await
}
