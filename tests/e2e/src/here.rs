//! This machine, as tests use it: our program, a port of it, its address.

use std::{
    net::{IpAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::Cluster;
use tokio::{process::Command, sync::OnceCell};

/// Below those that the kernel gives to outgoing connections (32768 and more): a program that is stopped and started
/// again must find its port free, while thousands of connections come and go.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port that nobody listens on now, and that no other test of this program is given.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Programs that run side by side begin at different places.
    let begin = (std::process::id() % 100) as u16 * 120;
    for _ in PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + begin.wrapping_add(step) % PORTS.len() as u16;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port from {PORTS:?} is free")
}

/// The address under which the machines of a cluster reach us.
pub async fn address_towards(host: &Cluster) -> Result<IpAddr> {
    let kubeconfig = kube::config::Kubeconfig::read_from(host.admin_kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let there: IpAddr = config.cluster_url.host().context("no host")?.parse()?;
    // Connecting a datagram socket sends nothing.
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((there, 443))?;
    Ok(socket.local_addr()?.ip())
}

/// The `federlet` program of this checkout, built once.
pub async fn program() -> Result<&'static Path> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let program = PROGRAM.get_or_try_init(async || {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let built =
            Command::new(cargo).args(["build", "--quiet", "--bin", "federlet"]).current_dir(&root).status();
        ensure!(built.await?.success(), "cannot build federlet");
        // target/debug/deps/cluster-1234 → target/debug/federlet
        let tests = std::env::current_exe()?;
        let folder = tests.ancestors().nth(2).context("no target folder")?;
        Ok::<_, anyhow::Error>(folder.join("federlet"))
    });
    Ok(program.await?)
}
