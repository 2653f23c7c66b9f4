//! What operators do to a fleet, and what happens to it: each test disturbs it, so one plays at a time.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON, audit,
    fleet::{BEIJING, MEMBER1, MEMBER2},
    objects::{pipe, pod, spec, workload},
    stage::{Stage, on_stage},
};
use federlet_sandbox::{Cluster, eventually};
use serde_json::{Value, json};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

async fn condition(host: &Cluster, node: &str, kind: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].status}}");
    host.kubectl_output(&["get", "node", node, "-o", &path]).await
}

async fn becomes(host: &Cluster, node: &str, kind: &str, status: &str) -> Result<()> {
    eventually(&format!("{node} says {kind}={status}"), 2 * SOON, async || {
        let found = condition(host, node, kind).await?;
        ensure!(found == status, "it says {found}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn cordon_and_drain_move_pods_and_respect_budgets() -> Result<()> {
    let _alone = ALONE.lock().await;
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

/// What must be the same before and after an outage: the UIDs of both sides and how often containers restarted.
async fn lives(stage: &Stage, member: &Kubectl, pods: &[&str]) -> Result<BTreeMap<String, String>> {
    let path = "jsonpath={.metadata.uid} {.status.phase} {.status.containerStatuses[0].restartCount}";
    let mut lives = BTreeMap::new();
    for name in pods {
        for (side, kubectl) in [("host", &stage.host), ("member", member)] {
            lives.insert(format!("{side}/{name}"), kubectl.args(&["get", "pod", name, "-o", path]).await?);
        }
    }
    Ok(lives)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_two_minutes_ends_nothing() -> Result<()> {
    let _alone = ALONE.lock().await;
    on_stage("outage", async |stage| {
        let host = &stage.fleet.host;
        let (member1, edge) = (stage.fleet.sandbox.cluster("member1")?, stage.fleet.sandbox.cluster("edge")?);
        let there = Kubectl::new(edge.clone(), &format!("{}-{BEIJING}", stage.namespace));
        stage.create(&pod("stays", &spec(MEMBER1, json!({})))).await?;
        stage.create(&pod("keeps", &spec(BEIJING, json!({})))).await?;
        for name in ["stays", "keeps"] {
            stage.ready(name).await?;
        }
        let before =
            (lives(stage, &stage.member, &["stays"]).await?, lives(stage, &there, &["keeps"]).await?);
        member1.partition().await?;
        edge.partition().await?;
        let played = async {
            becomes(host, MEMBER1, "Ready", "False").await?;
            becomes(host, BEIJING, "MemberReachable", "False").await?;
            ensure!(condition(host, BEIJING, "Ready").await? == "True", "a region keeps its node");
            eventually("the region takes no new pods", SOON, async || {
                let taints = host
                    .kubectl_output(&["get", "node", BEIJING, "-o", "jsonpath={.spec.taints[*].key}"])
                    .await?;
                ensure!(taints.contains("federlet.io/member-unreachable"), "{taints}");
                Ok(())
            })
            .await?;
            for name in ["stays", "keeps"] {
                stage.says(name, ".status.conditions[?(@.type==\"Ready\")].status", "False").await?;
                ensure!(stage.field(name, ".status.phase").await? == "Running");
            }
            // A pod that comes meanwhile waits and says for what.
            stage
                .create(&pod("new", &{
                    let mut new = spec(MEMBER1, json!({"nodeName": MEMBER1}));
                    new["tolerations"] = json!([{"operator": "Exists"}]);
                    new
                }))
                .await?;
            tokio::time::sleep(Duration::from_secs(75)).await;
            stage.says("new", ".status.reason", "ProviderUnavailable").await
        }
        .await;
        member1.heal().await?;
        edge.heal().await?;
        played?;
        becomes(host, MEMBER1, "Ready", "True").await?;
        becomes(host, BEIJING, "MemberReachable", "True").await?;
        for name in ["stays", "keeps", "new"] {
            stage.ready(name).await?;
        }
        let after = (lives(stage, &stage.member, &["stays"]).await?, lives(stage, &there, &["keeps"]).await?);
        ensure!(before == after, "before {before:?}, after {after:?}");
        for (name, writes) in audit::writes(host, &stage.namespace)? {
            // Pending, Running; Ready no more and again; for the one that came meanwhile also why it waited.
            ensure!(writes <= 8, "{name} was written {writes} times");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_leaves_one_pod_for_each_and_no_orphans() -> Result<()> {
    let _alone = ALONE.lock().await;
    on_stage("killed", async |stage| {
        let serve = &stage.fleet.serve;
        // No machine of the member takes them, so that two hundred cost nothing; all else about them is real.
        let mut object = pod("pod", &spec(MEMBER1, json!({"nodeName": MEMBER1})));
        object["metadata"]["annotations"] =
            json!({"federlet.io/constraints": json!({"nodeSelector": {"no": "where"}}).to_string()});
        stage.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}, "stringData": {"a": "b"}})).await?;
        object["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "own"}}]);
        let list: Vec<Value> = (0..200)
            .map(|number| {
                let mut object = object.clone();
                object["metadata"]["name"] = format!("pod-{number}").into();
                object
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": list});
        let create = pipe(&stage.host, &["create", "-f", "-"], &list);
        let disturb = async {
            for pause in [900, 350, 1700, 120, 2600, 700] {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                serve.kill().await?;
                serve.restart().await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        let remove = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            for number in (0..200).step_by(4) {
                let _ = stage.host.args(&["delete", "pod", &format!("pod-{number}"), "--wait=false"]).await;
            }
            Ok::<_, anyhow::Error>(())
        };
        let (created, disturbed, removed) = tokio::join!(create, disturb, remove);
        created?;
        disturbed?;
        removed?;
        // Some may have been deleted before they were created.
        for number in (0..200).step_by(4) {
            let _ = stage.host.args(&["delete", "pod", &format!("pod-{number}"), "--wait=false"]).await;
        }
        eventually("each host pod has its one pod in the member", 3 * SOON, async || {
            let uids = |text: String| -> Result<Vec<String>> {
                let mut uids: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
                uids.sort();
                Ok(uids)
            };
            let host = uids(stage.host.run("get pods -o jsonpath={.items[*].metadata.uid}").await?)?;
            let path = "get pods -o jsonpath={.items[*].metadata.labels.federlet\\.io/host-uid}";
            let member = uids(stage.member.run(path).await?)?;
            ensure!(host.len() == 150, "the host has {} pods", host.len());
            ensure!(host == member, "{} pods on the host, {} in the member", host.len(), member.len());
            Ok(())
        })
        .await
        .with_context(|| serve.tail())?;
        stage.host.run("delete pods --all --wait=false").await?;
        eventually("nothing of ours is left but the anchor", 2 * SOON, async || {
            let left = stage.member.run("get pods,secrets,configmaps,services -l federlet.io/host -o name").await?;
            let left: Vec<&str> = left.lines().filter(|name| !name.starts_with("configmap/federlet-")).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    })
    .await
}
