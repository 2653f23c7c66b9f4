//! What nodes and pods use, as metrics collectors ask for it.

use anyhow::{Context, Result, ensure};
use federlet_e2e::Kubectl;
use federlet_sandbox::Sandbox;
use serde_json::{Value, json};

use super::{
    embedded::proxied,
    objects::{create, pod, spec},
    process::Process,
};

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_told_in_the_words_of_a_kubelet() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-usage").await?;
    sandbox
        .in_namespace("usage", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            create(&kubectl, &pod("p", &spec(&node.name, json!({})))).await?;
            kubectl.run("wait pod/p --for=condition=Ready --timeout=60s").await?;
            let uid = kubectl.run("get pod p -o jsonpath={.metadata.uid}").await?;
            let get = async |path: &str| proxied(&host, &node.name, path).await;

            let summary: Value = serde_json::from_str(&get("stats/summary").await?)?;
            ensure!(summary["node"]["nodeName"] == node.name.as_str(), "{summary}");
            let stats = summary["pods"].as_array().context("no pods")?;
            let own =
                stats.iter().find(|pod| pod["podRef"]["uid"] == uid.as_str()).context("not this pod")?;
            ensure!(own["containers"][0]["name"] == "app", "{own}");
            ensure!(own["memory"]["workingSetBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{own}");

            let labels = format!(r#"namespace="{}",pod="p"}}"#, space.namespace);
            for path in ["metrics/resource", "metrics/cadvisor"] {
                let text = get(path).await?;
                for name in ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes"] {
                    let line = text.lines().find(|l| l.starts_with(name) && l.contains(&labels));
                    ensure!(line.is_some(), "{path}: {name} is not in\n{text}");
                }
            }
            ensure!(get("metrics/resource").await?.contains("\nnode_memory_working_set_bytes "));
            ensure!(get("metrics").await?.contains("federlet_build_info"));
            let configz: Value = serde_json::from_str(&get("configz").await?)?;
            ensure!(configz["kubeletconfig"]["streamingConnectionIdleTimeout"] == "14400s", "{configz}");
            ensure!(configz["kubeletconfig"]["clusterDomain"] == "cluster.local", "{configz}");
            ensure!(get("logs/syslog").await.is_err());
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}
