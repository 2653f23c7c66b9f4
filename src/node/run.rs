use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context;
use federlet_node::{
    VirtualNode, VirtualNodeSettings,
    api::{CertificateRequests, ServingNames},
    client::{client, heartbeat_client},
    contract::Provider,
    memory::{MemoryProvider, MemorySettings},
    metrics::Metrics,
    node::{NodeFacts, NodeTemplate},
    pods::{HostPods, References, Scope},
};
use tokio_util::task::TaskTracker;

use super::args::{NodeArgs, ProviderKind};
use crate::{
    host::{published_address, reach_host},
    process::{Heartbeat, arch, serve_metrics, stop_on_signals},
};

impl NodeArgs {
    /// Serves the node until SIGTERM or SIGINT.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        // Taken apart in full, so that a flag that nobody uses does not compile.
        let Self {
            nodename,
            os,
            enable_node_lease,
            namespace,
            provider,
            provider_config,
            host,
            register,
            work,
            kubelet,
            telemetry,
        } = self;
        let told = telemetry.init()?;
        let stop = stop_on_signals()?;
        let metrics = Arc::new(Metrics::default());
        let tasks = TaskTracker::new();
        serve_metrics(&telemetry.metrics_addr, &metrics, &tasks, &stop).await?;

        let config = host.config().await?;
        let pod_client = client(config.clone(), "pods", metrics.clone())?;
        let Some(version) = reach_host(&pod_client, work.startup_timeout, &stop).await? else {
            return Ok(());
        };
        tracing::info!(%version, node = %nodename, "the host answers");

        let provider = make_provider(provider, provider_config.as_deref())?;
        let template = NodeTemplate {
            name: nodename.clone(),
            os,
            arch: arch().to_owned(),
            taints: register.taints(),
            address: published_address(kubelet.address, kubelet.node_address, &config)?,
            kubelet_port: kubelet.port,
            host: version,
        };
        let identity = register.identity(nodename.as_str());
        let settings = VirtualNodeSettings {
            node: work.node(),
            pods: work.pods(),
            identity: enable_node_lease.then_some(identity),
        };

        let host_pods = HostPods::new(Scope::Node(nodename.clone()), namespace, metrics.clone());
        let (watching, watch_client) = (host_pods.clone(), client(config.clone(), "watch", metrics.clone())?);
        let watch_stop = stop.clone();
        tasks.spawn(async move { watching.run(watch_client, watch_stop).await });

        let kubelet_client = client(config.clone(), "kubelet-api", metrics.clone())?;
        let addresses = template.address.into_iter().collect();
        let names = ServingNames { node: nodename.clone(), addresses, names: Vec::new() };
        let domain = work.cluster_domain.clone();
        let kubelets = kubelet
            .kubelets(&kubelet_client, host_pods.clone(), domain, metrics.clone(), &tasks, &stop)
            .await?;
        let serving = match kubelet.given_certificate(&names, &tasks, &stop).await? {
            Some(given) => given,
            None => {
                let requests = CertificateRequests::new(kubelet_client, names, kubelet.cert_dir);
                let serving = requests.serving();
                tasks.spawn(requests.run(stop.clone()));
                serving
            }
        };
        let listen = SocketAddr::new(kubelet.address, kubelet.port);
        kubelets.add(nodename, provider.clone(), listen, serving).await?;

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

fn make_provider(kind: ProviderKind, config: Option<&Path>) -> anyhow::Result<Arc<dyn Provider>> {
    match kind {
        ProviderKind::Cluster => anyhow::bail!("not yet"),
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
