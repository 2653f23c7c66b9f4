use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON, audit,
    fleet::{BEIJING, MEMBER1},
    objects::{pod, spec},
    stage::{Stage, on_stage},
};
use federlet_sandbox::eventually;
use serde_json::json;

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
