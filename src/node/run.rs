use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context, anyhow, bail};
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
use federlet_provider::{
    errors::brief,
    join::node::{is_machine, name_taken},
};
use tokio_util::task::TaskTracker;

use super::{
    args::{NodeArgs, ProviderKind},
    member::Told,
};
use crate::{
    host::{published_address, reach_host},
    process::{Heartbeat, arch, serve_metrics, stop_on_signals},
    serve::{Process, Which},
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
            cluster,
            disable_overrides,
            within,
            host,
            register,
            work,
            kubelet,
            telemetry,
        } = self;
        if let Some(name) = cluster {
            let which = Which::One { name, overrides: !disable_overrides };
            return Process { which, host, within, register, work, kubelet, telemetry }.run().await;
        }
        if within.pod.is_some() {
            bail!("--pod is for --cluster: nothing is kept on the host without a Cluster");
        }
        if within.host_api.is_some() && matches!(provider, ProviderKind::Memory) {
            bail!("--host-api is for members: pods that are only pretended to run look for no API server");
        }
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

        let host_pods = HostPods::new(Scope::Node(nodename.clone()), namespace, metrics.clone());
        let (watching, watch_client) = (host_pods.clone(), client(config.clone(), "watch", metrics.clone())?);
        let watch_stop = stop.clone();
        tasks.spawn(async move { watching.run(watch_client, watch_stop).await });

        let address = published_address(kubelet.address, kubelet.node_address, &config)?;
        let (provider, member): (Arc<dyn Provider>, _) = match provider {
            ProviderKind::Memory => (memory(provider_config.as_deref())?, None),
            ProviderKind::Cluster => {
                let told = Told {
                    node: &nodename,
                    version: &version,
                    address,
                    config: &config,
                    host_pods: &host_pods,
                    within: &within,
                    taints: &register.taints(),
                };
                let Some(member) = told.connect(provider_config.as_deref(), &metrics, &tasks, &stop).await?
                else {
                    return Ok(());
                };
                (member.provider.clone(), Some(member))
            }
        };
        let template = NodeTemplate {
            name: nodename.clone(),
            os,
            arch: arch().to_owned(),
            taints: register.taints(),
            address,
            kubelet_port: kubelet.port,
            host: version,
        };
        let identity = register.identity(nodename.as_str());
        let settings = VirtualNodeSettings {
            node: work.node(),
            pods: work.pods(),
            identity: enable_node_lease.then_some(identity),
        };

        let kubelet_client = client(config.clone(), "kubelet-api", metrics.clone())?;
        let addresses = template.address.into_iter().collect();
        let names = ServingNames { node: nodename.clone(), addresses, names: Vec::new() };
        let domain = work.cluster_domain.clone();
        let kubelets = kubelet
            .kubelets(&kubelet_client, host_pods.clone(), domain, metrics.clone(), &tasks, &stop)
            .await?;
        let name = nodename.as_str();
        let taken = is_machine(&pod_client, name).await;
        if taken.map_err(|error| anyhow!("cannot ask the host for its node {name}: {}", brief(&error)))? {
            bail!(name_taken(name));
        }
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
        metrics.begun();

        let heartbeat = Heartbeat::start()?;
        let facts = NodeFacts::default();
        let (fence, keeper) = (facts.fence.clone(), pod_client.clone());
        let node = VirtualNode {
            template,
            provider,
            references: Some(References::new(pod_client.clone())),
            client: pod_client,
            heartbeat_client: heartbeat_client(config, metrics.clone())?,
            heartbeat: heartbeat.handle.clone(),
            host_pods,
            facts,
            settings,
            metrics,
        };
        let beside = async {
            if let Some(member) = member {
                member.run(fence, keeper, stop.clone()).await;
            }
        };
        // The node first: it closes its fence before anything else looks at it.
        tokio::join!(node.run(stop.clone()), beside);
        tasks.close();
        tasks.wait().await;
        tracing::info!("stopped; pods stay as they are");
        told.finish().await;
        Ok(())
    }
}

fn memory(config: Option<&Path>) -> anyhow::Result<Arc<dyn Provider>> {
    let settings = match config {
        Some(file) => {
            let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{} is not understood", file.display()))?
        }
        None => MemorySettings::default(),
    };
    let provider = MemoryProvider::new(settings).context("cannot use the provider's state file")?;
    Ok(Arc::new(provider))
}
