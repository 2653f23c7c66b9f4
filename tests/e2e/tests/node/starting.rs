//! What keeps a pod from starting, and how its user hears of it.

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Sandbox, eventually};
use serde_json::json;

use super::{
    objects::{create, pod, spec},
    process::Process,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_holds_a_pod_until_it_is_there() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let node = Process::start(&host, "e2e-missing").await?;
    sandbox
        .in_namespace("missing", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            let needs = json!([{"secretRef": {"name": "creds"}}, {"configMapRef": {"name": "more", "optional": true}}]);
            let containers = json!([{"name": "app", "image": "nginx", "envFrom": needs}]);
            create(&kubectl, &pod("held", &spec(&node.name, json!({"containers": containers})))).await?;
            eventually("it says what is missing", SOON, async || {
                let events = kubectl.run("get events -o jsonpath={.items[*].reason}").await?;
                let reason = kubectl.run("get pod held -o jsonpath={.status.reason}").await?;
                ensure!(events.contains("MandatorySecretNotFound"), "{events}");
                ensure!(events.contains("OptionalConfigMapNotFound"), "{events}");
                ensure!(reason == "MandatorySecretNotFound", "{reason}");
                Ok(())
            })
            .await?;
            kubectl.run("create secret generic creds --from-literal=a=b").await?;
            kubectl.run("wait pod/held --for=condition=Ready --timeout=60s").await?;
            let reason = kubectl.run("get pod held -o jsonpath={.status.reason}").await?;
            ensure!(reason.is_empty(), "it still says {reason}");
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}
