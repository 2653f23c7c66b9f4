//! Several `federlet serve`: who serves which node, and what happens when one is gone.

use anyhow::{Context, Result, ensure};
use federlet_e2e::{SOON, fleet::Serve};
use federlet_sandbox::eventually;
use tokio::process::Command;

use crate::ground::{Ground, on_ground, pod};

impl Ground {
    /// Which replica serves a node.
    async fn holder(&self, node: &str) -> Result<String> {
        let words = ["get", "lease", node, "-n", "kube-node-lease", "-o", "jsonpath={.spec.holderIdentity}"];
        self.host.kubectl_output(&words).await
    }

    async fn is_held_by(&self, nodes: &[&str], replica: &str) -> Result<()> {
        eventually(&format!("{replica} serves {nodes:?}"), 3 * SOON, async || {
            for node in nodes {
                let holder = self.holder(node).await?;
                ensure!(holder == replica, "{node} is served by {holder:?}");
                self.is_ready(node).await?;
            }
            Ok(())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_takes_over_and_one_that_was_paused_does_nothing() -> Result<()> {
    on_ground("replicas", async |ground| {
        let nodes = ["j-one", "j-two", "j-beijing", "j-hangzhou"];
        ground.join("j-one", "member1", &[]).await?;
        ground.join("j-two", "member2", &[]).await?;
        ground.join("j-beijing", "edge", &["--region-selector", "location=beijing"]).await?;
        ground.join("j-hangzhou", "edge", &["--region-selector", "location=hangzhou"]).await?;
        ground.is_held_by(&nodes, "first").await?;
        let second = Serve::start(&ground.host, "second", &["--identity", "second"]).await?;
        let played = async {
            eventually("the members are shared and regions stay together", SOON, async || {
                let mut holders = vec![];
                for node in nodes {
                    holders.push(ground.holder(node).await?);
                }
                ensure!(holders[2] == holders[3], "{holders:?}");
                ensure!(holders.iter().all(|holder| !holder.is_empty()), "{holders:?}");
                Ok(())
            })
            .await?;
            // A rollout hands over at once.
            ground.serve.terminate().await?;
            ground.is_held_by(&nodes, "second").await?;
            ground.serve.restart().await?;
            second.terminate().await?;
            ground.is_held_by(&nodes, "first").await?;
            second.restart().await?;
            paused(ground, &nodes).await
        }
        .await;
        let tail = second.tail();
        second.kill().await?;
        played.context(tail)
    })
    .await
}

/// The first replica is stopped for longer than its leases last, and then goes on.
async fn paused(ground: &Ground, nodes: &[&str]) -> Result<()> {
    ground
        .sandbox
        .in_namespace("paused", async |space| {
            let kubectl = ground.kubectl(&space.namespace);
            let mut web = pod("web", "j-one");
            web["metadata"]["namespace"] = space.namespace.clone().into();
            ground.apply(&web).await?;
            kubectl.run("wait pod/web --for=condition=Ready --timeout=60s").await?;
            let first = ground.serve.pid().await.context("it runs")?.to_string();
            ensure!(Command::new("kill").args(["-STOP", &first]).status().await?.success());
            let taken = ground.is_held_by(nodes, "second").await;
            ensure!(Command::new("kill").args(["-CONT", &first]).status().await?.success());
            taken?;
            // It goes on, and finds that the nodes are not its own. The shares are made anew; whoever has a node in the
            // end, there is one holder, and one pod that never stopped.
            eventually("every node has a holder and is Ready", 2 * SOON, async || {
                for node in nodes {
                    ensure!(!ground.holder(node).await?.is_empty(), "{node} has no holder");
                    ground.is_ready(node).await?;
                }
                Ok(())
            })
            .await?;
            let there = federlet_e2e::Kubectl::new(ground.member("member1")?, &space.namespace);
            let pods = there.run("get pods -o jsonpath={.items[*].metadata.name}").await?;
            ensure!(pods == "web", "{pods}");
            let restarts = kubectl
                .run("get pod web -o jsonpath={.status.phase}{.status.containerStatuses[0].restartCount}")
                .await?;
            ensure!(restarts == "Running0", "{restarts}");
            Ok(())
        })
        .await
}
