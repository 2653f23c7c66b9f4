//! An autoscaler counts the pods of a workload, not their copies.

use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    scene::{Scene, beside, deployment, policy},
};
use federlet_sandbox::eventually;
use serde_json::json;

use crate::usual::{both, copied};

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_counts_pods_and_not_their_copies() -> Result<()> {
    beside("copyscale", async |stage| {
        stage.obey(&policy("burn", "Deployment", "burn", &both())).await?;
        let mut burn = deployment("burn", 1);
        burn["spec"]["template"]["spec"]["containers"] = json!([{
            "name": "app", "image": "busybox", "command": ["sh", "-c", "while true; do :; done"],
            "resources": {"requests": {"cpu": "60m"}, "limits": {"cpu": "60m"}},
        }]);
        stage.create(&burn).await?;
        copied(stage, "app=burn", 1, 1, 1).await?;
        // It uses two thirds of what is wanted. Three pods that do would call for a second one, one does not.
        stage.host.run("autoscale deployment burn --min=1 --max=5 --cpu=150%").await?;
        eventually("the copies are not among the pods of the workload", SOON, async || {
            let found = stage.host.run("get pods -l app=burn -o name").await?;
            ensure!(found.lines().count() == 1, "{found}");
            Ok(())
        })
        .await?;
        let there = stage.member.run("get pods -l app=burn -o name").await?;
        ensure!(there.lines().count() == 1, "in the member it has its labels: {there}");
        eventually("the autoscaler has seen what the pod uses", 3 * SOON, async || {
            let path = "jsonpath={.status.currentMetrics[0].resource.current.averageUtilization}";
            let used: u32 = stage.host.args(&["get", "hpa", "burn", "-o", path]).await?.parse()?;
            ensure!((50..150).contains(&used), "{used} %");
            Ok(())
        })
        .await?;
        let wanted = stage.host.run("get hpa burn -o jsonpath={.status.desiredReplicas}").await?;
        ensure!(wanted == "1", "it wants {wanted} replicas");
        // Asked for less per pod, it scales, and each new pod has its copies.
        let target = json!({"spec": {"maxReplicas": 2, "metrics": [{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
        stage.host.args(&["patch", "hpa", "burn", "--type=merge", "-p", &target.to_string()]).await?;
        eventually("there are two pods, with two copies each", 3 * SOON, async || {
            let pods = stage.host.run("get pods -l app=burn -o name").await?;
            let copies = stage.host.run("get pods -l federlet.io/copy-of -o name").await?;
            ensure!(pods.lines().count() == 2 && copies.lines().count() == 4, "{pods}{copies}");
            Ok(())
        })
        .await?;
        // Without an autoscaler they are what they were.
        stage.host.run("delete hpa burn").await?;
        copied(stage, "app=burn", 2, 2, 2).await
    })
    .await
}
