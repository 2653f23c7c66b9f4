//! Services go where the pods are that they select.

use anyhow::{Context, Result, ensure};
use federlet_e2e::SOON;
use federlet_sandbox::eventually;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{
    CHANGE,
    stage::{QUICK, Stage},
    staged,
};

fn service(stage: &Stage, name: &str, spec: &Value) -> Value {
    let mut whole = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] });
    if let (Some(whole), Value::Object(spec)) = (whole.as_object_mut(), spec.clone()) {
        whole.extend(spec);
    }
    json!({
        "apiVersion": "v1", "kind": "Service", "spec": whole,
        "metadata": { "name": name, "namespace": stage.host.namespace },
    })
}

async fn there(stage: &Stage, name: &str) -> Result<Value> {
    stage.member.get("Service", name).await?.with_context(|| format!("the member has no Service {name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn services_follow_the_pods_that_they_select() -> Result<()> {
    staged("svc", async |stage| {
        let running = stage.start(QUICK).await?;
        let mut kept = service(stage, "kept", &json!({}));
        kept["metadata"]["annotations"] = json!({ "federlet.io/follow": "false" });
        for object in [
            service(stage, "plain", &json!({})),
            service(stage, "headless", &json!({ "clusterIP": "None" })),
            service(stage, "balanced", &json!({ "type": "LoadBalancer" })),
            service(stage, "ports", &json!({ "type": "NodePort" })),
            service(stage, "others", &json!({ "selector": { "app": "other" } })),
            service(stage, "everything", &json!({ "selector": null })),
            kept,
        ] {
            stage.host.create(&object).await?;
        }
        let theirs = stage.member.create(&service(stage, "taken", &json!({}))).await?;
        stage.host.create(&service(stage, "taken", &json!({}))).await?;
        let pod = stage.pod("web", &json!({})).await?;
        running.bring(&pod).await?;

        let mut original = Value::Null;
        eventually("they are there", SOON, async || {
            original = stage.host.get("Service", "plain").await?.context("gone")?;
            let copy = there(stage, "plain").await?;
            ensure!(copy["spec"]["ports"] == original["spec"]["ports"]);
            ensure!(there(stage, "headless").await?["spec"]["clusterIP"] == "None");
            ensure!(there(stage, "balanced").await?["spec"]["type"] == "ClusterIP");
            ensure!(there(stage, "ports").await?["spec"]["ports"][0]["nodePort"].is_u64());
            Ok(())
        })
        .await?;
        for name in ["others", "everything", "kept"] {
            ensure!(stage.member.get("Service", name).await?.is_none(), "{name} is there");
        }
        let still = there(stage, "taken").await?;
        ensure!(still["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]);
        eventually("the pod's user hears of it", SOON, async || {
            let about = format!("involvedObject.uid={}", pod.uid());
            let events = stage.host.api("Event").list(&ListParams::default().fields(&about)).await?;
            let said = serde_json::to_string(&events.items)?;
            ensure!(said.contains("Service taken"), "{said}");
            Ok(())
        })
        .await?;

        // A change keeps what the member chose.
        let address = there(stage, "plain").await?["spec"]["clusterIP"].clone();
        let ports = json!({ "spec": { "ports": [{ "port": 81, "targetPort": 8080 }] } });
        stage.host.patch("Service", "plain", &ports).await?;
        eventually("a change is there", CHANGE, async || {
            let copy = there(stage, "plain").await?;
            ensure!(copy["spec"]["ports"][0]["port"] == 81, "{}", copy["spec"]);
            ensure!(copy["spec"]["clusterIP"] == address);
            Ok(())
        })
        .await?;

        // One that selects fewer, and the pod still.
        stage.host.patch("Pod", "web", &json!({ "metadata": { "labels": { "tier": "one" } } })).await?;
        eventually("the pod is seen with its label", SOON, async || {
            let seen = running.site.host_pod(pod.key()).context("no pod")?;
            ensure!(seen.metadata()["labels"]["tier"] == "one", "{}", seen.metadata());
            Ok(())
        })
        .await?;
        let fewer = json!({ "spec": { "selector": { "app": "web", "tier": "one" } } });
        stage.host.patch("Service", "plain", &fewer).await?;
        eventually("the copy selects fewer, too", CHANGE, async || {
            let copy = there(stage, "plain").await?;
            ensure!(copy["spec"]["selector"]["tier"] == "one", "{}", copy["spec"]);
            Ok(())
        })
        .await?;

        // One that comes later, one that selects others now, and one that selects us now.
        stage.host.create(&service(stage, "late", &json!({}))).await?;
        stage.host.patch("Service", "ports", &json!({ "spec": { "selector": { "app": "other" } } })).await?;
        stage.host.patch("Service", "others", &json!({ "spec": { "selector": { "app": "web" } } })).await?;
        eventually("they are sorted again", SOON, async || {
            there(stage, "late").await?;
            there(stage, "others").await?;
            ensure!(stage.member.get("Service", "ports").await?.is_none(), "it selects nobody here");
            Ok(())
        })
        .await?;
        running.stop().await?;

        // A restart changes nothing.
        let before = stage.member.versions().await?;
        let running = stage.start(QUICK).await?;
        running.bring(&pod).await?;
        tokio::time::sleep(QUICK.linger * 3).await;
        ensure!(stage.member.versions().await? == before);

        stage.host.delete("Pod", "web").await?;
        running.follow.release(pod.id());
        eventually("they are gone with the pod", SOON, async || {
            let left = stage.member.versions().await?;
            let left: Vec<_> = left.iter().filter(|line| line.starts_with("Service ")).collect();
            ensure!(left.len() == 1 && left[0].contains("taken"), "{left:?}");
            Ok(())
        })
        .await?;
        running.stop().await
    })
    .await
}
