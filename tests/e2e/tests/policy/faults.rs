use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    scene::{Scene, alone, deployment, one_to_two, policy},
};
use federlet_sandbox::eventually;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_it_goes_on_where_it_was() -> Result<()> {
    alone("killed", async |stage| {
        // While the policy is suspended, pods wait at the gate.
        let mut held = policy("web", "Deployment", "web", &one_to_two());
        held["spec"]["suspension"] = json!({"dispatching": true});
        stage.obey(&held).await?;
        stage.create(&deployment("web", 9)).await?;
        eventually("all pods wait", SOON, async || {
            let gates = stage
                .host
                .run("get pods -l app=web -o jsonpath={.items[*].spec.schedulingGates[*].name}")
                .await?;
            ensure!(gates.split_whitespace().count() == 9, "{gates}");
            Ok(())
        })
        .await?;
        let pod = stage.host.run("get pods -l app=web -o jsonpath={.items[0].metadata.name}").await?;
        let told = stage.told(&pod, "Held").await?;
        ensure!(told.contains("suspends dispatching"), "{told}");
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        // Some are placed, some are not.
        for _ in 0..3 {
            stage.fleet.serve.kill().await?;
            stage.fleet.serve.restart().await?;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        stage.has("app=web", 3, 6).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_lost_is_made_anew() -> Result<()> {
    alone("renewed", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        let host = &stage.fleet.host;
        let secret = ["-n", "federlet-system", "get", "secret", "federlet-webhook", "-o"];
        let read = async |path: &str| {
            let path = format!("jsonpath={path}");
            host.kubectl_output(&[&secret[..], &[path.as_str()]].concat()).await
        };
        let before = read("{.metadata.uid}").await?;
        host.kubectl_output(&["-n", "federlet-system", "delete", "secret", "federlet-webhook"]).await?;
        eventually("the host trusts another certificate", 2 * SOON, async || {
            ensure!(read("{.metadata.uid}").await? != before, "it is the old one");
            let registered = "jsonpath={.webhooks[0].clientConfig.caBundle}";
            let trusted = host
                .kubectl_output(&["get", "mutatingwebhookconfiguration", "federlet", "-o", registered])
                .await?;
            ensure!(!trusted.is_empty() && trusted == read("{.data.ca\\.crt}").await?, "not yet");
            Ok(())
        })
        .await?;
        // Pods are steered as before.
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await
    })
    .await
}
