//! What the host says about pods, and who has a say in it.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{audit::writes, stage::on_stage};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_the_hosts_stays_the_hosts_and_nothing_goes_backwards() -> Result<()> {
    on_stage("e2e-status", async |stage| {
        let key = stage.start("p", json!({})).await?;
        stage.provider.report(&key, |status| {
            status["qosClass"] = json!("Guaranteed");
            status["fromTheFuture"] = json!({"a": 1});
            status["observedGeneration"] = json!(99);
            status["conditions"][0]["observedGeneration"] = json!(99);
            status["containerStatuses"][0]["restartCount"] = json!(5);
            let mut sidecar = status["containerStatuses"][0].clone();
            sidecar["name"] = json!("injected");
            sidecar["ready"] = json!(false);
            status["containerStatuses"].as_array_mut().map(|all| all.push(sidecar)).unwrap_or_default();
        });
        stage.says("p", "{.status.containerStatuses[*].restartCount}", "5").await?;
        ensure!(stage.field("p", "{.status.qosClass}").await? == "BestEffort");
        ensure!(stage.field("p", "{.status.containerStatuses[*].name}").await? == "app");
        let generations =
            stage.field("p", "{.status.observedGeneration} {.status.conditions[*].observedGeneration}");
        let generations = generations.await?;
        ensure!(!generations.contains("99"), "{generations}");
        let row = stage.kubectl.run("get pod p --no-headers").await?;
        ensure!(row.split_whitespace().nth(1) == Some("1/1"), "{row}");

        // The member's pod was made anew.
        stage.provider.report(&key, |status| {
            status["containerStatuses"][0]["restartCount"] = json!(0);
            status["message"] = json!("anew");
        });
        stage.says("p", "{.status.message}", "anew").await?;
        ensure!(stage.field("p", "{.status.containerStatuses[*].restartCount}").await? == "5");

        // What the host does not keep is not said again and again.
        let before = writes(&stage.host, &stage.namespace)?;
        stage.looked_at(5, async || stage.provider.tell(&key)).await?;
        ensure!(writes(&stage.host, &stage.namespace)? == before);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_wrote_is_put_right() -> Result<()> {
    on_stage("e2e-theirs", async |stage| {
        stage.start("p", json!({})).await?;
        let theirs = json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "Theirs"},
            {"type": "example.com/Theirs", "status": "True"}]}});
        let theirs = theirs.to_string();
        stage.kubectl.args(&["patch", "pod", "p", "--subresource=status", "-p", &theirs]).await?;
        stage.ready("p").await?;
        let ready = "{.status.conditions[?(@.type==\"Ready\")].reason}";
        ensure!(stage.field("p", ready).await?.is_empty());
        ensure!(stage.field("p", "{.status.conditions[*].type}").await?.contains("example.com/Theirs"));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_the_host_refuses_does_not_keep_a_pod_from_ending() -> Result<()> {
    on_stage("e2e-refused", async |stage| {
        let key = stage.start("p", json!({})).await?;
        stage.provider.report(&key, |status| status["podIP"] = json!("no address"));
        let told = stage.told("p", "StatusRefused").await?;
        ensure!(told.contains("no address"), "{told}");
        stage.kubectl.run("delete pod p --wait=false").await?;
        stage.gone("p").await?;
        ensure!(stage.provider.has(&key).is_none());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_written_while_the_pod_ends() -> Result<()> {
    on_stage("e2e-ending", async |stage| {
        stage.provider.linger(true);
        let key = stage.start("p", json!({"terminationGracePeriodSeconds": 600})).await?;
        stage.kubectl.run("delete pod p --wait=false").await?;
        stage.provider.called("p", "delete 600").await?;
        stage.provider.report(&key, |status| status["message"] = json!("draining"));
        stage.says("p", "{.status.message}", "draining").await?;
        ensure!(stage.field("p", "{.metadata.deletionGracePeriodSeconds}").await? == "600");
        stage.provider.linger(false);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn news_of_a_pod_may_come_before_the_pod() -> Result<()> {
    on_stage("e2e-early", async |stage| {
        let key = stage.key("p");
        for _ in 0..3 {
            stage.provider.tell(&key);
        }
        stage.start("p", json!({})).await?;
        ensure!(stage.provider.calls("p") == ["create"], "{:?}", stage.provider.calls("p"));
        Ok(())
    })
    .await
}
