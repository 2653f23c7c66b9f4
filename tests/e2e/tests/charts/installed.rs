//! A host where Federlet is installed by its chart, and nothing else of it is there.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::federlet,
    helm::{Helm, chart},
};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// How long a process may take until it is there, on a machine that does much else.
const ROLLOUT: &str = "--timeout=180s";

/// The image of the sandbox instead of the one that a registry has.
pub(crate) const IMAGE: &str = "--set=image.tag=dev";

/// The host, with chart federlet installed.
pub(crate) struct Installed {
    pub(crate) sandbox: &'static Sandbox,
    pub(crate) host: Cluster,
    pub(crate) helm: Helm,
}

/// Plays a test where Federlet is installed by its chart; then uninstalls it and compares both sides with what was there.
pub(crate) async fn when_installed(play: impl AsyncFnOnce(&Installed) -> Result<()>) -> Result<()> {
    let _alone = ALONE.lock().await;
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let installed = Installed { sandbox, helm: Helm::new(&host)?, host };
    installed.clear().await?;
    let clusters = sandbox.clusters()?;
    let mut before = vec![];
    for cluster in &clusters {
        before.push(everything(cluster).await?);
    }
    let played = async {
        let words = ["install", "federlet", &chart("federlet"), IMAGE, "--wait", ROLLOUT];
        let said = installed.helm.run(&words).await?;
        ensure!(said.contains("helm install member1 charts/member"), "it says what is next: {said}");
        play(&installed).await
    }
    .await;
    let played = match played {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(installed.tail().await)),
    };
    if played.is_err() {
        installed.clear().await?;
        return played;
    }
    installed.helm.run(&["uninstall", "federlet", "--ignore-not-found", "--wait", ROLLOUT]).await?;
    for (cluster, before) in clusters.iter().zip(&before) {
        nothing_is_left(cluster, before).await?;
    }
    played
}

impl Installed {
    /// `helm install` of a member.
    pub(crate) async fn member(&self, name: &str, cluster: &str, words: &[&str]) -> Result<String> {
        self.with_member("install", name, cluster, words).await
    }

    pub(crate) async fn with_member(
        &self,
        verb: &str,
        name: &str,
        cluster: &str,
        words: &[&str],
    ) -> Result<String> {
        let kubeconfig = self.sandbox.cluster(cluster)?.admin_kubeconfig().to_owned();
        self.with_kubeconfig(verb, name, &kubeconfig, words).await
    }

    pub(crate) async fn with_kubeconfig(
        &self,
        verb: &str,
        name: &str,
        kubeconfig: &Path,
        words: &[&str],
    ) -> Result<String> {
        let file = format!("--set-file=kubeconfig={}", kubeconfig.display());
        let chart = chart("member");
        self.helm.run(&[&[verb, name, &chart, &file, IMAGE, "--wait", ROLLOUT], words].concat()).await
    }

    /// `helm upgrade` of Federlet itself, complete when it returns.
    pub(crate) async fn upgrade(&self, words: &[&str]) -> Result<String> {
        let chart = chart("federlet");
        self.helm.run(&[&["upgrade", "federlet", &chart, IMAGE, "--wait", ROLLOUT], words].concat()).await
    }

    /// Waits until a node is Ready and its kubelet API answers.
    pub(crate) async fn answers(&self, node: &str) -> Result<()> {
        eventually(&format!("node {node} is Ready and answers"), 2 * SOON, async || {
            let ready = "--for=condition=Ready";
            self.host.kubectl_output(&["wait", &format!("node/{node}"), ready, "--timeout=5s"]).await?;
            let healthz = format!("/api/v1/nodes/{node}/proxy/healthz");
            self.host.kubectl_output(&["get", "--raw", &healthz]).await
        })
        .await
        .map(drop)
    }

    /// A field of an object of the host.
    pub(crate) async fn field(&self, object: &str, path: &str) -> Result<String> {
        self.host.kubectl_output(&["get", object, "-o", &format!("jsonpath={{{path}}}")]).await
    }

    /// Waits until a field of an object of the host contains a text.
    pub(crate) async fn says(&self, object: &str, path: &str, text: &str) -> Result<()> {
        eventually(&format!("{object} says {text} in {path}"), SOON, async || {
            let found = self.field(object, path).await?;
            ensure!(found.contains(text), "it says {found}");
            Ok(())
        })
        .await
    }

    /// kubectl in Federlet's own namespace.
    pub(crate) fn own(&self) -> Kubectl {
        Kubectl::new(self.host.clone(), "federlet-system")
    }

    /// What the processes and objects say, for when a test fails.
    async fn tail(&self) -> String {
        let own = self.own();
        let mut said = String::new();
        for words in [
            "get pods,jobs,leases -o wide",
            "get clusters,nodes -o wide",
            "describe clusters",
            "describe pods",
            "logs -l app.kubernetes.io/part-of=federlet --all-containers --prefix --tail=40",
        ] {
            said += &own.run(words).await.unwrap_or_else(|error| error.to_string());
        }
        said
    }

    /// Takes away what other tests, or a run that was killed, left here.
    async fn clear(&self) -> Result<()> {
        let kubeconfig = self.host.admin_kubeconfig().display().to_string();
        let path = "jsonpath={.items[*].metadata.name}";
        let clusters = self.host.kubectl_output(&["get", "clusters", "-o", path]).await.unwrap_or_default();
        for name in clusters.split_whitespace() {
            federlet(&["unjoin", name, "--force", "--kubeconfig", &kubeconfig]).await?;
        }
        // Nobody serves them any more, so their accounts stay in the members.
        for cluster in self.sandbox.clusters()? {
            let kinds = "clusterroles,clusterrolebindings,namespaces";
            let found = cluster.kubectl_output(&["get", kinds, "-o", "name"]).await?;
            for object in found.lines().filter(|name| name.contains("/federlet-host-")) {
                cluster.kubectl_output(&["delete", object, "--ignore-not-found", "--timeout=60s"]).await?;
            }
        }
        for release in self.helm.run(&["list", "--short"]).await?.lines() {
            self.helm.run(&["uninstall", release, "--no-hooks", "--wait"]).await?;
        }
        // Helm takes over nothing that somebody else made.
        let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../provider/rbac/host.yaml");
        self.host.kubectl_output(&["delete", "-f", manifests, "--ignore-not-found"]).await?;
        for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
            self.host.kubectl_output(&["delete", kind, "federlet", "--ignore-not-found"]).await?;
        }
        let everything = "jobs,secrets,leases,serviceaccounts,roles,rolebindings";
        if self.host.kubectl_output(&["get", "namespace", "federlet-system"]).await.is_ok() {
            self.own().run(&format!("delete {everything} --all --timeout=60s")).await?;
        }
        Ok(())
    }
}

/// Everything of the kinds that we make, in all namespaces but those that are going: another test left them.
async fn everything(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let kinds = "namespaces,nodes,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,pods,configmaps,\
                 secrets,services,persistentvolumeclaims,deployments,jobs,leases,networkpolicies,poddisruptionbudgets,\
                 mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let columns = "custom-columns=K:.kind,NS:.metadata.namespace,N:.metadata.name";
    let words = ["get", kinds, "--all-namespaces", "--no-headers", "-o", columns];
    let ending = ["get", "namespaces", "--field-selector=status.phase=Terminating", "-o", "name"];
    let ending = cluster.kubectl_output(&ending).await?;
    let ending: Vec<&str> = ending.lines().filter_map(|name| name.strip_prefix("namespace/")).collect();
    let is_ending = |line: &String| line.split(' ').skip(1).any(|word| ending.contains(&word));
    let found = cluster.kubectl_output(&words).await?;
    let lines = found.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(lines.filter(|line| !STAYS.contains(&line.as_str()) && !is_ending(line)).collect())
}

/// Our namespace stays, and what Kubernetes puts into every namespace.
const STAYS: [&str; 3] = [
    "Namespace <none> federlet-system",
    "ServiceAccount federlet-system default",
    "ConfigMap federlet-system kube-root-ca.crt",
];

async fn nothing_is_left(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    eventually("both sides are as before", Duration::from_secs(120), async || {
        let after = everything(cluster).await?;
        let differ: Vec<&String> = after.symmetric_difference(before).collect();
        ensure!(differ.is_empty(), "{}: {differ:?}", cluster.name());
        Ok(())
    })
    .await
    .context("after uninstalling")
}
