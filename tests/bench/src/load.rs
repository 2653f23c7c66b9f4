//! Pods that are created, watched and deleted, with a clock beside them.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// Requests under way at once: more than the API server of a small machine needs to be busy.
const AT_ONCE: usize = 32;

/// A pod keeps clusters busy for a while after it runs: with Events, and with controllers that look at it. One that is
/// measured alone comes after that.
const REST: Duration = Duration::from_millis(150);

/// Nothing here takes so long unless it is stuck; and for each pod a little more.
const PATIENCE: Duration = Duration::from_secs(300);
const PATIENCE_PER_POD: Duration = Duration::from_millis(60);

/// What happened to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It has a node, and nothing else happened to it.
    Placed,
    Running,
    Gone,
}

/// How long it took a pod, from the request that creates it, to get somewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single {
    /// Until its cluster shows that it has a node: what comes before is not its kubelet's.
    pub(crate) placed: Duration,
    pub(crate) running: Duration,
}

/// Pods on one node, in a namespace of their own.
pub(crate) struct Load {
    pods: Api<Pod>,
    namespaces: Api<Namespace>,
    namespace: String,
    node: Option<String>,
    seen: mpsc::UnboundedReceiver<(String, Seen, Instant)>,
    watch: tokio::task::JoinHandle<()>,
}

impl Load {
    /// Makes the namespace and begins to watch it.
    pub(crate) async fn new(client: &Client, name: &str, node: Option<&str>, round: u32) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = format!("bench-{name}-{round}");
        let object = serde_json::from_value(serde_json::json!({ "metadata": { "name": namespace } }))?;
        namespaces.create(&PostParams::default(), &object).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let (tell, seen) = mpsc::unbounded_channel();
        let watched = pods.clone();
        let watch = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(watched, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let (pod, what) = match event {
                    Ok(watcher::Event::Apply(pod)) => {
                        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                        let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                        match phase {
                            Some("Running") => (pod, Seen::Running),
                            Some("Pending") if placed => (pod, Seen::Placed),
                            _ => continue,
                        }
                    }
                    Ok(watcher::Event::Delete(pod)) => (pod, Seen::Gone),
                    _ => continue,
                };
                let name = pod.metadata.name.unwrap_or_default();
                if tell.send((name, what, Instant::now())).is_err() {
                    return;
                }
            }
        });
        // A service account must be there before pods are admitted.
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(client.clone(), &namespace);
        let deadline = Instant::now() + PATIENCE;
        while accounts.get_opt("default").await?.is_none() {
            anyhow::ensure!(Instant::now() < deadline, "namespace {namespace} gets no service account");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Self { pods, namespaces, namespace, node: node.map(str::to_owned), seen, watch })
    }

    /// Creates pods one after the other; how long each took.
    pub(crate) async fn one_by_one(&mut self, count: u32) -> Result<Vec<Single>> {
        let mut took = Vec::new();
        for index in 0..count {
            tokio::time::sleep(REST).await;
            let begun = Instant::now();
            self.create(&format!("single-{index}")).await?;
            let placed = self.wait(1, Seen::Placed).await? - begun;
            took.push(Single { placed, running: self.wait(1, Seen::Running).await? - begun });
        }
        Ok(took)
    }

    /// Creates pods one after the other and says of each that it runs, in place of a kubelet: how long both took. There
    /// is no way around these two requests, whoever runs the pod.
    pub(crate) async fn said_to_run(&mut self, count: u32) -> Result<Vec<Duration>> {
        let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"]
            .map(|kind| json!({ "type": kind, "status": "True" }));
        let mut took = Vec::new();
        for index in 0..count {
            tokio::time::sleep(REST).await;
            let (name, begun) = (format!("said-{index}"), Instant::now());
            self.create(&name).await?;
            let status = json!({ "status": {
                "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }],
                "conditions": conditions,
                "containerStatuses": [{
                    "name": "main", "image": "nginx:1", "imageID": "", "ready": true, "restartCount": 0,
                    "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
                }],
            } });
            self.pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
            took.push(begun.elapsed());
        }
        let at_once = DeleteParams::default().grace_period(0);
        self.pods.delete_collection(&at_once, &kube::api::ListParams::default()).await?;
        self.wait(count as usize, Seen::Gone).await?;
        Ok(took)
    }

    /// Creates pods all at once; how long it took until the last one ran.
    pub(crate) async fn all_at_once(&mut self, count: u32) -> Result<Duration> {
        let begun = Instant::now();
        stream::iter(0..count)
            .map(|index| {
                let name = format!("many-{index}");
                let this = &*self;
                async move { this.create(&name).await }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(self.wait(count as usize, Seen::Running).await? - begun)
    }

    /// Creates pods that name a Secret each, which comes a moment later; how long each took to run from then on.
    pub(crate) async fn after_their_secret(&mut self, count: u32) -> Result<Vec<Duration>> {
        let secrets: Api<Secret> = Api::namespaced(self.pods.clone().into_client(), &self.namespace);
        let mut took = Vec::new();
        for index in 0..count {
            let name = format!("waits-{index}");
            let secret = json!({ "envFrom": [{ "secretRef": { "name": name } }] });
            self.create_with(&name, &secret).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
            let object = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
            let begun = Instant::now();
            secrets.create(&PostParams::default(), &object).await?;
            took.push(self.wait(1, Seen::Running).await? - begun);
        }
        Ok(took)
    }

    /// Deletes all pods with their grace period; how long it took until the last one was gone.
    pub(crate) async fn delete_all(&mut self, count: u32) -> Result<Duration> {
        let begun = Instant::now();
        self.pods.delete_collection(&DeleteParams::default(), &kube::api::ListParams::default()).await?;
        Ok(self.wait(count as usize, Seen::Gone).await? - begun)
    }

    /// Removes the namespace.
    pub(crate) async fn end(self) -> Result<()> {
        self.watch.abort();
        self.namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn create(&self, name: &str) -> Result<()> {
        self.create_with(name, &json!({})).await
    }

    /// Creates a pod whose container has more than a name and an image.
    async fn create_with(&self, name: &str, more: &Value) -> Result<()> {
        let mut container = json!({ "name": "main", "image": "nginx:1" });
        if let (Some(container), Some(more)) = (container.as_object_mut(), more.as_object()) {
            container.extend(more.clone());
        }
        let pod = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": self.node,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{ "operator": "Exists" }],
                "containers": [container],
            },
        }))?;
        self.pods
            .create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("cannot create {name}"))?;
        Ok(())
    }

    /// When the last of so many pods was seen like this.
    async fn wait(&mut self, count: usize, wanted: Seen) -> Result<Instant> {
        let more = PATIENCE_PER_POD * u32::try_from(count).unwrap_or(u32::MAX);
        let deadline = Instant::now() + PATIENCE + more;
        let mut found = HashMap::new();
        while found.len() < count {
            let next = timeout_at(deadline, self.seen.recv()).await;
            let next = next.with_context(|| {
                format!("{} of {count} pods in {} are {wanted:?}", found.len(), self.namespace)
            })?;
            let (name, what, at) = next.context("the watch ended")?;
            if what == wanted {
                found.entry(name).or_insert(at);
            }
        }
        found.into_values().max().context("no pods")
    }
}
