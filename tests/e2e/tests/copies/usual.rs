//! Workloads with a copy in each of several clusters.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON, audit,
    fleet::{MEMBER1, MEMBER2},
    scene::{Scene, beside, deployment, policy, template},
    stage::Stage,
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

/// A placement with all replicas on both members.
pub(crate) fn both() -> Value {
    json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]}})
}

/// Ready pods of a member that are not ending, by name.
pub(crate) async fn there(stage: &Stage, member: &str, selector: &str) -> Result<BTreeMap<String, Value>> {
    let member = Kubectl::new(stage.fleet.sandbox.cluster(member)?, &stage.namespace);
    let found: Value =
        serde_json::from_str(&member.args(&["get", "pods", "-l", selector, "-o", "json"]).await?)?;
    let mut pods = BTreeMap::new();
    for pod in found["items"].as_array().context("a list")? {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
        if ready && pod["metadata"]["deletionTimestamp"].is_null() {
            pods.insert(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod.clone());
        }
    }
    Ok(pods)
}

/// Waits until so many pods run in each member, and are ready on the fleet's node.
pub(crate) async fn copied(
    stage: &Stage,
    selector: &str,
    count: usize,
    first: usize,
    second: usize,
) -> Result<()> {
    let wanted: BTreeMap<String, usize> = [("fleet", count), (MEMBER1, first), (MEMBER2, second)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(node, count)| (node.to_owned(), count))
        .collect();
    eventually(&format!("{selector} has {first} and {second} copies"), 2 * SOON, async || {
        let found = stage.counts(selector).await?;
        ensure!(found == wanted, "there are {found:?}");
        for (member, count) in [("member1", first), ("member2", second)] {
            let found = there(stage, member, selector).await?;
            ensure!(found.len() == count, "{member} has {:?}", found.keys());
        }
        Ok(())
    })
    .await
}

/// The names of the pods on the fleet's node.
async fn pods(stage: &Stage, selector: &str) -> Result<Vec<String>> {
    let words = ["get", "pods", "-l", selector, "--field-selector", "spec.nodeName=fleet", "-o"];
    let names = stage.host.args(&[&words[..], &["jsonpath={.items[*].metadata.name}"]].concat()).await?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_runs_whole_in_each_cluster_through_scaling_and_rollouts() -> Result<()> {
    beside("copies", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &both())).await?;
        stage.create(&deployment("web", 2)).await?;
        stage.host.run("rollout status deployment/web --timeout=120s").await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        ensure!(stage.host.run("get deployment web -o jsonpath={.status.readyReplicas}").await? == "2");
        // Each has the name of its pod, and only copies have an address.
        let mut names = pods(stage, "app=web").await?;
        names.sort();
        let found: Vec<String> = there(stage, "member2", "app=web").await?.into_keys().collect();
        ensure!(found == names, "{found:?} and {names:?}");
        ensure!(stage.field(&names[0], ".status.podIP").await?.is_empty());
        let said =
            stage.field(&names[0], r#".status.conditions[?(@.type=="federlet.io/copies")].message"#).await?;
        ensure!(said == format!("{MEMBER1}=Ready, {MEMBER2}=Ready"), "{said}");
        let path =
            "jsonpath={.spec.replicas} {.spec.copies} {.spec.clusters[*].name} {.spec.clusters[*].replicas}";
        eventually("the binding says so", SOON, async || {
            let said = stage.host.args(&["get", "rb", "web-deployment", "-o", path]).await?;
            ensure!(said == format!("2 4 {MEMBER1} {MEMBER2} 2 2"), "it says {said:?}");
            Ok(())
        })
        .await?;
        // A pod is written once to be placed, and a copy once to be made.
        let placed = audit::patches(&stage.fleet.host, &stage.namespace, "(serve)")?;
        ensure!(placed.len() == 2 && placed.values().all(|count| *count == 1), "{placed:?}");
        ensure!(names.iter().all(|name| placed.contains_key(name)), "{placed:?}");
        for replicas in [3, 1] {
            stage.host.run(&format!("scale deployment/web --replicas={replicas}")).await?;
            copied(stage, "app=web", replicas, replicas, replicas).await?;
        }
        stage.host.run("scale deployment/web --replicas=2").await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        stage.host.run("set env deployment/web MORE=yes").await?;
        stage.host.run("rollout status deployment/web --timeout=120s").await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        for pod in there(stage, "member1", "app=web").await?.values() {
            ensure!(pod["spec"]["containers"][0]["env"].to_string().contains("MORE"), "an old one is there");
        }
        // The object that the user wrote is as they wrote it, and goes with all that came of it.
        let written = stage.host.run("get deployment web -o jsonpath={.spec.template}").await?;
        ensure!(!written.contains("federlet"), "{written}");
        stage.host.run("delete deployment web").await?;
        copied(stage, "app=web", 0, 0, 0).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_has_the_same_names_in_each_cluster() -> Result<()> {
    beside("copiedset", async |stage| {
        stage.obey(&policy("db", "StatefulSet", "db", &both())).await?;
        let mut pods = template("db");
        pods["spec"]["containers"][0]["env"] =
            json!([{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": pods}});
        stage.create(&set).await?;
        stage.host.run("rollout status statefulset/db --timeout=120s").await?;
        copied(stage, "app=db", 2, 2, 2).await?;
        for member in ["member1", "member2"] {
            let names: Vec<String> = there(stage, member, "app=db").await?.into_keys().collect();
            ensure!(names == ["db-0", "db-1"], "{member} has {names:?}");
        }
        let said = stage.exec("db-1", "hostname; echo $POD").await?;
        ensure!(said == "db-1\ndb-1", "{said}");
        // One at a time, the same name again.
        stage.host.run("set env statefulset/db MORE=yes").await?;
        stage.host.run("rollout status statefulset/db --timeout=120s").await?;
        copied(stage, "app=db", 2, 2, 2).await?;
        stage.host.run("delete pod db-0 --timeout=60s").await?;
        copied(stage, "app=db", 2, 2, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_done_when_it_is_done_everywhere() -> Result<()> {
    beside("copiedjob", async |stage| {
        for name in ["once", "badly"] {
            stage.obey(&policy(name, "Job", name, &both())).await?;
        }
        let job = |name: &str, command: &str| {
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
                "completions": 2, "parallelism": 2, "backoffLimit": 0, "completionMode": "Indexed",
                "template": {"spec": {"restartPolicy": "Never",
                    "containers": [{"name": "app", "image": "busybox", "command": ["sh", "-c", command]}]}}}})
        };
        stage.create(&job("once", "echo index $JOB_COMPLETION_INDEX")).await?;
        stage.create(&job("badly", "exit 7")).await?;
        stage.host.run("wait job/once --for=condition=Complete --timeout=120s").await?;
        for member in ["member1", "member2"] {
            let member = Kubectl::new(stage.fleet.sandbox.cluster(member)?, &stage.namespace);
            let done = "get pods -l job-name=once -o jsonpath={.items[*].status.phase}";
            ensure!(member.run(done).await? == "Succeeded Succeeded");
        }
        let logs = stage.host.run("logs -l job-name=once,!federlet.io/copy-of").await?;
        for line in [format!("[{MEMBER1}] index 0"), format!("[{MEMBER2}] index 1")] {
            ensure!(logs.lines().any(|one| one == line), "{line} is not in {logs}");
        }
        stage.host.run("wait job/badly --for=condition=Failed --timeout=120s").await?;
        let pods = pods(stage, "job-name=badly").await?;
        let code = stage.field(&pods[0], ".status.containerStatuses[0].state.terminated.exitCode").await?;
        ensure!(code == "7", "{code}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_a_pod_with_copies_leads_to_the_first_of_them() -> Result<()> {
    beside("copyport", async |stage| {
        stage.obey(&policy("web", "Pod", "web", &both())).await?;
        stage
            .create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
                "spec": template("web")["spec"]}))
            .await?;
        copied(stage, "app=web", 1, 1, 1).await?;
        for (pod, path) in [("web".to_owned(), "/whole"), (format!("web-{MEMBER2}"), "/second")] {
            let forward = stage.host.port_forward(&format!("pod/{pod}"), 80).await?;
            let answer = forward.get(path).await?;
            ensure!(answer.contains("404"), "{pod} answered {answer}");
            ensure!(forward.get("/").await?.contains("Welcome to nginx"), "{pod} has another page");
        }
        // Each server saw the request that was for it.
        eventually("the requests are in the logs", SOON, async || {
            let first = stage.host.run(&format!("logs web-{MEMBER1}")).await?;
            let second = stage.host.run(&format!("logs web-{MEMBER2}")).await?;
            ensure!(first.contains("/whole") && !first.contains("/second"), "the first says {first}");
            ensure!(second.contains("/second") && !second.contains("/whole"), "the second says {second}");
            Ok(())
        })
        .await
    })
    .await
}
