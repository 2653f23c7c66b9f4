//! Events about the member's pods are told on the host's.

use anyhow::{Result, ensure};
use federlet_e2e::SOON;
use federlet_node::contract::Pod;
use federlet_provider::marks;
use federlet_sandbox::eventually;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{
    stage::{QUICK, Stage},
    staged,
};

/// The pod that stands for one of the host's. It fits no machine.
async fn twin(stage: &Stage, pod: &Pod) -> Result<Value> {
    let host = stage.host_id().await?;
    let twin = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod.key().name(), "namespace": stage.member.namespace,
            "labels": { marks::HOST: host.as_str(), marks::NODE: stage.node, marks::HOST_UID: pod.uid() },
            "annotations": { marks::HOST_NAMESPACE: stage.host.namespace },
        },
        "spec": { "containers": [{ "name": "app", "image": "nginx" }], "nodeSelector": { "no": "where" } },
    });
    stage.member.create(&twin).await
}

async fn told(stage: &Stage, pod: &Pod, reason: &str) -> Result<Vec<Value>> {
    let about = format!("involvedObject.uid={},reason={reason}", pod.uid());
    let events = stage.host.api("Event").list(&ListParams::default().fields(&about)).await?;
    events.into_iter().map(|event| Ok(serde_json::to_value(event)?)).collect()
}

/// Waits until Events are heard: those from before are not.
async fn hears(stage: &Stage) -> Result<()> {
    let pod = stage.pod("probe", &json!({})).await?;
    let there = twin(stage, &pod).await?;
    let mut said = 0;
    eventually("Events are heard", SOON, async || {
        said += 1;
        let mut event = event(stage, &format!("probe-{said}"), &there["metadata"]["uid"]);
        event["involvedObject"]["name"] = "probe".into();
        stage.member.create(&event).await?;
        ensure!(!told(stage, &pod, "BackOff").await?.is_empty(), "not yet");
        Ok(())
    })
    .await?;
    stage.member.delete("Pod", "probe").await
}

fn event(stage: &Stage, name: &str, uid: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": name, "namespace": stage.member.namespace },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": stage.member.namespace, "name": "web", "uid": uid,
        },
        "reason": "BackOff", "message": "it fails", "type": "Warning", "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": { "component": "kubelet" },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_the_member_are_told_once() -> Result<()> {
    staged("event", async |stage| {
        let running = stage.start(QUICK).await?;
        hears(stage).await?;
        let pod = stage.pod("web", &json!({})).await?;
        let there = twin(stage, &pod).await?;
        eventually("the member's scheduler is heard on the host", SOON, async || {
            let events = told(stage, &pod, "FailedScheduling").await?;
            ensure!(events.len() == 1, "{events:?}");
            ensure!(events[0]["source"]["host"] == stage.node.as_str() && events[0]["type"] == "Warning");
            Ok(())
        })
        .await?;

        // One about an earlier pod of that name is not about this one.
        stage.member.create(&event(stage, "earlier", &json!("another"))).await?;
        stage.member.create(&event(stage, "back-off", &there["metadata"]["uid"])).await?;
        let counted = async |count: i64| {
            eventually("it is told once, with its count", SOON, async || {
                let events = told(stage, &pod, "BackOff").await?;
                ensure!(events.len() == 1 && events[0]["count"] == count, "{events:?}");
                Ok(())
            })
            .await
        };
        counted(1).await?;
        stage.member.patch("Event", "back-off", &json!({ "count": 2 })).await?;
        counted(2).await?;
        running.stop().await?;

        let running = stage.start(QUICK).await?;
        // Until the new process hears, nothing is new; it does not tell again what was told.
        eventually("the next process hears, too", SOON, async || {
            stage
                .member
                .patch("Event", "back-off", &json!({ "count": 3, "message": "it fails again" }))
                .await?;
            stage.member.patch("Event", "back-off", &json!({ "count": 4 })).await?;
            let events = told(stage, &pod, "BackOff").await?;
            ensure!(events.len() == 1 && events[0]["count"].as_i64() >= Some(3), "{events:?}");
            Ok(())
        })
        .await?;
        ensure!(told(stage, &pod, "FailedScheduling").await?.len() == 1);
        stage.member.delete("Pod", "web").await?;
        running.stop().await
    })
    .await
}
