use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON, audit,
    fleet::{BEIJING, MEMBER1, MEMBER2},
    objects::{pod, spec, workload},
    stage::{Stage, on_stage},
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{MEMBERS, REGIONS, becomes, condition};

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

/// The most that is written about each during the outage, beside pods. A Lease is renewed every ten seconds, and the
/// outage may take five minutes on a slow machine; a node and its Cluster say that they are away, and of the regions also
/// with a taint; an Event is told once for each pod and node.
const LIMITS: [(&str, usize); 6] = [
    ("leases/fleet-member1", 40),
    ("leases/ke-beijing-cluster", 40),
    ("nodes/fleet-member1", 12),
    ("nodes/ke-beijing-cluster", 12),
    ("clusters/fleet-member1", 8),
    ("events/", 24),
];

/// How often we wrote what is about nodes, and Events in the namespace of the test.
fn written(stage: &Stage) -> Result<BTreeMap<String, usize>> {
    let mut all = BTreeMap::new();
    let log = std::fs::read_to_string(stage.fleet.host.audit_log())?;
    for line in log.lines().filter(|line| line.contains("federlet/")) {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let is = |field: &str, values: &[&str]| values.contains(&event[field].as_str().unwrap_or_default());
        let ours = event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"));
        if !ours
            || !is("stage", &["ResponseComplete"])
            || !is("verb", &["create", "update", "patch", "delete"])
        {
            continue;
        }
        let text = |field: &str| event["objectRef"][field].as_str().unwrap_or_default().to_owned();
        let key = match text("resource").as_str() {
            "events" if text("namespace") == stage.namespace => "events/".to_owned(),
            kind @ ("nodes" | "clusters" | "leases") => format!("{kind}/{}", text("name")),
            _ => continue,
        };
        *all.entry(key).or_default() += 1;
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_two_minutes_ends_nothing() -> Result<()> {
    let _members = MEMBERS.lock().await;
    let _regions = REGIONS.lock().await;
    on_stage("outage", async |stage| {
        let host = &stage.fleet.host;
        let (member1, edge) = (stage.fleet.sandbox.cluster("member1")?, stage.fleet.sandbox.cluster("edge")?);
        let there = Kubectl::new(edge.clone(), &format!("{}-{BEIJING}", stage.namespace));
        stage.create(&pod("stays", &spec(MEMBER1, json!({})))).await?;
        stage.create(&pod("keeps", &spec(BEIJING, json!({})))).await?;
        for name in ["stays", "keeps"] {
            stage.ready(name).await?;
        }
        // A controller would replace what it takes for lost, and then there would be two.
        let two = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec(MEMBER1, json!({}))}});
        stage.create(&workload("Deployment", "web", &two)).await?;
        stage.host.run("rollout status deployment/web --timeout=60s").await?;
        let uids = async |side: &Kubectl, path: &str| -> Result<Vec<String>> {
            let path = format!("jsonpath={{.items[*].metadata.{path}}}");
            let found = side.args(&["get", "pods", "-l", "app=web", "-o", &path]).await?;
            let mut uids: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
            uids.sort();
            Ok(uids)
        };
        let web = uids(&stage.host, "uid").await?;
        // One that does not wait: its pods are replaced elsewhere, and the old ones end when somebody can tell them.
        let mut impatient = spec(MEMBER1, json!({"nodeSelector": {}}));
        let nodes = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [MEMBER1, MEMBER2]});
        impatient["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [nodes]}]}}});
        for taint in ["not-ready", "unreachable"] {
            let soon = json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 5});
            impatient["tolerations"].as_array_mut().context("no tolerations")?.push(soon);
        }
        let moves = json!({"replicas": 1, "selector": {"matchLabels": {"app": "moves"}},
            "template": {"metadata": {"labels": {"app": "moves"}}, "spec": impatient}});
        stage.host.run(&format!("cordon {MEMBER2}")).await?;
        let placed = async {
            stage.create(&workload("Deployment", "moves", &moves)).await?;
            stage.host.run("rollout status deployment/moves --timeout=60s").await
        }
        .await;
        stage.host.run(&format!("uncordon {MEMBER2}")).await?;
        placed?;
        // Its pod is nowhere but on the host, so it can go while nobody answers.
        let mut everywhere = spec(MEMBER1, json!({}));
        everywhere["tolerations"] = json!([{"operator": "Exists"}]);
        let agent = json!({"selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": everywhere}});
        stage.create(&workload("DaemonSet", "agent", &agent)).await?;
        stage.host.run("rollout status daemonset/agent --timeout=60s").await?;
        let before =
            (lives(stage, &stage.member, &["stays"]).await?, lives(stage, &there, &["keeps"]).await?);
        let wrote = written(stage)?;
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
            eventually("an impatient workload is in the other member", 2 * SOON, async || {
                let path = "jsonpath={.items[?(@.status.phase==\"Running\")].spec.nodeName}";
                let nodes = stage.host.args(&["get", "pods", "-l", "app=moves", "-o", path]).await?;
                ensure!(nodes.contains(MEMBER2), "{nodes}");
                Ok(())
            })
            .await?;
            stage.host.run("delete daemonset agent --timeout=30s").await?;
            eventually("the pod of the DaemonSet is gone", SOON, async || {
                let pods = stage.host.run("get pods -l app=agent -o name").await?;
                ensure!(pods.is_empty(), "{pods}");
                Ok(())
            })
            .await?;
            // A pod that comes meanwhile waits and says for what.
            stage
                .create(&pod("new", &{
                    let mut new = spec(MEMBER1, json!({"nodeName": MEMBER1}));
                    new["tolerations"] = json!([{"operator": "Exists"}]);
                    new
                }))
                .await?;
            tokio::time::sleep(Duration::from_secs(75)).await;
            stage.says("new", ".status.reason", "ProviderUnavailable").await?;
            written(stage)
        }
        .await;
        member1.heal().await?;
        edge.heal().await?;
        let during = played?;
        becomes(host, MEMBER1, "Ready", "True").await?;
        becomes(host, BEIJING, "MemberReachable", "True").await?;
        for name in ["stays", "keeps", "new"] {
            stage.ready(name).await?;
        }
        let after = (lives(stage, &stage.member, &["stays"]).await?, lives(stage, &there, &["keeps"]).await?);
        ensure!(before == after, "before {before:?}, after {after:?}");
        let known = "labels.federlet\\.io/host-uid";
        let (now, there) = (uids(&stage.host, "uid").await?, uids(&stage.member, known).await?);
        ensure!(now == web && there == web, "before {web:?}, now {now:?}, in the member {there:?}");
        eventually("what was replaced has ended", SOON, async || {
            let left = stage.member.run("get pods -l app=moves -o name").await?;
            ensure!(left.is_empty(), "{left} is in the first member");
            let path = "jsonpath={.items[*].spec.nodeName}";
            let nodes = stage.host.args(&["get", "pods", "-l", "app=moves", "-o", path]).await?;
            ensure!(nodes == MEMBER2, "{nodes}");
            Ok(())
        })
        .await?;
        for (what, most) in LIMITS {
            let count = during.get(what).unwrap_or(&0).saturating_sub(*wrote.get(what).unwrap_or(&0));
            ensure!(
                count <= most,
                "{what} was written {count} times while the members were away: {during:?}"
            );
        }
        for (name, writes) in audit::writes(host, &stage.namespace)? {
            // Pending, Running; Ready no more and again; for the one that came meanwhile also why it waited.
            ensure!(writes <= 8, "{name} was written {writes} times");
        }
        Ok(())
    })
    .await
}
