//! Many nodes in one process, from one watch of the host.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_node::memory::MemoryProvider;
use federlet_sandbox::{Cluster, Sandbox, eventually};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{
    embedded::{Embedded, proxied},
    objects::{create, pod, spec},
    scripted::Scripted,
};

async fn names(host: &Cluster, node: &str, path: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(&proxied(host, node, path).await?)?;
    let items = list["items"].as_array().context("no list")?;
    let mut names: Vec<String> =
        items.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect();
    names.sort();
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_one_process_do_not_wait_for_each_other() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let (quick, slow) = ("e2e-quick", "e2e-slow");
    let sluggard = Arc::new(Scripted::default());
    let mut embedded = Embedded::start(&host).await?;
    embedded.serve(quick, Arc::new(MemoryProvider::default())).await?;
    let port = embedded.serve(slow, sluggard.clone()).await?;
    sandbox
        .in_namespace("many", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            sluggard.hang(true);
            // More than the slow node has workers.
            let pods = |node: &str, count: usize| -> Vec<Value> {
                let bound = spec(node, json!({"nodeName": node}));
                (0..count).map(|n| pod(&format!("{node}-{n:03}"), &bound)).collect()
            };
            let items = [pods(slow, 100), pods(quick, 20)].concat();
            create(&kubectl, &json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
            for n in 0..20 {
                kubectl.run(&format!("wait pod/{quick}-{n:03} --for=condition=Ready --timeout=60s")).await?;
            }
            ensure!(sluggard.calls(&format!("{slow}-000")).is_empty(), "it was slow enough");

            // A port speaks for its node.
            let expected: Vec<String> = (0..20).map(|n| format!("{quick}-{n:03}")).collect();
            ensure!(names(&host, quick, "runningpods/").await? == expected);
            ensure!(names(&host, quick, "pods").await? == expected);
            ensure!(names(&host, slow, "pods").await?.len() == 100);
            let stats: Value = serde_json::from_str(&proxied(&host, quick, "stats/summary").await?)?;
            ensure!(
                stats["node"]["nodeName"] == quick && stats["pods"].as_array().is_some_and(|p| p.len() == 20)
            );
            ensure!(proxied(&host, slow, "stats/summary").await.is_err(), "its provider has none");
            let log = kubectl.run(&format!("logs {quick}-000 --tail=1")).await?;
            ensure!(log.contains("is running"), "{log}");

            sluggard.hang(false);
            for n in 0..100 {
                kubectl.run(&format!("wait pod/{slow}-{n:03} --for=condition=Ready --timeout=60s")).await?;
            }
            ensure!(sluggard.calls(&format!("{slow}-000")) == ["create"]);

            // One leaves, with its port; the other stays. Then it comes back, on another port.
            embedded.stop(slow).await?;
            ensure!(TcpStream::connect((embedded.address, port)).await.is_err(), "its port is open");
            ensure!(names(&host, quick, "runningpods/").await? == expected);
            ensure!(!embedded.metrics.encode().contains(slow), "{}", embedded.metrics.encode());
            embedded.serve(slow, sluggard.clone()).await?;
            eventually("its pods are known again", SOON, async || {
                let known = names(&host, slow, "runningpods/").await?.len();
                ensure!(known == 100, "{known}");
                Ok(())
            })
            .await?;
            kubectl.run("delete pods --all --wait=false --force --grace-period=0").await?;
            Ok(())
        })
        .await?;
    embedded.finish().await
}
