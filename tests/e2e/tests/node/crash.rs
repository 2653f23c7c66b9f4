//! `kill -9` at every step of a pod's life.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    objects::{create, pod, spec},
    process::Process,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_loses_and_repeats_nothing() -> Result<()> {
    const PODS: usize = 60;
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut node = Process::start(&host, "e2e-crash").await?;
    let result = sandbox
        .in_namespace("crash", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let bound = spec(&node.name, json!({"nodeName": node.name}));
            for round in 0..6 {
                let items: Vec<Value> =
                    (0..PODS / 6).map(|n| pod(&format!("p{}", round * PODS / 6 + n), &bound)).collect();
                create(&kubectl, &json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
                // A different moment in the life of these pods each time.
                tokio::time::sleep(Duration::from_millis(30 * round as u64)).await;
                node.kill().await?;
                node.restart().await?;
            }
            eventually("all run", SOON, async || {
                let names = kubectl.run("get pods --field-selector=status.phase=Running -o name").await;
                let count = names.map_err(|e| e.to_string())?.lines().count();
                if count == PODS { Ok(()) } else { Err(format!("{count} run")) }
            })
            .await?;
            let versions = "get pods -o jsonpath={.items[*].metadata.resourceVersion}";
            let before = kubectl.run(versions).await?;
            node.kill().await?;
            node.restart().await?;
            tokio::time::sleep(Duration::from_secs(8)).await;
            ensure!(kubectl.run(versions).await? == before, "a restart wrote to pods that did not change");
            kubectl.run("delete pods --all --wait=false").await?;
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(120)).await;
                node.kill().await?;
                node.restart().await?;
            }
            eventually("all are gone", SOON, async || {
                let names = kubectl.run("get pods -o name").await.map_err(|e| e.to_string())?;
                if names.is_empty() { Ok(()) } else { Err(names) }
            })
            .await
        })
        .await;
    result.with_context(|| node.log())?;
    node.finish().await
}
