use anyhow::{Result, ensure};
use federlet_e2e::{
    fleet::{MEMBER1, MEMBER2},
    objects::{spec, workload},
    stage::on_stage,
};
use serde_json::json;

use crate::MEMBERS;

#[tokio::test(flavor = "multi_thread")]
async fn cordon_and_drain_move_pods_and_respect_budgets() -> Result<()> {
    let _members = MEMBERS.lock().await;
    on_stage("drain", async |stage| {
        let host = &stage.fleet.host;
        let mut web = spec(MEMBER1, json!({"terminationGracePeriodSeconds": 1}));
        web["nodeSelector"] = json!({"node-role.kubernetes.io/cluster": ""});
        let web = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": web}});
        host.kubectl_output(&["cordon", MEMBER2]).await?;
        let played = async {
            stage.create(&workload("Deployment", "web", &web)).await?;
            stage.host.run("rollout status deployment/web --timeout=60s").await?;
            stage.host.run("create poddisruptionbudget web --selector=app=web --min-available=2").await?;
            let drain = ["drain", MEMBER1, "--ignore-daemonsets", "--pod-selector=app=web", "--force"];
            let mut refused = drain.to_vec();
            refused.push("--timeout=8s");
            ensure!(host.kubectl_output(&refused).await.is_err(), "the budget was not respected");
            stage
                .host
                .args(&[
                    "patch",
                    "poddisruptionbudget",
                    "web",
                    "--type=merge",
                    "-p",
                    r#"{"spec":{"minAvailable":1}}"#,
                ])
                .await?;
            host.kubectl_output(&["uncordon", MEMBER2]).await?;
            host.kubectl_output(&[&drain[..], &["--timeout=120s"]].concat()).await?;
            stage.host.run("rollout status deployment/web --timeout=60s").await?;
            let nodes = stage.host.run("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}").await?;
            ensure!(nodes == format!("{MEMBER2} {MEMBER2}"), "{nodes}");
            Ok(())
        }
        .await;
        for node in [MEMBER1, MEMBER2] {
            host.kubectl_output(&["uncordon", node]).await?;
        }
        played
    })
    .await
}
