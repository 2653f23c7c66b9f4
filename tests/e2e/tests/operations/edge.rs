use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{BEIJING, HANGZHOU},
    objects::{pod, spec, workload},
    stage::on_stage,
};
use federlet_sandbox::eventually;
use serde_json::json;

use crate::{REGIONS, condition};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_moves_to_another_region_gives_up_its_pods() -> Result<()> {
    let _regions = REGIONS.lock().await;
    on_stage("moves", async |stage| {
        let edge = stage.fleet.sandbox.cluster("edge")?;
        let there = Kubectl::new(edge.clone(), &format!("{}-{BEIJING}", stage.namespace));
        let deployment = json!({
            "replicas": 1, "selector": {"matchLabels": {"app": "branch"}},
            "template": {"metadata": {"labels": {"app": "branch"}}, "spec": spec(BEIJING, json!({}))},
        });
        stage.create(&workload("Deployment", "branch", &deployment)).await?;
        stage.host.run("rollout status deployment/branch --timeout=60s").await?;
        let first = stage.host.run("get pods -l app=branch -o jsonpath={.items[0].metadata.uid}").await?;
        let machine = there.run("get pods -o jsonpath={.items[0].spec.nodeName}").await?;
        let label = async |location: &str| {
            edge.kubectl_output(&["label", "node", &machine, &format!("location={location}"), "--overwrite"])
                .await
        };
        label("elsewhere").await?;
        let moved =
            eventually("the pod is replaced, and the new one waits for a machine", SOON, async || {
                let path = "jsonpath={range .items[*]}{.metadata.uid} {.status.phase}{\"\\n\"}{end}";
                let pods = stage.host.args(&["get", "pods", "-l", "app=branch", "-o", path]).await?;
                ensure!(!pods.contains(&first) && pods.contains("Pending"), "{pods}");
                let events = stage.host.run("get events").await?;
                ensure!(events.contains("MachineLeftRegion"), "{events}");
                Ok(())
            })
            .await;
        label("beijing").await?;
        moved?;
        stage.host.run("rollout status deployment/branch --timeout=90s").await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_offline_keeps_its_pods() -> Result<()> {
    let _regions = REGIONS.lock().await;
    on_stage("offline", async |stage| {
        let sandbox = stage.fleet.sandbox;
        let edge = sandbox.cluster("edge")?;
        let there = Kubectl::new(edge.clone(), &format!("{}-{HANGZHOU}", stage.namespace));
        stage.create(&pod("stays", &spec(HANGZHOU, json!({})))).await?;
        stage.ready("stays").await?;
        let lives = async || {
            let path = "jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}";
            let host = stage.host.args(&["get", "pod", "stays", "-o", path]).await?;
            Ok::<_, anyhow::Error>((host, there.args(&["get", "pod", "stays", "-o", path]).await?))
        };
        let before = lives().await?;
        let machine = there.run("get pod stays -o jsonpath={.spec.nodeName}").await?;
        let cpus = async || {
            let path = ["get", "node", HANGZHOU, "-o", "jsonpath={.status.allocatable.cpu}"];
            stage.fleet.host.kubectl_output(&path).await
        };
        let room = cpus().await?;
        edge.partition_machine(&machine).await?;
        let played = async {
            // The member waits 50 seconds before it believes it.
            eventually("the region has no room", 2 * SOON, async || {
                let cpu = cpus().await?;
                ensure!(cpu == "0", "{cpu}");
                Ok(())
            })
            .await?;
            ensure!(
                condition(&stage.fleet.host, HANGZHOU, "Ready").await? == "True",
                "a region keeps its node"
            );
            stage.says("stays", ".status.conditions[?(@.type==\"Ready\")].status", "False").await?;
            ensure!(stage.field("stays", ".status.phase").await? == "Running");
            ensure!(lives().await? == before);
            Ok(())
        }
        .await;
        edge.heal_machine(&machine).await?;
        played?;
        stage.ready("stays").await?;
        ensure!(lives().await? == before, "it is the same pod, and it never stopped");
        eventually("the room is back", SOON, async || {
            let cpu = cpus().await?;
            ensure!(cpu == room, "{cpu}");
            Ok(())
        })
        .await
    })
    .await
}
