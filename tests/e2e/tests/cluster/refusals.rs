use anyhow::{Result, ensure};
use federlet_e2e::fleet::MEMBER1;
use serde_json::{Value, json};

use crate::{
    objects::{pod, spec},
    stage::on_stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_member_does_not_allow_is_said_all_at_once() -> Result<()> {
    on_stage("refused", async |stage| {
        let everything = json!({
            "hostNetwork": true, "hostPID": true, "hostIPC": true,
            "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
            "containers": [{"name": "app", "image": "nginx", "securityContext": {"privileged": true}}],
        });
        stage.create(&pod("everything", &spec(MEMBER1, everything))).await?;
        stage.says("everything", ".status.phase", "Pending").await?;
        let said = stage.told("everything", "NotAllowed").await?;
        for word in ["hostNetwork", "hostPID", "hostIPC", "hostPath", "privileged"] {
            ensure!(said.contains(word), "{word} is missing: {said}");
        }
        ensure!(stage.member.run("get pod everything").await.is_err(), "it runs");
        stage.host.run("delete pod everything --timeout=30s").await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_that_the_member_lacks_are_told() -> Result<()> {
    on_stage("classes", async |stage| {
        let name = stage.namespace.clone();
        let class: Value = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7});
        stage.create(&class).await?;
        let played = async {
            let asks = json!({"priorityClassName": name, "schedulerName": "default-scheduler"});
            stage.create(&pod("urgent", &spec(MEMBER1, asks))).await?;
            stage.ready("urgent").await?;
            let said = stage.told("urgent", "PriorityClassNotFound").await?;
            ensure!(said.contains(&name), "{said}");
            Ok(())
        }
        .await;
        stage.host.args(&["delete", "priorityclass", &name]).await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_of_the_member_holds_pods_until_there_is_room() -> Result<()> {
    on_stage("quota", async |stage| {
        stage.start("first", json!({"terminationGracePeriodSeconds": 1})).await?;
        stage.member.run("create quota few --hard=pods=1").await?;
        stage.create(&pod("second", &spec(MEMBER1, json!({})))).await?;
        let said = stage.told("second", "QuotaExceeded").await?;
        ensure!(said.contains("few"), "{said}");
        stage.says("second", ".status.phase", "Pending").await?;
        stage.host.run("delete pod first --timeout=30s").await?;
        stage.ready("second").await
    })
    .await
}
