//! Workloads leave clusters in which they do not work, and clusters that are taken from them.

use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
    scene::{Scene, alone, beside, deployment, one_to_two, policy, weights},
    stage::Stage,
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

/// An image that is in no registry, for one cluster.
fn broken_in(cluster: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "broken"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": kind, "name": name}],
            "overrideRules": [{"targetCluster": {"clusterNames": [cluster]}, "overriders": {"imageOverrider": [
                {"component": "Tag", "operator": "replace", "value": "none-such"}]}}],
        },
    })
}

/// A policy that gives a cluster up after a few seconds.
fn fails_over(name: &str, placement: &Value, purge: &str) -> Value {
    let mut policy = policy(name, "Deployment", name, placement);
    policy["spec"]["propagateDeps"] = json!(true);
    policy["spec"]["failover"] =
        json!({"application": {"decisionConditions": {"tolerationSeconds": 5}, "purgeMode": purge}});
    policy
}

/// From now on the policy gives up no cluster in which pods merely take long to start, as on a busy machine they do.
async fn is_patient(stage: &Stage, policy: &str) -> Result<()> {
    let patience =
        json!({"spec": {"failover": {"application": {"decisionConditions": {"tolerationSeconds": 600}}}}});
    let patience = patience.to_string();
    stage.host.args(&["patch", "propagationpolicy", policy, "--type=merge", "-p", &patience]).await?;
    Ok(())
}

async fn binding(stage: &Stage, name: &str) -> Result<Value> {
    let found = stage.host.args(&["get", "rb", &format!("{name}-deployment"), "-o", "json"]).await?;
    Ok(serde_json::from_str(&found)?)
}

/// Waits until the workload has left a cluster, and is not leaving it any more.
async fn has_left(stage: &Stage, name: &str, cluster: &str) -> Result<()> {
    eventually(&format!("{name} has left {cluster}"), SOON, async || {
        let spec = binding(stage, name).await?["spec"].take();
        ensure!(spec["gracefulEvictionTasks"].as_array().is_none_or(Vec::is_empty), "{spec}");
        ensure!(spec["leftClusters"][0]["name"] == cluster, "{spec}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_leaves_a_cluster_in_which_it_does_not_work() -> Result<()> {
    beside("unwell", async |stage| {
        stage.obey(&fails_over("web", &one_to_two(), "Gracefully")).await?;
        stage.apply(&broken_in(MEMBER2, "Deployment", "web")).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 3, 0).await?;
        let told = stage.told("web", "FailedOver").await?;
        ensure!(told.contains(&format!("unhealthy in {MEMBER2}")) && told.contains(MEMBER1), "{told}");
        has_left(stage, "web", MEMBER2).await?;
        // What comes goes where it works.
        stage.host.run("scale deployment/web --replicas=4").await?;
        stage.has("app=web", 4, 0).await?;
        // Other pods may work there: it tries again.
        is_patient(stage, "web").await?;
        stage.host.run("delete overridepolicy broken").await?;
        stage.host.run("set env deployment/web TRY=again").await?;
        stage.host.run("scale deployment/web --replicas=3").await?;
        stage.has("app=web", 1, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_be_nowhere_else_stays() -> Result<()> {
    beside("nowhere", async |stage| {
        // In both members it is the same: no cluster is to blame.
        let mut broken = broken_in(MEMBER1, "Deployment", "web");
        broken["spec"]["overrideRules"][0]["targetCluster"]["clusterNames"] = json!([MEMBER1, MEMBER2]);
        stage.obey(&fails_over("web", &weights(1, 1), "Directly")).await?;
        stage.apply(&broken).await?;
        stage.create(&deployment("web", 2)).await?;
        let told = stage.told("web", "CannotFailOver").await?;
        ensure!(told.contains("it is no better in"), "{told}");
        let there = stage.host.run("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}").await?;
        let mut there: Vec<&str> = there.split_whitespace().collect();
        there.sort_unstable();
        ensure!(there == [MEMBER1, MEMBER2], "{there:?}");
        let spec = binding(stage, "web").await?["spec"].take();
        ensure!(spec["gracefulEvictionTasks"].as_array().is_none_or(Vec::is_empty), "{spec}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_keeps_stays_until_the_person_lets_go() -> Result<()> {
    beside("kept", async |stage| {
        stage.obey(&fails_over("web", &weights(1, 1), "Never")).await?;
        stage.apply(&broken_in(MEMBER2, "Deployment", "web")).await?;
        stage.create(&deployment("web", 2)).await?;
        let told = stage.told("web", "FailedOver").await?;
        ensure!(told.contains("suppressDeletion"), "{told}");
        let task = binding(stage, "web").await?["spec"]["gracefulEvictionTasks"][0].take();
        ensure!(task["suppressDeletion"] == true && task["fromCluster"] == MEMBER2, "{task}");
        // New pods do not go there, the old one stays.
        stage.host.run("scale deployment/web --replicas=4").await?;
        eventually("three work and one stays", SOON, async || {
            let counts = stage.counts("app=web").await?;
            ensure!(counts.get(MEMBER1) == Some(&3) && counts.get("not ready") == Some(&1), "{counts:?}");
            Ok(())
        })
        .await?;
        let go = r#"[{"op": "replace", "path": "/spec/gracefulEvictionTasks/0/suppressDeletion", "value": false}]"#;
        stage.host.args(&["patch", "rb", "web-deployment", "--type=json", "-p", go]).await?;
        stage.has("app=web", 4, 0).await?;
        has_left(stage, "web", MEMBER2).await?;
        // It comes back when a person asks for it.
        is_patient(stage, "web").await?;
        stage.host.run("delete overridepolicy broken").await?;
        let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1);
        let asked = json!({"spec": {"rescheduleTriggeredAt": format!("{now:.0}")}}).to_string();
        stage.host.args(&["patch", "rb", "web-deployment", "--type=merge", "-p", &asked]).await?;
        stage.has("app=web", 2, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_leave_a_cluster_in_which_they_do_not_work() -> Result<()> {
    beside("unwell-copies", async |stage| {
        let both = json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]}});
        stage.obey(&fails_over("web", &both, "Gracefully")).await?;
        stage.apply(&broken_in(MEMBER2, "Deployment", "web")).await?;
        stage.create(&deployment("web", 2)).await?;
        eventually("all that is left works", 2 * SOON, async || {
            let counts = stage.counts("app=web").await?;
            let wanted = [("fleet".to_owned(), 2), (MEMBER1.to_owned(), 2)].into();
            ensure!(counts == wanted, "{counts:?}");
            Ok(())
        })
        .await?;
        has_left(stage, "web", MEMBER2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_taint_drives_out_of_a_cluster_go_elsewhere() -> Result<()> {
    alone("driven", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.create(&deployment("web", 6)).await?;
        stage.has("app=web", 2, 4).await?;
        let host = &stage.fleet.host;
        let taint = |taints: Value| json!({"spec": {"taints": taints}}).to_string();
        let out = taint(json!([{"key": "test", "value": "out", "effect": "NoExecute"}]));
        host.kubectl_output(&["patch", "cluster", MEMBER2, "--type=merge", "-p", &out]).await?;
        let played = stage.has("app=web", 6, 0).await;
        host.kubectl_output(&["patch", "cluster", MEMBER2, "--type=merge", "-p", &taint(json!(null))])
            .await?;
        played?;
        // Fixed weights are kept when it is there again.
        stage.has("app=web", 2, 4).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_drained_out_of_a_cluster_go_elsewhere() -> Result<()> {
    alone("drained", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.create(&deployment("web", 6)).await?;
        stage.has("app=web", 2, 4).await?;
        let host = &stage.fleet.host;
        let names = async || stage.host.args(&["get", "pods", "-l", "app=web", "-o", "name"]).await;
        let before = names().await?;
        host.kubectl_output(&["cordon", MEMBER2]).await?;
        let played = async {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            let cordoned = names().await?;
            ensure!(cordoned == before, "a cordon alone moves nothing: {cordoned}, and before: {before}");
            let all = ["drain", MEMBER2, "--ignore-daemonsets", "--force", "--pod-selector=app=web"];
            host.kubectl_output(&all).await?;
            stage.has("app=web", 6, 0).await
        }
        .await;
        host.kubectl_output(&["uncordon", MEMBER2]).await?;
        played?;
        stage.has("app=web", 2, 4).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_takes_nothing_new_takes_the_next_version_of_what_it_has() -> Result<()> {
    alone("closed", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await?;
        let host = &stage.fleet.host;
        let taint = |taints: Value| json!({"spec": {"taints": taints}}).to_string();
        let closed = taint(json!([{"key": "test", "value": "closed", "effect": "NoSchedule"}]));
        host.kubectl_output(&["patch", "cluster", MEMBER2, "--type=merge", "-p", &closed]).await?;
        let played = async {
            eventually("the node has the taint", SOON, async || {
                let path = "jsonpath={.spec.taints[*].key}";
                let taints = host.kubectl_output(&["get", "node", MEMBER2, "-o", path]).await?;
                ensure!(taints.split(' ').any(|key| key == "test"), "{taints}");
                Ok(())
            })
            .await?;
            stage.host.run("rollout restart deployment/web").await?;
            stage.host.run("rollout status deployment/web --timeout=90s").await?;
            stage.has("app=web", 1, 2).await
        }
        .await;
        host.kubectl_output(&["patch", "cluster", MEMBER2, "--type=merge", "-p", &taint(json!(null))])
            .await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_leave_a_cluster_that_drives_them_out() -> Result<()> {
    alone("driven-copies", async |stage| {
        let both = json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]}});
        stage.obey(&policy("web", "Deployment", "web", &both)).await?;
        stage.create(&deployment("web", 2)).await?;
        let are = async |clusters: &[&str]| {
            let wanted = ["fleet"].iter().chain(clusters).map(|name| ((*name).to_owned(), 2)).collect();
            eventually(&format!("copies are in {clusters:?}"), 2 * SOON, async || {
                let counts: std::collections::BTreeMap<String, usize> = stage.counts("app=web").await?;
                ensure!(counts == wanted, "{counts:?}");
                Ok(())
            })
            .await
        };
        are(&[MEMBER1, MEMBER2]).await?;
        let host = &stage.fleet.host;
        let taint = |taints: Value| json!({"spec": {"taints": taints}}).to_string();
        let out = taint(json!([{"key": "test", "value": "out", "effect": "NoExecute"}]));
        host.kubectl_output(&["patch", "cluster", MEMBER2, "--type=merge", "-p", &out]).await?;
        let played = are(&[MEMBER1]).await;
        host.kubectl_output(&["patch", "cluster", MEMBER2, "--type=merge", "-p", &taint(json!(null))])
            .await?;
        played?;
        are(&[MEMBER1, MEMBER2]).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_leave_a_cluster_that_fails_one_after_the_other() -> Result<()> {
    alone("graceful", async |stage| {
        let mut gracefully = policy("web", "Deployment", "web", &one_to_two());
        gracefully["spec"]["failover"] = json!({"cluster": {"purgeMode": "Gracefully"}});
        stage.obey(&gracefully).await?;
        stage.create(&deployment("web", 6)).await?;
        stage.has("app=web", 2, 4).await?;
        stage.host.run("rollout status deployment/web --timeout=60s").await?;
        let path = "jsonpath={.status.availableReplicas}{\"\\n\"}";
        let mut watch = stage.host.command(&["get", "deployment", "web", "--watch", "-o", path])?;
        let mut watch = watch.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn()?;
        // As a person does it, on the node alone.
        let host = &stage.fleet.host;
        host.kubectl_output(&["taint", "node", MEMBER2, "test=out:NoExecute"]).await?;
        let played = async {
            stage.has("app=web", 6, 0).await?;
            // In the member they tolerate what they always did, not whatever happens to its machines.
            let path = "jsonpath={.items[0].spec.tolerations[?(@.effect==\"NoExecute\")].tolerationSeconds}";
            let seconds = stage.member.args(&["get", "pods", "-l", "app=web", "-o", path]).await?;
            ensure!(seconds == "300 300", "{seconds:?}");
            let told = stage.told("web", "FailedOver").await?;
            ensure!(told.contains(&format!("a taint of {MEMBER2}")), "{told}");
            Ok(())
        }
        .await;
        host.kubectl_output(&["taint", "node", MEMBER2, "test=out:NoExecute-"]).await?;
        watch.start_kill()?;
        played?;
        let mut seen = String::new();
        if let Some(mut stdout) = watch.stdout.take() {
            stdout.read_to_string(&mut seen).await?;
        }
        let least = seen.lines().filter_map(|line| line.parse::<u32>().ok()).min();
        ensure!(least.is_some_and(|least| least >= 5), "one at a time: {seen}");
        // Fixed weights are kept when it is there again.
        stage.has("app=web", 2, 4).await
    })
    .await
}
