//! Clusters whose machines KWOK plays: many pods cost little, any image can be pulled, and there are GPUs.

use anyhow::{Context, Result};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{Serve, federlet},
    here::{address_towards, free_port},
    objects::pipe,
    own::Own,
};
use federlet_sandbox::{Cluster, eventually};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

/// The machine that has GPUs.
const WITH_GPUS: &str = "member3-kwok-1";

/// How many more replicas a cluster takes, whatever its machines have.
pub(crate) const AVAILABLE: &str = "federlet.io/available-replicas";

/// A cluster of `examples/clusters.yaml`.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    /// The cluster of the sandbox behind it.
    of: &'static str,
    words: &'static str,
    /// How many replicas of one CPU each there is room for.
    pub(crate) room: u32,
}

/// The clusters of `examples/clusters.yaml` that are data centres.
pub(crate) const MEMBERS: [Member; 4] = [
    Member {
        name: "member1",
        of: "member1",
        words: "--labels tier=production --provider own --region north --zone north-a",
        room: 12,
    },
    Member {
        name: "member2",
        of: "member2",
        words: "--labels tier=production --provider own --region north --zone north-b",
        room: 6,
    },
    Member {
        name: "member3",
        of: "member3",
        words: "--labels tier=production --provider cloud --region south --zone south-a,south-b --region-selector \
                kubernetes.io/hostname=member3-kwok-0",
        room: 3,
    },
    // Two regions of one cluster: a control plane less to start.
    Member {
        name: "gpu1",
        of: "member3",
        words: "--labels tier=training --provider cloud --region south --zone south-a --taints gpu=yes:NoSchedule \
                --region-selector kubernetes.io/hostname=member3-kwok-1",
        room: 3,
    },
];

/// A sandbox with these clusters joined, and a `federlet serve` of its own.
pub(crate) struct Played {
    pub(crate) host: Cluster,
    pub(crate) serve: Serve,
    own: Own,
}

impl Played {
    async fn start() -> Result<Self> {
        let own = Own::start("played", &["--members", "3", "--kwok-nodes", "2"]).await?;
        let host = own.cluster("host")?;
        let gpus =
            r#"{"status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}}"#;
        let words = ["patch", "node", WITH_GPUS, "--subresource=status", "--type=merge", "-p", gpus];
        own.cluster("member3")?.kubectl_output(&words).await?;
        let port = free_port()?.to_string();
        let url = format!("https://{}:{port}", address_towards(&host).await?);
        let serve = Serve::start(&host, "played", &["--webhook-port", &port, "--webhook-url", &url]).await?;
        let played = Self { host, serve, own };
        for member in &MEMBERS {
            played.join(member).await.with_context(|| played.serve.tail())?;
        }
        for node in MEMBERS.iter().map(|member| member.name).chain(["fleet"]) {
            eventually(&format!("node {node} is Ready"), SOON, async || {
                let words = ["wait", &format!("node/{node}"), "--for=condition=Ready", "--timeout=5s"];
                played.host.kubectl_output(&words).await
            })
            .await
            .with_context(|| played.serve.tail())?;
        }
        Ok(played)
    }

    async fn join(&self, member: &Member) -> Result<()> {
        let there = self.own.cluster(member.of)?;
        let (host, there) = (self.host.admin_kubeconfig(), there.admin_kubeconfig());
        let (host, there) = (host.to_string_lossy(), there.to_string_lossy());
        let mut words = vec!["join", member.name, "--kubeconfig", &*host, "--cluster-kubeconfig", &*there];
        words.push("--allow-objects=definitions,roles,workloads");
        words.extend(member.words.split_whitespace());
        federlet(&words).await.map(drop)
    }

    /// kubectl on the host.
    pub(crate) fn on_host(&self, namespace: &str) -> Kubectl {
        Kubectl::new(self.host.clone(), namespace)
    }

    /// kubectl in a member, in what is there for a namespace of the host.
    pub(crate) fn in_member(&self, member: &str, namespace: &str) -> Result<Kubectl> {
        let member = MEMBERS.iter().find(|one| one.name == member).context("there is no such member")?;
        let there = self.own.cluster(member.of)?;
        let region = member.words.contains("--region-selector");
        let mapped = if region { format!("{namespace}-{}", member.name) } else { namespace.to_owned() };
        Ok(Kubectl::new(there, &mapped))
    }

    /// Takes away what the test before left: its pods would take room, and its words about room would hold on. Whoever is
    /// last leaves that to the end of the clusters.
    async fn clear(&self) -> Result<()> {
        let path = "jsonpath={.items[*].metadata.name}";
        let found = self.host.kubectl_output(&["get", "namespaces", "-o", path]).await?;
        let is_theirs =
            |name: &&str| !name.starts_with("kube-") && !["default", "federlet-system"].contains(name);
        let theirs: Vec<&str> = found.split_whitespace().filter(is_theirs).collect();
        if !theirs.is_empty() {
            let words = [&["delete", "namespace", "--timeout=280s"][..], &theirs].concat();
            self.host.kubectl_output(&words).await?;
        }
        let forget = format!("{AVAILABLE}-");
        self.host.kubectl_output(&["annotate", "clusters", "--all", &forget]).await.map(drop)
    }

    /// Creates or changes an object.
    pub(crate) async fn apply(&self, namespace: &str, object: &Value) -> Result<()> {
        pipe(&self.on_host(namespace), &["apply", "-f", "-"], object).await.map(drop)
    }

    /// Waits until policies steer the pods of a namespace.
    pub(crate) async fn is_covered(&self, namespace: &str) -> Result<()> {
        eventually(&format!("namespace {namespace} is covered"), SOON, async || {
            let shown = self.host.kubectl_output(&["get", "namespace", namespace, "--show-labels"]).await?;
            anyhow::ensure!(shown.contains("federlet.io/policies=cover"), "{shown}");
            Ok(())
        })
        .await
    }
}

/// Plays a test on these clusters, which tests share one after the other.
pub(crate) async fn played(test: impl AsyncFnOnce(&Played) -> Result<()>) -> Result<()> {
    static SHARED: OnceCell<Played> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let clusters = SHARED.get_or_try_init(Played::start).await?;
    let _turn = TURN.lock().await;
    clusters.clear().await.with_context(|| clusters.serve.tail())?;
    test(clusters).await.with_context(|| clusters.serve.tail())
}
