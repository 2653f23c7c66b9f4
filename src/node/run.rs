use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use federlet_node::{
    VirtualNode, VirtualNodeSettings,
    api::ServingNames,
    client::{client, heartbeat_client},
    contract::Provider,
    memory::{MemoryProvider, MemorySettings},
    metrics::{self, Metrics},
    node::{HostVersion, NodeFacts, NodeSettings, NodeTemplate, PingThresholds},
    pods::{HostPods, PodSettings, References, Scope},
};
use kube::{Client, Config, config::KubeConfigOptions};
use tokio::{net::TcpListener, signal::unix::SignalKind};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    args::{KubeletArgs, NodeArgs, ProviderKind},
    kubelet::Served,
};

impl NodeArgs {
    /// Serves the node until SIGTERM or SIGINT.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        // Taken apart in full, so that a flag that nobody uses does not compile.
        let Self {
            nodename,
            os,
            taints,
            disable_taint,
            enable_node_lease,
            identity,
            kubeconfig,
            namespace,
            startup_timeout,
            provider,
            provider_config,
            ping_interval,
            ping_failures,
            ping_successes,
            pod_sync_workers,
            full_resync_period,
            cluster_domain,
            kubelet,
            telemetry,
        } = self;
        let told = telemetry.init()?;
        let stop = stop_on_signals()?;
        let metrics = Arc::new(Metrics::default());
        let tasks = TaskTracker::new();
        if let Some(address) = listen_address(&telemetry.metrics_addr)? {
            let listener =
                TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
            tasks.spawn(metrics::serve(listener, metrics.clone(), stop.clone()));
        }

        let config = host_config(kubeconfig.as_deref()).await?;
        let pod_client = client(config.clone(), "pods", metrics.clone())?;
        let Some(host) = reach_host(&pod_client, startup_timeout, &stop).await? else {
            return Ok(());
        };
        tracing::info!(version = %host, node = %nodename, "the host answers");

        let provider = make_provider(provider, provider_config.as_deref())?;
        let template = NodeTemplate {
            name: nodename.clone(),
            os,
            arch: kubernetes_arch(std::env::consts::ARCH).to_owned(),
            taints: if disable_taint { Vec::new() } else { taints },
            address: published_address(&kubelet, &config)?,
            kubelet_port: kubelet.port,
            host,
        };
        let identity = identity.or_else(hostname).unwrap_or_else(|| nodename.to_string());
        let mut pods = PodSettings { full_resync: full_resync_period, ..PodSettings::default() };
        pods.workers = pod_sync_workers.unwrap_or(pods.workers);
        let node = NodeSettings {
            ping_every: ping_interval,
            thresholds: PingThresholds { failures: ping_failures, successes: ping_successes },
            ..NodeSettings::default()
        };
        let settings = VirtualNodeSettings { node, pods, identity: enable_node_lease.then_some(identity) };

        let host_pods = HostPods::new(Scope::Node(nodename), namespace, metrics.clone());
        let (watching, watch_client) = (host_pods.clone(), client(config.clone(), "watch", metrics.clone())?);
        let watch_stop = stop.clone();
        tasks.spawn(async move { watching.run(watch_client, watch_stop).await });

        let kubelet_client = client(config.clone(), "kubelet-api", metrics.clone())?;
        let addresses = template.address.into_iter().collect();
        let served = Served {
            names: ServingNames { node: template.name.clone(), addresses, names: Vec::new() },
            provider: provider.clone(),
            host_pods: host_pods.clone(),
            cluster_domain,
            metrics: metrics.clone(),
        };
        kubelet.serve(kubelet_client, served, &tasks, &stop).await?;

        let heartbeat = Heartbeat::start()?;
        let node = VirtualNode {
            template,
            provider,
            references: Some(References::new(pod_client.clone())),
            client: pod_client,
            heartbeat_client: heartbeat_client(config, metrics.clone())?,
            heartbeat: heartbeat.handle.clone(),
            host_pods,
            facts: NodeFacts::default(),
            settings,
            metrics,
        };
        node.run(stop).await;
        tasks.close();
        tasks.wait().await;
        tracing::info!("stopped; pods stay as they are");
        told.finish().await;
        Ok(())
    }
}

/// A thread for heartbeats alone: a burst of pods must not make the node look dead.
struct Heartbeat {
    handle: tokio::runtime::Handle,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Heartbeat {
    fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new().name("heartbeat".into()).spawn(move || runtime.block_on(stopped))?;
        Ok(Self { handle, _stop: stop })
    }
}

fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signal = tokio::signal::unix::signal(kind).context("cannot listen for signals")?;
        let stop = stop.clone();
        tokio::spawn(async move {
            signal.recv().await;
            tracing::info!("told to stop: finishing what is under way");
            stop.cancel();
        });
    }
    Ok(stop)
}

/// `:10255` is every address, as in Go's flags.
fn listen_address(text: &str) -> anyhow::Result<Option<SocketAddr>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    whole.parse().map(Some).with_context(|| format!("--metrics-addr {text:?} is not an address with a port"))
}

async fn host_config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    match kubeconfig {
        Some(file) => {
            let read = kube::config::Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("the kubeconfig {} cannot be used", file.display()))
        }
        None => Config::infer().await.context("no kubeconfig and no service account: use --kubeconfig"),
    }
}

/// Waits for the host's API server. None if told to stop meanwhile.
async fn reach_host(
    client: &Client,
    patience: Duration,
    stop: &CancellationToken,
) -> anyhow::Result<Option<HostVersion>> {
    let begun = tokio::time::Instant::now();
    loop {
        match client.apiserver_version().await {
            Ok(version) => return Ok(Some(HostVersion::new(&version.git_version, &version.minor))),
            Err(error) if !patience.is_zero() && begun.elapsed() >= patience => {
                return Err(error).with_context(|| format!("the host did not answer within {patience:?}"));
            }
            Err(error) => tracing::warn!(%error, "the host does not answer yet, trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

fn make_provider(kind: ProviderKind, config: Option<&Path>) -> anyhow::Result<Arc<dyn Provider>> {
    match kind {
        ProviderKind::Memory => {
            let settings = match config {
                Some(file) => {
                    let text =
                        std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
                    serde_json::from_slice(&text)
                        .with_context(|| format!("{} is not understood", file.display()))?
                }
                None => MemorySettings::default(),
            };
            let provider = MemoryProvider::new(settings).context("cannot use the provider's state file")?;
            Ok(Arc::new(provider))
        }
    }
}

fn kubernetes_arch(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The address to publish: as told, or the one to listen on, or the one from which the host is reached.
fn published_address(kubelet: &KubeletArgs, config: &Config) -> anyhow::Result<Option<IpAddr>> {
    let KubeletArgs { address, node_address, .. } = kubelet;
    let told = node_address.or(Some(*address).filter(|address| !address.is_unspecified()));
    match told.or_else(|| address_towards(config)) {
        Some(address) if !is_callable(address) => bail!(
            "API servers refuse to call a node at {address}: say with --node-address where the host reaches this process"
        ),
        address => Ok(address),
    }
}

fn address_towards(config: &Config) -> Option<IpAddr> {
    // Connecting a datagram socket sends nothing; it only asks the kernel for a route.
    let host: IpAddr = config.cluster_url.host()?.trim_matches(['[', ']']).parse().ok()?;
    let socket = UdpSocket::bind(if host.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    socket.connect((host, config.cluster_url.port_u16().unwrap_or(443))).ok()?;
    socket.local_addr().ok().map(|local| local.ip()).filter(|address| is_callable(*address))
}

/// Whether an API server proxies to such an address: not to itself, and not to what is only around it.
fn is_callable(address: IpAddr) -> bool {
    let near = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(near || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_leave_out_the_host() {
        assert_eq!(listen_address("").unwrap(), None);
        assert_eq!(listen_address(":10255").unwrap(), Some(SocketAddr::from(([0, 0, 0, 0], 10255))));
        assert_eq!(listen_address("127.0.0.1:1").unwrap(), Some(SocketAddr::from(([127, 0, 0, 1], 1))));
        assert!(listen_address("10255").is_err());
    }

    #[test]
    fn only_addresses_that_api_servers_call_are_published() {
        for (address, callable) in [
            ("10.0.0.1", true),
            ("198.18.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("0.0.0.0", false),
            ("169.254.1.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_callable(address.parse().unwrap()), callable, "{address}");
        }
    }
}
