//! `federlet node` as a process.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    SOON,
    here::{address_towards, free_port, program},
};
use federlet_sandbox::{Cluster, eventually};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{authority::Files, embedded::answers, link::Link};

/// A virtual node whose pods are in the memory of a `federlet node` process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) address: IpAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) folder: PathBuf,
    host: Cluster,
    kubeconfig: PathBuf,
    more: Vec<String>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Process {
    /// Starts one and waits until its node is Ready and its kubelet API answers.
    pub(crate) async fn start(host: &Cluster, name: &str) -> Result<Self> {
        let mut process = Self::new(host, name).await?;
        process.begin().await?;
        Ok(process)
    }

    /// One that does not run yet.
    pub(crate) async fn new(host: &Cluster, name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("federlet-e2e-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let process = Self {
            name: name.to_owned(),
            port: free_port()?,
            address: address_towards(host).await?,
            metrics: SocketAddr::from(([127, 0, 0, 1], free_port()?)),
            folder,
            host: host.clone(),
            kubeconfig: host.admin_kubeconfig().to_owned(),
            more: Vec::new(),
            environment: Vec::new(),
            child: None,
        };
        let settings = format!("{{\"stateFile\": {:?}}}", process.state_file());
        std::fs::write(process.folder.join("memory.json"), settings)?;
        Ok(process)
    }

    /// More flags.
    pub(crate) fn with(mut self, words: &[&str]) -> Self {
        self.more.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    pub(crate) fn with_variable(mut self, variable: &str, value: &str) -> Self {
        self.environment.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Reaches the host over this link.
    pub(crate) fn over(self, link: &Link) -> Result<Self> {
        self.with_kubeconfig(|kubeconfig| kubeconfig["clusters"][0]["cluster"]["server"] = link.url().into())
    }

    /// Acts as whoever has this certificate.
    pub(crate) fn acting_as(self, files: &Files) -> Result<Self> {
        let user = json!({"client-certificate": files.certificate(), "client-key": files.key()});
        self.with_kubeconfig(|kubeconfig| kubeconfig["users"][0]["user"] = user)
    }

    fn with_kubeconfig(mut self, change: impl FnOnce(&mut Value)) -> Result<Self> {
        let mut kubeconfig = serde_json::from_str(&std::fs::read_to_string(&self.kubeconfig)?)?;
        change(&mut kubeconfig);
        self.kubeconfig = self.folder.join("kubeconfig");
        std::fs::write(&self.kubeconfig, kubeconfig.to_string())?;
        Ok(self)
    }

    /// Starts it for the first time and waits until its node is Ready and its kubelet API answers.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        forget_requests(&self.host, &self.name).await?;
        self.restart().await?;
        approve(&self.host, &self.name).await?;
        answers(&self.host, &self.name).await.with_context(|| self.log())
    }

    /// Starts the program, again or for the first time.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = Command::new(program().await?);
        command
            .arg("node")
            .args(["--nodename", &self.name])
            .args(["--kubeconfig".as_ref(), self.kubeconfig.as_os_str()])
            .args(["--provider-config".as_ref(), self.folder.join("memory.json").as_os_str()])
            .args(["--cert-dir".as_ref(), self.folder.as_os_str()])
            .args(["--node-address", &self.address.to_string(), "--port", &self.port.to_string()])
            .args(["--metrics-addr", &self.metrics.to_string()])
            .args(&self.more)
            .env_remove("KUBECONFIG")
            .envs(self.environment.iter().map(|(variable, value)| (variable, value)))
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Where the memory provider writes its pods down.
    pub(crate) fn state_file(&self) -> PathBuf {
        self.folder.join("pods")
    }

    /// As a crash does it: no warning, no last words.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.take().context("it does not run")?.kill().await?)
    }

    /// As a rollout does it.
    pub(crate) async fn terminate(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        let id = child.id().context("it has ended")?.to_string();
        ensure!(Command::new("kill").args(["-TERM", &id]).status().await?.success());
        let ended = tokio::time::timeout(Duration::from_secs(15), child.wait()).await??;
        ensure!(ended.success(), "it ended with {ended}");
        Ok(())
    }

    /// Waits for its end, which nobody asked for, and says with what it ended.
    pub(crate) async fn ends(&mut self) -> Result<std::process::ExitStatus> {
        let mut child = self.child.take().context("it does not run")?;
        Ok(tokio::time::timeout(SOON, child.wait()).await??)
    }

    /// How often it has done something with pods, as its metrics count it.
    pub(crate) async fn operations(&self, operation: &str) -> Result<usize> {
        let text = federlet_e2e::http_get(self.metrics, "/metrics").await?;
        let labels = format!("node=\"{}\",operation=\"{operation}\"", self.name);
        let counts = text.lines().filter_map(|line| {
            let (labelled, count) =
                line.strip_prefix("federlet_pod_operation_seconds_count{")?.split_once("} ")?;
            labelled.starts_with(&labels).then(|| count.parse::<usize>().unwrap_or(0))
        });
        Ok(counts.sum())
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Takes the node away for good.
    pub(crate) async fn finish(mut self) -> Result<()> {
        remove_node(&self.host, &self.name).await?;
        self.terminate().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) async fn remove_node(host: &Cluster, name: &str) -> Result<()> {
    host.kubectl_output(&["annotate", "node", name, "federlet.io/leaving=true"]).await?;
    host.kubectl_output(&["delete", "node", name]).await?;
    Ok(())
}

/// The node's requests for serving certificates.
async fn requests(host: &Cluster, node: &str) -> Result<Vec<String>> {
    let prefix = format!("certificatesigningrequest.certificates.k8s.io/federlet-{node}-");
    let all = host.kubectl_output(&["get", "csr", "-o", "name"]).await?;
    Ok(all.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect())
}

/// Takes away what an earlier run asked for, so that only the request of this one is there to approve.
pub(crate) async fn forget_requests(host: &Cluster, node: &str) -> Result<()> {
    for request in requests(host, node).await? {
        host.kubectl_output(&["delete", &request]).await?;
    }
    Ok(())
}

/// Says yes to the node's request for a serving certificate, as its administrator would.
pub(crate) async fn approve(host: &Cluster, node: &str) -> Result<()> {
    eventually("the node asks for a certificate", SOON, async || {
        let asked = requests(host, node).await?.pop().context("not yet")?;
        host.kubectl_output(&["certificate", "approve", &asked]).await
    })
    .await?;
    Ok(())
}
