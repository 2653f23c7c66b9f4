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
async fn each_refusal_has_its_reason() -> Result<()> {
    on_stage("reasons", async |stage| {
        let class = stage.namespace.clone();
        let runtime = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": class}, "handler": "runc"});
        stage.create(&runtime).await?;
        let mut refused = vec![
            ("network", "HostNetworkNotAllowed", json!({"hostNetwork": true})),
            ("processes", "HostProcessesNotAllowed", json!({"hostPID": true})),
            ("files", "HostPathNotAllowed", json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]})),
            (
                "privileged",
                "PrivilegedNotAllowed",
                json!({"containers": [{"name": "app", "image": "nginx", "securityContext": {"privileged": true}}]}),
            ),
            ("runtime", "RuntimeClassNotFound", json!({"runtimeClassName": class})),
            ("important", "PriorityNotAllowed", json!({"priorityClassName": "system-node-critical"})),
            (
                "devices",
                "ResourceClaimsNotSupported",
                json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "none"}]}),
            ),
        ];
        // Bound by hand: some of them no scheduler would ever bind.
        for (name, _, extra) in &mut refused {
            extra["nodeName"] = MEMBER1.into();
            extra["nodeSelector"] = Value::Null;
            stage.create(&pod(name, &spec(MEMBER1, extra.take()))).await?;
        }
        let played = async {
            for (name, reason, _) in &refused {
                stage.says(name, ".status.reason", reason).await?;
                stage.says(name, ".status.phase", "Pending").await?;
                ensure!(stage.member.args(&["get", "pod", name]).await.is_err(), "{name} runs");
            }
            Ok(())
        }
        .await;
        stage.host.args(&["delete", "runtimeclass", &class]).await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debug_container_that_is_not_allowed_is_told() -> Result<()> {
    on_stage("debugged", async |stage| {
        stage.start("web", json!({})).await?;
        let debug = "debug web --image=busybox --profile=sysadmin --container=root -- sleep 60";
        stage.host.run(debug).await?;
        let said = stage.told("web", "EphemeralContainerNotAllowed").await?;
        ensure!(said.contains("root"), "{said}");
        let there = stage.member.run("get pod web -o jsonpath={.spec.ephemeralContainers}").await?;
        ensure!(there.is_empty(), "{there}");
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
            // No scheduler of the host has that name, so the pod names its node itself.
            let mut own = spec(MEMBER1, json!({"schedulerName": "own", "nodeName": MEMBER1}));
            own["nodeSelector"] = Value::Null;
            stage.create(&pod("scheduled", &own)).await?;
            stage.create(&pod("urgent", &spec(MEMBER1, asks))).await?;
            stage.ready("urgent").await?;
            let said = stage.told("urgent", "PriorityClassNotFound").await?;
            ensure!(said.contains(&name), "{said}");
            stage.ready("scheduled").await?;
            let said = stage.told("scheduled", "SchedulerNotFound").await?;
            ensure!(said.contains("own"), "{said}");
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
