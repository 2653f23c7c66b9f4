//! Federlet as a person runs it: one `federlet serve`, and members that joined by `federlet join`.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use federlet_sandbox::{Cluster, Sandbox, eventually, testing::is_left_behind};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    sync::Mutex,
};

use crate::{
    SOON,
    here::{address_towards, free_port, program},
    keeper::{start_for_good, that_ends_with_us},
};

/// A `federlet serve` beside the sandbox's host.
#[derive(Debug)]
pub struct Serve {
    host: Cluster,
    kubeconfig: PathBuf,
    folder: PathBuf,
    extra: Vec<String>,
    child: Mutex<Option<Child>>,
    /// Whether it was started, and nobody has waited for its nodes since.
    unsettled: AtomicBool,
}

impl Serve {
    /// Starts one, with no more rights than an installation gives it. `name` tells its files from those of others.
    pub async fn start(host: &Cluster, name: &str, extra: &[&str]) -> Result<Self> {
        remove_folders_of_dead_runs();
        let folder = std::env::temp_dir().join(format!("{FOLDERS}{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let extra = extra.iter().map(|word| (*word).to_owned()).collect();
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, as_installed(host).await?)?;
        let (child, unsettled) = Default::default();
        let serve = Self { host: host.clone(), kubeconfig, folder, extra, child, unsettled };
        serve.restart().await?;
        Ok(serve)
    }

    /// Starts the program, again or for the first time.
    pub async fn restart(&self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let address = address_towards(&self.host).await?.to_string();
        let mut command = that_ends_with_us(program().await?);
        command
            .args(["serve", "--address", &address, "--kubelet-port", "0", "--metrics-addr", ""])
            .args(["--kubeconfig".as_ref(), self.kubeconfig.as_os_str()])
            .args(["--cert-dir".as_ref(), self.folder.as_os_str()])
            .args(&self.extra)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.unsettled.store(true, Ordering::Relaxed);
        *self.child.lock().await = Some(start_for_good(command).await?);
        Ok(())
    }

    /// As a crash does it: no warning, no last words.
    pub async fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.child.lock().await.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// As a rollout does it.
    pub async fn terminate(&self) -> Result<()> {
        let Some(mut child) = self.child.lock().await.take() else { return Ok(()) };
        let id = child.id().context("it has ended")?.to_string();
        ensure!(Command::new("kill").args(["-TERM", &id]).status().await?.success());
        let ended = tokio::time::timeout(Duration::from_secs(30), child.wait()).await??;
        ensure!(ended.success(), "federlet serve ended with {ended}: {}", self.log());
        Ok(())
    }

    /// The process, while it runs.
    pub async fn pid(&self) -> Option<u32> {
        self.child.lock().await.as_ref().and_then(Child::id)
    }

    /// The last of what it said.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// What it said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// What the names of the folders of these processes begin with.
const FOLDERS: &str = "federlet-e2e-";

/// What is shared by all tests of a program is never dropped.
fn remove_folders_of_dead_runs() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if is_left_behind(&entry.file_name().to_string_lossy(), FOLDERS) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What an installation may do on the host, and what it may be allowed in addition.
pub const HOST_RIGHTS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../provider/rbac/host.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../provider/rbac/host-secrets.yaml"),
];

/// A kubeconfig of the account that an installation gives to `federlet serve`; that is made when the first one asks.
async fn as_installed(host: &Cluster) -> Result<String> {
    // By what leads to the host, its certificates among it: a cluster may come again under the same name.
    static MADE: Mutex<BTreeMap<String, String>> = Mutex::const_new(BTreeMap::new());
    let mut made = MADE.lock().await;
    let admin = std::fs::read_to_string(host.admin_kubeconfig())?;
    if let Some(config) = made.get(&admin) {
        return Ok(config.clone());
    }
    let token = install(host).await?;
    let mut config: Value = serde_json::from_str(&admin)?;
    config["users"][0]["user"] = json!({ "token": token.trim() });
    Ok(made.entry(admin).or_insert(config.to_string()).clone())
}

/// Makes the account, with its rights; its token.
async fn install(host: &Cluster) -> Result<String> {
    let made = host.kubectl_output(&["create", "namespace", "federlet-system"]).await;
    if let Err(error) = made {
        ensure!(error.to_string().contains("AlreadyExists"), "{error:#}");
    }
    for manifests in HOST_RIGHTS {
        host.kubectl_output(&["apply", "-f", manifests]).await?;
    }
    if host
        .kubectl_output(&["get", "crd", "clusters.cluster.karmada.io", "resourcebindings.work.karmada.io"])
        .await
        .is_err()
    {
        let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policy/crds");
        host.kubectl_output(&["apply", "--server-side", "-f", definitions]).await?;
    }
    let token = ["create", "token", "federlet", "-n", "federlet-system", "--duration=4h"];
    host.kubectl_output(&token).await
}

/// The sandbox's members as nodes of its host, shared by the tests of one program.
#[derive(Debug)]
pub struct Fleet {
    /// The clusters.
    pub sandbox: &'static Sandbox,
    /// The host.
    pub host: Cluster,
    /// What serves the nodes.
    pub serve: Serve,
}

/// The node of the sandbox's first member.
pub const MEMBER1: &str = "fleet-member1";
/// The node of its second.
pub const MEMBER2: &str = "fleet-member2";
/// The node of one region of the edge cluster.
pub const BEIJING: &str = "ke-beijing-cluster";
/// The node of the other.
pub const HANGZHOU: &str = "ke-hangzhou-cluster";

/// Nodes of the fleet: a name, the cluster behind it, and what tells a region.
const MEMBERS: [(&str, &str, Option<&str>); 4] = [
    (MEMBER1, "member1", None),
    (MEMBER2, "member2", None),
    (BEIJING, "edge", Some("location=beijing")),
    (HANGZHOU, "edge", Some("location=hangzhou")),
];

impl Fleet {
    /// The fleet of this test program: joined and served when the first test asks, ended with the program. If
    /// somebody stopped `federlet serve` meanwhile, its nodes answer again.
    pub async fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Option<Arc<Fleet>>> = Mutex::const_new(None);
        let mut shared = SHARED.lock().await;
        let fleet = match &*shared {
            Some(fleet) => fleet.clone(),
            None => Arc::new(Self::start().await?),
        };
        if fleet.serve.unsettled.load(Ordering::Relaxed) {
            for (node, ..) in MEMBERS {
                fleet.answers(node).await.with_context(|| fleet.serve.log())?;
            }
            fleet.serve.unsettled.store(false, Ordering::Relaxed);
        }
        *shared = Some(fleet.clone());
        Ok(fleet)
    }

    async fn start() -> Result<Self> {
        let sandbox = Sandbox::shared().await?;
        let host = sandbox.cluster("host")?;
        let port = free_port()?.to_string();
        let url = format!("https://{}:{port}", address_towards(&host).await?);
        let serve = Serve::start(&host, "fleet", &["--webhook-port", &port, "--webhook-url", &url]).await?;
        let fleet = Self { sandbox, host, serve };
        for (node, cluster, region) in MEMBERS {
            let mut words = vec!["--allow-objects=definitions,roles,workloads"];
            if let Some(region) = region {
                words.extend(["--region-selector", region]);
            }
            fleet.join(node, &sandbox.cluster(cluster)?, &words).await.with_context(|| fleet.serve.log())?;
        }
        Ok(fleet)
    }

    /// `federlet join`, as a person types it.
    pub async fn join(&self, node: &str, member: &Cluster, words: &[&str]) -> Result<String> {
        let (host, member) = (self.host.admin_kubeconfig(), member.admin_kubeconfig());
        let (host, member) = (host.to_string_lossy(), member.to_string_lossy());
        let mut all = vec!["join", node, "--kubeconfig", &*host, "--cluster-kubeconfig", &*member];
        all.extend(words);
        federlet(&all).await
    }

    /// Waits until a node is Ready and its kubelet API answers.
    pub async fn answers(&self, node: &str) -> Result<()> {
        eventually("the node is Ready and answers", SOON, async || {
            self.host
                .kubectl_output(&["wait", &format!("node/{node}"), "--for=condition=Ready", "--timeout=5s"])
                .await?;
            let healthz = format!("/api/v1/nodes/{node}/proxy/healthz");
            self.host.kubectl_output(&["get", "--raw", &healthz]).await
        })
        .await?;
        Ok(())
    }
}

/// Takes away the Clusters that other tests, or a run that was killed, left on the host, and our accounts in members:
/// nobody serves them any more.
pub async fn leave_all(sandbox: &Sandbox) -> Result<()> {
    let host = sandbox.cluster("host")?;
    let kubeconfig = host.admin_kubeconfig().display().to_string();
    let path = "jsonpath={.items[*].metadata.name}";
    let clusters = host.kubectl_output(&["get", "clusters", "-o", path]).await.unwrap_or_default();
    for name in clusters.split_whitespace() {
        federlet(&["unjoin", name, "--force", "--kubeconfig", &kubeconfig]).await?;
    }
    for cluster in sandbox.clusters()? {
        let accounts = "clusterroles,clusterrolebindings,namespaces";
        let found = cluster.kubectl_output(&["get", accounts, "-o", "name"]).await?;
        for object in found.lines().filter(|name| name.contains("/federlet-host-")) {
            cluster.kubectl_output(&["delete", object, "--ignore-not-found", "--timeout=60s"]).await?;
        }
    }
    Ok(())
}

/// The `federlet` command line; what it printed.
pub async fn federlet(words: &[&str]) -> Result<String> {
    let output = Command::new(program().await?)
        .args(words)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(180), output).await??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    bail!(
        "federlet {}: {}\n{said}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )
}
