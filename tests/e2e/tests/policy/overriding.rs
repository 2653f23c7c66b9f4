use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{MEMBER1, MEMBER2},
    scene::{Scene, beside, deployment, policy, weights},
    stage::Stage,
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

fn overriding(name: &str, cluster: &str, overriders: &Value) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": name},
    "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
        "overrideRules": [{"targetCluster": {"clusterNames": [cluster]}, "overriders": overriders}],
    }})
}

/// What a field of the one pod in a member says.
async fn there(stage: &Stage, member: &str, path: &str, expected: &str) -> Result<()> {
    let member = Kubectl::new(stage.fleet.sandbox.cluster(member)?, &stage.namespace);
    eventually(&format!("{path} is {expected} in {}", stage.namespace), 2 * SOON, async || {
        let found = member
            .args(&["get", "pods", "-l", "app=web", "-o", &format!("jsonpath={{.items[*]{path}}}")])
            .await?;
        ensure!(found == expected, "it is {found:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_changes_pods_of_one_member() -> Result<()> {
    beside("override", async |stage| {
        let image = ".spec.containers[0].image";
        stage.apply(&overriding("image", MEMBER2, &json!({"imageOverrider": [
            {"component": "Repository", "operator": "replace", "value": "busybox"}],
            "commandOverrider": [{"containerName": "app", "operator": "add", "value": ["sleep", "3600"]}]})))
        .await?;
        stage.obey(&policy("web", "Deployment", "web", &weights(1, 1))).await?;
        stage.create(&deployment("web", 2)).await?;
        stage.has("app=web", 1, 1).await?;
        there(stage, "member1", image, "nginx").await?;
        there(stage, "member2", image, "busybox").await?;
        // Labels of a template can change in a pod that runs: nothing is started again.
        let before = stage.host.run("get pods -l app=web -o jsonpath={.items[*].metadata.uid}").await?;
        stage.apply(&overriding("image", MEMBER2, &json!({"imageOverrider": [
            {"component": "Repository", "operator": "replace", "value": "busybox"}],
            "commandOverrider": [{"containerName": "app", "operator": "add", "value": ["sleep", "3600"]}],
            "plaintext": [{"path": "/spec/template/metadata/labels/more", "operator": "add", "value": "yes"}]})))
        .await?;
        there(stage, "member2", ".metadata.labels.more", "yes").await?;
        let after = stage.host.run("get pods -l app=web -o jsonpath={.items[*].metadata.uid}").await?;
        ensure!(before == after, "{before} and {after}");
        // A command cannot: the pod is replaced.
        stage.host.run("delete op image").await?;
        there(stage, "member2", image, "nginx").await?;
        stage.has("app=web", 1, 1).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_that_fails_stops_its_cluster_alone() -> Result<()> {
    beside("overfail", async |stage| {
        stage
            .apply(&overriding(
                "broken",
                MEMBER2,
                &json!({"plaintext": [
            {"path": "/spec/template/spec/no/such/place", "operator": "replace", "value": 1}]}),
            ))
            .await?;
        stage
            .apply(&overriding(
                "outside",
                MEMBER1,
                &json!({"plaintext": [
            {"path": "/spec/replicas", "operator": "replace", "value": 7}]}),
            ))
            .await?;
        stage.obey(&policy("web", "Deployment", "web", &weights(1, 1))).await?;
        stage.create(&deployment("web", 2)).await?;
        stage.told("broken", "ApplyOverridePolicyFailed").await?;
        let told = stage.told("outside", "NotApplicableAtPodLevel").await?;
        ensure!(told.contains("/spec/replicas"), "{told}");
        // Policies say it themselves, those of the whole host too, and until it is over.
        let mut everywhere = overriding(
            &stage.namespace,
            MEMBER1,
            &json!({"plaintext": [
            {"path": "/spec/minReadySeconds", "operator": "add", "value": 1}]}),
        );
        everywhere["kind"] = "ClusterOverridePolicy".into();
        everywhere["spec"]["resourceSelectors"][0]["namespace"] = stage.namespace.as_str().into();
        stage.apply(&everywhere).await?;
        let says = async |policy: &str, kind: &str, status: &str| {
            let path = format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].status}}");
            eventually(&format!("{policy} says {kind}={status}"), SOON, async || {
                let found = stage.host.args(&["get", policy, "-o", &path]).await?;
                ensure!(found == status, "it says {found:?}");
                Ok(())
            })
            .await
        };
        let of_the_host = format!("cop/{}", stage.namespace);
        says("op/outside", "PathsApplicable", "False").await?;
        says("op/broken", "RulesApplied", "False").await?;
        says(&of_the_host, "PathsApplicable", "False").await?;
        everywhere["spec"]["overrideRules"][0]["overriders"] = json!({});
        stage.apply(&everywhere).await?;
        says(&of_the_host, "PathsApplicable", "True").await?;
        stage.host.args(&["delete", &of_the_host]).await?;
        eventually("one runs and the other says why not", SOON, async || {
            let counts = stage.counts("app=web").await?;
            ensure!(counts.get(MEMBER1) == Some(&1) && counts.get("not ready") == Some(&1), "{counts:?}");
            let pods = stage.host.run("get pods -l app=web").await?;
            ensure!(pods.contains("ApplyOverridePolicyFailed"), "{pods}");
            Ok(())
        })
        .await?;
        stage.host.run("delete op broken").await?;
        stage.has("app=web", 1, 1).await
    })
    .await
}
