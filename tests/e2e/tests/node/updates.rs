//! What people change about a pod that runs.

use anyhow::{Context, Result, ensure};
use federlet_e2e::SOON;
use federlet_node::contract::ProviderError;
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use super::{
    audit::writes,
    stage::{Stage, on_stage},
};

/// Waits until the provider was told of a change.
async fn told(stage: &Stage, pointer: &str, value: Value) -> Result<()> {
    let key = stage.key("p");
    eventually(&format!("the provider hears of {pointer}"), SOON, async || {
        let pod = stage.provider.has(&key).context("no pod")?;
        let now = pod.json().pointer(pointer);
        ensure!(now == Some(&value), "{now:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_that_a_pod_allows_reaches_the_provider() -> Result<()> {
    on_stage("e2e-updates", async |stage| {
        let resources = json!({"requests": {"cpu": "1"}});
        let containers = json!([{"name": "app", "image": "nginx", "resources": resources}]);
        stage.start("p", json!({"containers": containers})).await?;
        let kubectl = &stage.kubectl;
        let patch = async |words: &[&str], patch: Value| {
            let patch = patch.to_string();
            kubectl.args(&[&["patch", "pod", "p", "-p", &patch], words].concat()).await
        };

        kubectl.run("label pod p team=a").await?;
        told(stage, "/metadata/labels/team", json!("a")).await?;
        kubectl.run("annotate pod p example.com/note=b").await?;
        told(stage, "/metadata/annotations/example.com~1note", json!("b")).await?;
        kubectl.run("set image pod/p app=nginx:2").await?;
        told(stage, "/spec/containers/0/image", json!("nginx:2")).await?;
        patch(&[], json!({"spec": {"activeDeadlineSeconds": 3600}})).await?;
        told(stage, "/spec/activeDeadlineSeconds", json!(3600)).await?;
        let resize =
            json!({"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}});
        patch(&["--subresource=resize"], resize).await?;
        told(stage, "/spec/containers/0/resources/requests/cpu", json!("2")).await?;
        kubectl.run("debug p --image=busybox --container=debugger --attach=false -- sleep 60").await?;
        told(stage, "/spec/ephemeralContainers/0/name", json!("debugger")).await?;
        // Tolerations are a list that can only grow.
        let spec = stage.field("p", "{.spec.tolerations}").await?;
        let mut tolerations: Vec<Value> = serde_json::from_str(&spec)?;
        tolerations.push(json!({"key": "example.com/more", "operator": "Exists"}));
        let last = format!("/spec/tolerations/{}/key", tolerations.len() - 1);
        patch(&["--type=merge"], json!({"spec": {"tolerations": tolerations}})).await?;
        told(stage, &last, json!("example.com/more")).await?;

        // The host hears which of its generations the provider has, and nothing is told twice.
        let generation = stage.field("p", "{.metadata.generation}").await?;
        stage.says("p", "{.status.observedGeneration}", &generation).await?;
        let (calls, before) = (stage.provider.calls("p"), writes(&stage.host, &stage.namespace)?);
        let key = stage.key("p");
        stage.looked_at(3, async || stage.provider.tell(&key)).await?;
        ensure!(stage.provider.calls("p") == calls && calls[0] == "create");
        ensure!(writes(&stage.host, &stage.namespace)? == before);
        Ok(())
    })
    .await
}

/// As when a ConfigMap was deleted that the pod names: each attempt to tell the change fails, perhaps for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_provider_refuses_hides_nothing() -> Result<()> {
    on_stage("e2e-unwilling", async |stage| {
        let key = stage.start("p", json!({})).await?;
        stage.provider.fail("update", Some(ProviderError::invalid("ConfigMap settings not found")));
        stage.kubectl.run("label pod p team=a").await?;
        let told_of_it = stage.told("p", "ProviderInvalidPod").await?;
        ensure!(told_of_it.contains("ConfigMap settings not found"), "{told_of_it}");

        let unready = |status: &mut Value| {
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                if condition["type"] != "Initialized" {
                    condition["status"] = json!("False");
                }
            }
        };
        stage.provider.report(&key, unready);
        stage.says("p", "{.status.conditions[?(@.type==\"Ready\")].status}", "False").await?;
        ensure!(stage.field("p", "{.status.reason}").await?.is_empty(), "the pod itself is well");

        stage.provider.fail("update", None);
        stage.provider.tell(&key);
        told(stage, "/metadata/labels/team", json!("a")).await
    })
    .await
}
