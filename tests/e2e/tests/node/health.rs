//! Whether the provider is well, and what the host makes of it.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_node::{
    contract::ProviderError,
    node::{NodeSettings, PingThresholds},
};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use serde_json::json;

use super::{
    embedded::{Embedded, answers},
    objects::{create, pod, spec},
    process::remove_node,
    scripted::Scripted,
};

const QUICK: NodeSettings = NodeSettings {
    ping_every: Duration::from_millis(200),
    ping_timeout: Duration::from_secs(1),
    thresholds: PingThresholds { failures: 3, successes: 2 },
    status_every: Duration::from_secs(300),
};

async fn ready(host: &Cluster, node: &str, field: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.conditions[?(@.type==\"Ready\")].{field}}}");
    host.kubectl_output(&["get", "node", node, "-o", &path]).await
}

async fn becomes(host: &Cluster, node: &str, status: &str) -> Result<()> {
    eventually(&format!("Ready of {node} is {status}"), SOON, async || {
        let says = ready(host, node, "status").await?;
        ensure!(says == status, "it is {says}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_glitch_is_nothing_and_an_outage_is_told() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let name = "e2e-health";
    let provider = Arc::new(Scripted::default());
    let mut embedded = Embedded::start(&host).await?;
    embedded.begin(name, provider.clone(), QUICK).await?;
    answers(&host, name).await?;
    sandbox
        .in_namespace("health", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            create(&kubectl, &pod("p", &spec(name, json!({"nodeName": name})))).await?;
            kubectl.run("wait pod/p --for=condition=Ready --timeout=60s").await?;
            let since = ready(&host, name, "lastTransitionTime").await?;

            // Two failures in a row, again and again, are not three.
            for _ in 0..4 {
                let pings = provider.pings();
                provider.fail_pings(2);
                eventually("it was asked", SOON, async || {
                    ensure!(provider.pings() >= pings + 4);
                    Ok(())
                })
                .await?;
            }
            ensure!(ready(&host, name, "lastTransitionTime").await? == since, "it flapped");

            provider.fail("ping", Some(ProviderError::unavailable("connection refused")));
            becomes(&host, name, "False").await?;
            ensure!(ready(&host, name, "reason").await? == "ProviderUnavailable");
            let message = ready(&host, name, "message").await?;
            ensure!(message.starts_with("connection refused; not ready since 20"), "{message}");
            // Its pods are not Ready either, whatever the provider remembers of them.
            kubectl.run("wait pod/p --for=condition=Ready=False --timeout=60s").await?;
            let key = federlet_node::contract::PodKey::new(space.namespace.as_str(), "p");
            provider.report(&key, |status| status["message"] = json!("from before"));
            ensure!(kubectl.run("get pod p -o jsonpath={.status.message}").await?.is_empty());

            provider.fail("ping", None);
            becomes(&host, name, "True").await?;
            // One that does not answer at all is given up, and asked again only then.
            provider.hang_pings(true);
            becomes(&host, name, "False").await?;
            let message = ready(&host, name, "message").await?;
            ensure!(message.starts_with("no answer within 1s"), "{message}");
            ensure!(provider.most_pings_at_once() == 1, "{}", provider.most_pings_at_once());
            provider.hang_pings(false);
            becomes(&host, name, "True").await?;
            kubectl.run("wait pod/p --for=condition=Ready --timeout=60s").await?;
            ensure!(kubectl.run("get pod p -o jsonpath={.status.message}").await? == "from before");
            kubectl.run("delete pod p --wait=false").await?;
            Ok(())
        })
        .await?;
    embedded.finish().await
}

/// The provider is away when the process starts, so nobody can say what the node is like. What it said before stays,
/// except that it is Ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_from_before_is_not_ready_without_its_provider() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let name = "e2e-silent";
    let mut embedded = Embedded::start(&host).await?;
    embedded.serve(name, Arc::new(Scripted::default())).await?;
    embedded.stop(name).await?;

    let silent = Arc::new(Scripted::silent());
    silent.fail("ping", Some(ProviderError::unavailable("no route to host")));
    embedded.begin(name, silent, QUICK).await?;
    becomes(&host, name, "False").await?;
    ensure!(ready(&host, name, "message").await?.starts_with("no route to host"));
    let cpu = host.kubectl_output(&["get", "node", name, "-o", "jsonpath={.status.capacity.cpu}"]).await?;
    ensure!(cpu == "100", "{cpu}");
    embedded.stop(name).await?;

    embedded.begin(name, Arc::new(Scripted::default()), QUICK).await?;
    becomes(&host, name, "True").await?;
    remove_node(&host, name).await?;
    embedded.stop(name).await
}
