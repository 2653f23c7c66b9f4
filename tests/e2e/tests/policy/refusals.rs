use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
    objects::pipe,
    scene::{Scene, alone, beside, deployment, one_to_two, policy},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_policy_is_refused_in_karmadas_words() -> Result<()> {
    beside("wrong", async |stage| {
        let mut both = policy("p", "Deployment", "web", &json!({"clusterAffinity": {}}));
        both["spec"]["placement"]["clusterAffinities"] = json!([{"affinityName": "a"}]);
        let mut elsewhere = policy("p", "Deployment", "web", &json!({}));
        elsewhere["spec"]["resourceSelectors"][0]["namespace"] = "other".into();
        let overriding = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": "p"}, "spec": {"targetCluster": {}, "overrideRules": [{"overriders": {}}]}});
        for (object, expected) in [
            (both, "clusterAffinities cannot co-exist with clusterAffinity"),
            (elsewhere, "namespace of resource selector must be the same as the namespace of the policy"),
            (overriding, "overrideRules and targetCluster can't co-exist"),
        ] {
            let said = refusal(stage, &object).await?;
            ensure!(said.contains(expected), "{expected} is not in {said}");
        }
        Ok(())
    })
    .await
}

async fn refusal(stage: &federlet_e2e::stage::Stage, object: &Value) -> Result<String> {
    let mut command = stage.host.command(&["create", "-f", "-"])?;
    command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().ok_or_else(|| anyhow::anyhow!("no standard input"))?;
    tokio::io::AsyncWriteExt::write_all(&mut stdin, object.to_string().as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    ensure!(!output.status.success(), "it was taken");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_fits_and_everybody_is_told_why() -> Result<()> {
    beside("unfit", async |stage| {
        let nowhere = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"no": "cluster"}}},
            "replicaScheduling": {"replicaSchedulingType": "Divided"}});
        stage.obey(&policy("web", "Deployment", "web", &nowhere)).await?;
        stage.create(&deployment("web", 1)).await?;
        let told = stage.told("web", "NoClusterFit").await?;
        ensure!(told.contains(MEMBER1) && told.contains("labels do not match"), "{told}");
        let pod = stage.host.run("get pods -l app=web -o jsonpath={.items[0].metadata.name}").await?;
        stage.told(&pod, "NoClusterFit").await?;
        let condition = "jsonpath={.status.conditions[?(@.type==\"Scheduled\")].reason}";
        eventually("the binding says so", SOON, async || {
            let said = stage.host.args(&["get", "rb", "web-deployment", "-o", condition]).await?;
            ensure!(said == "NoClusterFit", "it says {said:?}");
            Ok(())
        })
        .await?;
        // It waits, and goes on as soon as there is a way.
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.has("app=web", 0, 1).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_makes_no_sense_disturbs_nobody() -> Result<()> {
    beside("senseless", async |stage| {
        // The schema lets it through, and nobody can obey it.
        let senseless = json!({"clusterAffinity": {"clusterNames": [MEMBER1, "no-such-cluster"]},
            "clusterTolerations": [{"key": "a", "operator": "Exists", "value": "and a value"}],
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
        stage.obey(&policy("senseless", "Deployment", "senseless", &senseless)).await?;
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.create(&deployment("senseless", 1)).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_webhook_only_covered_namespaces_wait() -> Result<()> {
    alone("unanswered", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.fleet.serve.kill().await?;
        // Where a policy is, nothing lands unsteered, and the refusal says whose it is.
        let said = refusal(
            stage,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
            "spec": {"containers": [{"name": "app", "image": "nginx"}]}}),
        )
        .await?;
        ensure!(said.contains("pods.federlet.io"), "{said}");
        stage.create(&deployment("web", 3)).await?;
        // Elsewhere nobody notices.
        let elsewhere = format!("{}-free", stage.namespace);
        stage.fleet.host.kubectl_output(&["create", "namespace", &elsewhere]).await?;
        let free = federlet_e2e::Kubectl::new(stage.fleet.host.clone(), &elsewhere);
        pipe(&free, &["create", "-f", "-"], &deployment("web", 1)).await?;
        free.run("rollout status deployment/web --timeout=60s").await?;
        stage.fleet.host.kubectl_output(&["delete", "namespace", &elsewhere, "--wait=false"]).await?;
        ensure!(stage.counts("app=web").await?.is_empty());
        // Back again, what was refused is made good.
        stage.fleet.serve.restart().await?;
        stage.fleet.answers(MEMBER2).await?;
        stage.has("app=web", 1, 2).await
    })
    .await
}
