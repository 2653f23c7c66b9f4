//! `federlet node` as a process, and the relay that stands in for it where streams are tested.

use std::{
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use federlet_e2e::SOON;
use federlet_sandbox::{Cluster, eventually};
use tokio::{
    process::{Child, Command},
    sync::OnceCell,
};

/// A virtual node whose pods are in the memory of a `federlet node` process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) address: IpAddr,
    pub(crate) metrics: SocketAddr,
    host: Cluster,
    folder: PathBuf,
    child: Child,
}

impl Process {
    /// Starts one and waits until its node is Ready and its kubelet API answers.
    pub(crate) async fn start(host: &Cluster, name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("federlet-e2e-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let settings = format!("{{\"stateFile\": {:?}}}", folder.join("pods"));
        std::fs::write(folder.join("memory.json"), settings)?;
        let address = address_towards(host).await?;
        let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let (port, child) = (free_port()?, spawn_nothing()?);
        let mut process =
            Self { name: name.to_owned(), port, address, metrics, host: host.clone(), folder, child };
        forget_requests(host, name).await?;
        process.restart().await?;
        approve(host, name).await?;
        process.answers().await?;
        Ok(process)
    }

    /// Starts the program, again or for the first time.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = Command::new(program().await?);
        command
            .arg("node")
            .args(["--nodename", &self.name])
            .args(["--kubeconfig".as_ref(), self.host.admin_kubeconfig().as_os_str()])
            .args(["--provider-config".as_ref(), self.folder.join("memory.json").as_os_str()])
            .args(["--cert-dir".as_ref(), self.folder.as_os_str()])
            .args(["--node-address", &self.address.to_string(), "--port", &self.port.to_string()])
            .args(["--metrics-addr", &self.metrics.to_string()])
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.child = command.spawn()?;
        Ok(())
    }

    /// As a crash does it: no warning, no last words.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// As a rollout does it.
    pub(crate) async fn terminate(&mut self) -> Result<()> {
        let id = self.child.id().context("it has ended")?.to_string();
        ensure!(Command::new("kill").args(["-TERM", &id]).status().await?.success());
        let ended = tokio::time::timeout(Duration::from_secs(15), self.child.wait()).await??;
        ensure!(ended.success(), "it ended with {ended}");
        Ok(())
    }

    async fn answers(&self) -> Result<()> {
        eventually("the node is Ready and answers", SOON, async || {
            let ready = format!("wait node/{} --for=condition=Ready --timeout=5s", self.name);
            self.host.kubectl_output(&ready.split(' ').collect::<Vec<_>>()).await?;
            let healthz = format!("/api/v1/nodes/{}/proxy/healthz", self.name);
            self.host.kubectl_output(&["get", "--raw", &healthz]).await
        })
        .await
        .with_context(|| self.log())?;
        Ok(())
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Takes the node away for good.
    pub(crate) async fn finish(mut self) -> Result<()> {
        remove_node(&self.host, &self.name).await?;
        self.terminate().await?;
        std::fs::remove_dir_all(&self.folder)?;
        Ok(())
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

/// The address under which the machines of a cluster reach us.
pub(crate) async fn address_towards(host: &Cluster) -> Result<IpAddr> {
    let kubeconfig = kube::config::Kubeconfig::read_from(host.admin_kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let there: IpAddr = config.cluster_url.host().context("no host")?.parse()?;
    // Connecting a datagram socket sends nothing.
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((there, 443))?;
    Ok(socket.local_addr()?.ip())
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("0.0.0.0:0")?.local_addr()?.port())
}

fn spawn_nothing() -> Result<Child> {
    Ok(Command::new("true").kill_on_drop(true).spawn()?)
}

/// The `federlet` program of this checkout, built once.
async fn program() -> Result<&'static Path> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let program = PROGRAM.get_or_try_init(async || {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let built =
            Command::new(cargo).args(["build", "--quiet", "--bin", "federlet"]).current_dir(&root).status();
        ensure!(built.await?.success(), "cannot build federlet");
        // target/debug/deps/node-1234 → target/debug/federlet
        let tests = std::env::current_exe()?;
        let folder = tests.ancestors().nth(2).context("no target folder")?;
        Ok::<_, anyhow::Error>(folder.join("federlet"))
    });
    Ok(program.await?)
}
