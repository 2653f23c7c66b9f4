//! A host that nobody joined, and ways to look at it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{Serve, federlet},
    objects::pipe_to,
};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use serde_json::{Value, json};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// The host, and one `federlet serve` beside it.
pub(crate) struct Ground {
    pub(crate) sandbox: &'static Sandbox,
    pub(crate) host: Cluster,
    pub(crate) serve: Serve,
}

/// Plays a test on a host that nobody joined. What it joined and did not leave is taken away afterwards.
pub(crate) async fn on_ground(name: &str, play: impl AsyncFnOnce(&Ground) -> Result<()>) -> Result<()> {
    let _alone = ALONE.lock().await;
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let serve = Serve::start(&host, name, &["--identity", "first"]).await?;
    let ground = Ground { sandbox, host, serve };
    ground.clear().await.with_context(|| ground.serve.tail())?;
    let played = play(&ground).await.with_context(|| ground.serve.tail());
    let cleared = ground.clear().await.with_context(|| ground.serve.tail());
    ground.serve.terminate().await?;
    played.and(cleared)
}

impl Ground {
    pub(crate) fn member(&self, name: &str) -> Result<Cluster> {
        self.sandbox.cluster(name)
    }

    /// kubectl in one namespace of the host.
    pub(crate) fn kubectl(&self, namespace: &str) -> Kubectl {
        Kubectl::new(self.host.clone(), namespace)
    }

    /// `federlet` about this host.
    pub(crate) async fn federlet(&self, words: &[&str]) -> Result<String> {
        let kubeconfig = self.host.admin_kubeconfig().to_string_lossy();
        federlet(&[words, &["--kubeconfig", &*kubeconfig]].concat()).await
    }

    /// `federlet join`, with the member's own kubeconfig.
    pub(crate) async fn join(&self, name: &str, member: &str, words: &[&str]) -> Result<String> {
        let kubeconfig = self.member(member)?.admin_kubeconfig().to_path_buf();
        self.join_with(name, &kubeconfig, words).await
    }

    pub(crate) async fn join_with(&self, name: &str, kubeconfig: &Path, words: &[&str]) -> Result<String> {
        let kubeconfig = kubeconfig.to_string_lossy();
        self.federlet(&[&["join", name, "--cluster-kubeconfig", &*kubeconfig], words].concat()).await
    }

    /// Takes away all that joined.
    async fn clear(&self) -> Result<()> {
        for name in self.names("clusters").await.unwrap_or_default() {
            self.federlet(&["unjoin", &name, "--force"]).await?;
        }
        // What a test wrote itself belongs to no Cluster.
        self.host.kubectl_output(&["delete", "clusterroles", "-l", "federlet.io/node-role"]).await?;
        self.host.kubectl_output(&["delete", "secrets", "-n", "federlet-system", "--all"]).await.map(drop)
    }

    async fn names(&self, kind: &str) -> Result<Vec<String>> {
        let path = "jsonpath={.items[*].metadata.name}";
        let found = self.host.kubectl_output(&["get", kind, "-o", path]).await?;
        Ok(found.split_whitespace().map(str::to_owned).collect())
    }

    /// A field of an object of the host.
    pub(crate) async fn field(&self, object: &str, path: &str) -> Result<String> {
        self.host.kubectl_output(&["get", object, "-o", &format!("jsonpath={{{path}}}")]).await
    }

    /// Creates or changes objects on the host.
    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        pipe_to(&self.host, &["apply", "-f", "-"], &object.to_string()).await.map(drop)
    }

    /// Status, reason and message of a condition of a Cluster.
    pub(crate) async fn condition(&self, cluster: &str, kind: &str) -> Result<(String, String, String)> {
        let of = |field: &str| format!(".status.conditions[?(@.type==\"{kind}\")].{field}");
        let path = format!("{{{}}}|{{{}}}|{{{}}}", of("status"), of("reason"), of("message"));
        let found =
            self.host.kubectl_output(&["get", "cluster", cluster, "-o", &format!("jsonpath={path}")]).await?;
        let mut parts = found.splitn(3, '|').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Ok((next(), next(), next()))
    }

    /// Waits until a Cluster has a condition with this reason, and returns the message.
    pub(crate) async fn says(&self, cluster: &str, kind: &str, reason: &str) -> Result<String> {
        eventually(&format!("{cluster} says {kind} {reason}"), SOON, async || {
            let (status, found, message) = self.condition(cluster, kind).await?;
            ensure!(found == reason, "it says {status} {found}: {message}");
            Ok(message)
        })
        .await
    }

    pub(crate) async fn is_ready(&self, node: &str) -> Result<()> {
        let ready =
            self.field(&format!("node/{node}"), ".status.conditions[?(@.type==\"Ready\")].status").await?;
        ensure!(ready == "True", "node {node} has Ready={ready}");
        Ok(())
    }
}

/// A pod for one node, which ends as soon as it is told.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "app", "image": "nginx"}],
        },
    })
}
