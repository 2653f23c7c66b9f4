//! The host cannot be reached for a while.

use std::sync::Arc;

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_node::{api::ApiSettings, contract::PodKey, node::NodeSettings};
use federlet_sandbox::{Sandbox, eventually};
use serde_json::json;

use super::{
    embedded::{Embedded, answers},
    link::{Link, Passes},
    objects::{create, pod, spec},
    scripted::Scripted,
};

/// Pods go on, and what was deleted meanwhile is noticed, though no watch ever says so: the list that is read afterwards
/// does not have it.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_host_stops_no_pod_and_hides_no_deletion() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let link = Link::to(&host).await?;
    let provider = Arc::new(Scripted::default());
    let mut embedded = Embedded::with(&host, link.config(&host).await?, ApiSettings::default()).await?;
    let name = "e2e-cut";
    embedded.serve(name, provider.clone()).await?;
    sandbox
        .in_namespace("cut", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            for pod_name in ["stays", "goes"] {
                create(&kubectl, &pod(pod_name, &spec(name, json!({"nodeName": name})))).await?;
                kubectl.run(&format!("wait pod/{pod_name} --for=condition=Ready --timeout=60s")).await?;
            }
            let before = kubectl.run("get pod stays -o jsonpath={.metadata.resourceVersion}").await?;
            link.let_through(Passes::Nothing);
            kubectl.run("delete pod goes --force --grace-period=0").await?;
            // A node that joins makes for a new list, so that the deletion is in no watch.
            embedded.begin("e2e-cut-too", Arc::new(Scripted::default()), NodeSettings::default()).await?;
            ensure!(provider.calls("goes") == ["create"] && provider.calls("stays") == ["create"]);
            link.let_through(Passes::Everything);
            let goes = PodKey::new(space.namespace.as_str(), "goes");
            eventually("the provider hears of it", SOON, async || {
                ensure!(provider.has(&goes).is_none(), "{:?}", provider.calls("goes"));
                Ok(())
            })
            .await?;
            answers(&host, name).await?;
            answers(&host, "e2e-cut-too").await?;
            ensure!(!provider.calls("stays").iter().any(|call| call.starts_with("delete")));
            let after = kubectl.run("get pod stays -o jsonpath={.metadata.resourceVersion}").await?;
            ensure!(before == after, "something was written though nothing changed");
            kubectl.run("delete pod stays --wait=false").await?;
            Ok(())
        })
        .await?;
    embedded.finish().await
}
