//! A node with a scripted provider and a namespace, for tests of what a pod goes through.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_node::contract::PodKey;
use federlet_sandbox::{Cluster, Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    embedded::Embedded,
    objects::{create, pod, spec},
    scripted::Scripted,
};

pub(crate) struct Stage {
    pub(crate) host: Cluster,
    pub(crate) namespace: String,
    pub(crate) kubectl: Kubectl,
    pub(crate) provider: Arc<Scripted>,
    pub(crate) embedded: Embedded,
    pub(crate) node: String,
}

/// Runs a test on a node of this name.
pub(crate) async fn on_stage(name: &str, play: impl AsyncFnOnce(&mut Stage) -> Result<()>) -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let provider = Arc::new(Scripted::default());
    let mut embedded = Embedded::start(&host).await?;
    embedded.serve(name, provider.clone()).await?;
    sandbox
        .in_namespace(name, async |space| {
            let namespace = space.namespace.clone();
            let kubectl = Kubectl::new(host.clone(), &namespace);
            let node = name.to_owned();
            let mut stage = Stage { host, namespace, kubectl, provider, embedded, node };
            play(&mut stage).await?;
            stage.kubectl.run("delete pods --all --wait=false --force --grace-period=0").await?;
            stage.embedded.finish().await
        })
        .await
}

impl Stage {
    pub(crate) fn key(&self, name: &str) -> PodKey {
        PodKey::new(self.namespace.as_str(), name)
    }

    /// A pod bound to the node.
    pub(crate) fn pod(&self, name: &str, extra: Value) -> Value {
        let bound = json!({"nodeName": self.node, "automountServiceAccountToken": false});
        let mut spec = spec(&self.node, bound);
        if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
            spec.extend(extra);
        }
        pod(name, &spec)
    }

    /// Creates a pod.
    pub(crate) async fn create(&self, name: &str, extra: Value) -> Result<PodKey> {
        create(&self.kubectl, &self.pod(name, extra)).await?;
        Ok(self.key(name))
    }

    /// Creates a pod and waits until it is Ready.
    pub(crate) async fn start(&self, name: &str, extra: Value) -> Result<PodKey> {
        let key = self.create(name, extra).await?;
        self.ready(name).await?;
        Ok(key)
    }

    pub(crate) async fn ready(&self, name: &str) -> Result<()> {
        let wait = format!("wait pod/{name} --for=condition=Ready --timeout=60s");
        self.kubectl.run(&wait).await.map(drop).with_context(|| format!("{:?}", self.provider.calls(name)))
    }

    /// A field of a pod, by its JSONPath.
    pub(crate) async fn field(&self, name: &str, path: &str) -> Result<String> {
        self.kubectl.args(&["get", "pod", name, "-o", &format!("jsonpath={path}")]).await
    }

    /// Waits until a field says this.
    pub(crate) async fn says(&self, name: &str, path: &str, value: &str) -> Result<()> {
        eventually(&format!("{path} of {name} is {value:?}"), SOON, async || {
            let says = self.field(name, path).await?;
            ensure!(says == value, "it is {says:?}");
            Ok(())
        })
        .await
    }

    /// Waits until there is no such pod on the host.
    pub(crate) async fn gone(&self, name: &str) -> Result<()> {
        eventually(&format!("{name} is gone"), SOON, async || {
            let found = self.kubectl.args(&["get", "pod", name, "--ignore-not-found", "-o", "name"]).await?;
            ensure!(found.is_empty(), "it is still there");
            Ok(())
        })
        .await
    }

    /// Waits for an Event with this reason about a pod, and returns what it says.
    pub(crate) async fn told(&self, name: &str, reason: &str) -> Result<String> {
        eventually(&format!("an Event {reason} about {name}"), SOON, async || {
            let about = format!("--field-selector=involvedObject.name={name},reason={reason}");
            let words = ["get", "events", &about, "-o", "jsonpath={.items[*].message}"];
            let message = self.kubectl.args(&words).await?;
            ensure!(!message.is_empty(), "none");
            Ok(message)
        })
        .await
    }

    /// How often something was done with pods of this node so far, as the metrics count it.
    pub(crate) fn count(&self, operation: &str, result: &str) -> u64 {
        let labels = format!("node=\"{}\",operation=\"{operation}\",result=\"{result}\"", self.node);
        let line = format!("federlet_pod_operation_seconds_count{{{labels}}} ");
        let text = self.embedded.metrics.encode();
        text.lines().find_map(|l| l.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
    }

    /// Waits until pods of this node were looked at so many times more.
    pub(crate) async fn looked_at(&self, times: u64, look: impl AsyncFn()) -> Result<()> {
        let until = self.count("get", "ok") + times;
        eventually("pods are looked at", SOON, async || {
            look().await;
            let count = self.count("get", "ok");
            ensure!(count >= until, "{count} of {until} times");
            Ok(())
        })
        .await
    }
}
