//! A host where Federlet is installed by its chart, and nothing else of it is there.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{HOST_RIGHTS, leave_all},
    helm::{Helm, chart},
};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use tokio::sync::Mutex;

use crate::leftovers::{self, nothing_is_left};

/// How long a process may take until it is there, on a machine that does much else.
pub(crate) const ROLLOUT: &str = "--timeout=180s";

/// The image of the sandbox instead of the one that a registry has. Members have it by themselves: that of this chart.
pub(crate) const IMAGE: &str = "--set=image.tag=dev";

/// The host, with chart federlet installed.
pub(crate) struct Installed {
    pub(crate) sandbox: &'static Sandbox,
    pub(crate) host: Cluster,
    pub(crate) helm: Helm,
}

/// What each cluster had before Federlet was installed.
type Before = Vec<(Cluster, BTreeSet<String>)>;

/// The installation that tests share, while there is one. Whoever holds it is alone with it.
static SHARED: Mutex<Option<Before>> = Mutex::const_new(None);

/// Tests that use it or wait for it: it stays while there are any, because installing takes longer than most of them.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// Plays a test where Federlet is installed by its chart. Members must be as before when it ends; when the last test
/// has ended, it is uninstalled and the host must be, too.
pub(crate) async fn when_installed(play: impl AsyncFnOnce(&Installed) -> Result<()>) -> Result<()> {
    in_turn(async |installed, shared| {
        if shared.is_none() {
            *shared = Some(installed.clear().await?);
            let words = ["install", "federlet", &chart("federlet"), IMAGE, "--wait", ROLLOUT];
            let said = installed.helm.run(&words).await?;
            ensure!(said.contains("helm install member1 charts/member"), "it says what is next: {said}");
        }
        play(installed).await?;
        for (cluster, before) in shared.iter().flatten().filter(|(cluster, _)| cluster.name() != "host") {
            nothing_is_left(cluster, before).await?;
        }
        Ok(())
    })
    .await
}

/// Plays a test that installs and uninstalls Federlet itself; then compares all clusters with what was there.
pub(crate) async fn before_it_is_installed(play: impl AsyncFnOnce(&Installed) -> Result<()>) -> Result<()> {
    in_turn(async |installed, shared| {
        if let Some(before) = shared.take() {
            installed.uninstall(&before).await?;
        }
        let before = installed.clear().await?;
        play(installed).await?;
        installed.uninstall(&before).await
    })
    .await
}

async fn in_turn(play: impl AsyncFnOnce(&Installed, &mut Option<Before>) -> Result<()>) -> Result<()> {
    USERS.fetch_add(1, Ordering::SeqCst);
    let mut shared = SHARED.lock().await;
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let installed = Installed { sandbox, helm: Helm::new(&host)?, host };
    let mut played = play(&installed, &mut shared).await;
    let is_last = USERS.fetch_sub(1, Ordering::SeqCst) == 1;
    if let Err(error) = played {
        // The next one begins anew.
        *shared = None;
        let error = error.context(installed.tail().await);
        installed.clear().await?;
        return Err(error);
    }
    if let Some(before) = shared.take_if(|_| is_last) {
        played = installed.uninstall(&before).await;
    }
    played
}

impl Installed {
    /// Takes Federlet away, if it is there, and finds everything as before.
    async fn uninstall(&self, before: &Before) -> Result<()> {
        self.helm.run(&["uninstall", "federlet", "--ignore-not-found", "--wait", ROLLOUT]).await?;
        for (cluster, before) in before {
            nothing_is_left(cluster, before).await?;
        }
        Ok(())
    }

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
        self.helm.run(&[&[verb, name, &chart, &file, "--wait", ROLLOUT], words].concat()).await
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

    /// Takes away what other tests, or a run that was killed, left here. What there is then.
    async fn clear(&self) -> Result<Before> {
        leave_all(self.sandbox).await?;
        for release in self.helm.run(&["list", "--short"]).await?.lines() {
            self.helm.run(&["uninstall", release, "--no-hooks", "--wait"]).await?;
        }
        // Helm takes over nothing that somebody else made.
        for manifests in HOST_RIGHTS {
            self.host.kubectl_output(&["delete", "-f", manifests, "--ignore-not-found"]).await?;
        }
        for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
            self.host.kubectl_output(&["delete", kind, "federlet", "--ignore-not-found"]).await?;
        }
        // It would go with the roles, and then its Lease, at some time while a test compares.
        for node in [&["node", "fleet"][..], &["lease", "fleet", "-n", "kube-node-lease"]] {
            self.host.kubectl_output(&[&["delete"], node, &["--ignore-not-found"]].concat()).await?;
        }
        let kinds = "jobs,secrets,leases,serviceaccounts,roles,rolebindings";
        if self.host.kubectl_output(&["get", "namespace", "federlet-system"]).await.is_ok() {
            self.own().run(&format!("delete {kinds} --all --timeout=60s")).await?;
        }
        let mut before = vec![];
        for cluster in self.sandbox.clusters()? {
            let has = leftovers::everything(&cluster).await?;
            before.push((cluster, has));
        }
        Ok(before)
    }
}
