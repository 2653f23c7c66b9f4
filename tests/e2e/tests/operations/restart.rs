use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use federlet_e2e::{
    audit,
    fleet::{BEIJING, HANGZHOU, MEMBER1},
    objects::{pod, spec},
    stage::on_stage,
};
use serde_json::json;

use crate::{MEMBERS, REGIONS};

const NODES: [(&str, &str); 3] = [("one", MEMBER1), ("two", BEIJING), ("three", HANGZHOU)];

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_says_nothing_about_pods_that_are_well() -> Result<()> {
    let _members = MEMBERS.lock().await;
    let _regions = REGIONS.lock().await;
    on_stage("restart", async |stage| {
        for (name, node) in NODES {
            stage.create(&pod(name, &spec(node, json!({})))).await?;
        }
        for (name, _) in NODES {
            stage.ready(name).await?;
        }
        let since = async || -> Result<BTreeMap<&str, String>> {
            let mut all = BTreeMap::new();
            for (name, _) in NODES {
                let path = ".status.conditions[?(@.type==\"Ready\")]";
                all.insert(name, stage.field(name, &format!("{path}['status','lastTransitionTime']")).await?);
            }
            Ok(all)
        };
        let before = since().await?;
        let written = audit::writes(&stage.fleet.host, &stage.namespace)?;
        for life in ["first", "second"] {
            stage.fleet.serve.kill().await?;
            stage.fleet.serve.restart().await?;
            // Whoever starts a pod has looked at all others.
            for (name, node) in NODES {
                let next = format!("{name}-{life}");
                stage.create(&pod(&next, &spec(node, json!({})))).await?;
            }
            for (name, node) in NODES {
                stage.ready(&format!("{name}-{life}")).await?;
                stage.fleet.answers(node).await?;
            }
        }
        let after = since().await?;
        ensure!(before == after, "before {before:?}, after {after:?}");
        let now = audit::writes(&stage.fleet.host, &stage.namespace)?;
        for (name, _) in NODES {
            ensure!(
                now.get(name) == written.get(name),
                "{name} was written again: {written:?}, then {now:?}"
            );
        }
        Ok(())
    })
    .await
}
