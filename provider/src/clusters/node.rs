//! One virtual node of a member that is served.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use federlet_node::{
    VirtualNode, VirtualNodeSettings,
    api::{CertificateRequests, KubeletsError, ServingNames},
    client::{client, heartbeat_client},
    contract::{NodeName, Provider},
    node::{Fence, NodeFacts, NodeTemplate},
    pods::{Events, References},
};
use k8s_openapi::api::core::v1::Taint;
use kube::{Client, Config};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    conditions::Say,
    connection::Connection,
    context::{Certificates, HostContext, Taken},
    identity,
};
use crate::{
    cluster::{ClusterProvider, MemberReport},
    follow::Lanes,
    settings::MemberSettings,
    site::{HostSide, Site},
    version::Version,
};

/// How often it is looked whether the node is ours to serve.
const LOOK: Duration = Duration::from_millis(200);

/// A node that is served until it is stopped.
pub(super) struct RunningNode {
    pub(super) connection: Arc<Connection>,
    pub(super) provider: Arc<ClusterProvider>,
    pub(super) report: watch::Receiver<MemberReport>,
    pub(super) healthy: watch::Receiver<Option<bool>>,
    pub(super) fence: Fence,
    name: NodeName,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    _port: Taken,
}

impl RunningNode {
    /// Begins to serve a node.
    ///
    /// `known` is whether the member was there before: a region that keeps its pods then counts as there, though nobody
    /// has heard of it in this process.
    pub(super) async fn start(
        host: &HostContext,
        tasks: &TaskTracker,
        connection: Arc<Connection>,
        settings: MemberSettings,
        version: Version,
        known: bool,
    ) -> Result<Self, Say> {
        let broken = |error: String| Say::no("CannotServe", error);
        let name = NodeName::new(settings.name.as_str()).map_err(|error| broken(error.to_string()))?;
        let config = identity::config_for(host, &settings.name).await?;
        let make = |part| client(config.clone(), part, host.metrics.clone());
        let pod_client = make("pods").map_err(|error| broken(error.to_string()))?;
        let side = HostSide {
            id: host.id.clone(),
            version: host.version,
            node: name.clone(),
            client: pod_client.clone(),
            lanes: Lanes::new(config.clone(), host.metrics.clone()),
            own: host.client.clone(),
            pods: host.pods.clone(),
            namespaces: host.namespaces.clone(),
            objects: host.objects.clone(),
            rewrite: host.rewrite.clone(),
            events: Events::new(pod_client.clone(), &name),
        };
        let addresses = host.serving.address.into_iter().collect();
        let mut target = settings.target(host.id.clone(), version, host.pod_api.clone(), addresses);
        target.keep_on_host(&host.serving.taints);
        let site = Site::new(side, connection.clients.clone(), settings, target);
        let provider = ClusterProvider::new(site, connection.watch.clone());
        if known {
            provider.answered_before();
        }
        let stop = CancellationToken::new();
        let references = References::new(pod_client.clone());
        let on_host = OnHost { host, name: &name, config: &config, client: pod_client, stop: &stop };
        let taints = host.serving.taints.clone();
        let (node, port) = on_host.node(provider.clone(), taints, Some(references)).await?;
        let (healthy, fence) = (node.facts.healthy.subscribe(), node.facts.fence.clone());
        let (report, listening) = (provider.report(), node.template.kubelet_port);
        let serving = tasks.spawn(serve(node, provider.clone(), fence.clone(), host.clone(), stop.clone()));
        tracing::info!(node = %name, port = listening, "serving");
        Ok(Self { connection, provider, report, healthy, fence, name, stop, serving, _port: port })
    }

    /// Decides otherwise about the member, without disturbing its pods.
    pub(super) fn change(&self, host: &HostContext, settings: &MemberSettings) {
        let site = self.provider.site();
        let addresses: Vec<_> = host.serving.address.into_iter().collect();
        site.change_settings(settings.clone());
        site.change_target(|target| {
            let new =
                settings.target(host.id.clone(), target.version, host.pod_api.clone(), addresses.clone());
            target.api = new.api;
            settings.retarget(target);
        });
        self.provider.settings_changed();
    }

    /// Stops to serve. The Node and its pods stay; its lease is free when this returns.
    pub(super) async fn stop(self, host: &HostContext) {
        self.stop.cancel();
        host.serving.vouched.remove(&self.name);
        host.serving.kubelets.remove(&self.name).await;
        let _ = self.serving.await;
        tracing::info!(node = %self.name, "not served any more");
    }
}

async fn serve(
    node: VirtualNode,
    provider: Arc<ClusterProvider>,
    fence: Fence,
    host: HostContext,
    stop: CancellationToken,
) {
    let name = node.template.name.clone();
    // The first thing that the node does is to close its fence, so the other one finds it closed.
    let work = |term| provider.clone().run(term);
    tokio::join!(node.run(stop.clone()), background(work, fence, stop));
    host.serving.vouched.remove(&name);
}

/// What a provider does by itself it does only while the node is ours, as everything else.
pub(super) async fn background<W>(
    work: impl Fn(CancellationToken) -> W,
    fence: Fence,
    stop: CancellationToken,
) where
    W: Future<Output = ()>,
{
    let until = async |wanted: bool| {
        while fence.holds() != wanted {
            tokio::time::sleep(LOOK).await;
        }
    };
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            () = until(true) => {}
        }
        let term = stop.child_token();
        let lost = async {
            until(false).await;
            term.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = work(term.clone()) => {}
            () = lost => {}
        }
    }
}

/// A node as the host knows it, whatever stands behind it.
pub(super) struct OnHost<'a> {
    pub(super) host: &'a HostContext,
    pub(super) name: &'a NodeName,
    /// How to act as the node.
    pub(super) config: &'a Config,
    /// The client for its pods.
    pub(super) client: Client,
    pub(super) stop: &'a CancellationToken,
}

impl OnHost<'_> {
    /// The node, ready to run, with its kubelet API open on a port of its own.
    pub(super) async fn node(
        self,
        provider: Arc<dyn Provider>,
        taints: Vec<Taint>,
        references: Option<Arc<References>>,
    ) -> Result<(VirtualNode, Taken), Say> {
        let Self { host, name, config, client, stop } = self;
        let heartbeat_client = heartbeat_client(config.clone(), host.metrics.clone())
            .map_err(|error| Say::no("CannotServe", error.to_string()))?;
        let opened = open_port(host, name, provider.clone(), config, stop).await;
        let (port, listening) = opened.inspect_err(|_| {
            stop.cancel();
            host.serving.vouched.remove(name);
        })?;
        let template = NodeTemplate {
            name: name.clone(),
            os: "linux".into(),
            arch: host.serving.arch.clone(),
            taints,
            address: host.serving.address,
            kubelet_port: listening,
            host: host.host_version.clone(),
        };
        let node = VirtualNode {
            template,
            provider,
            references,
            client,
            heartbeat_client,
            heartbeat: host.heartbeat.clone(),
            host_pods: host.pods.clone(),
            facts: NodeFacts::default(),
            settings: VirtualNodeSettings {
                node: host.serving.node,
                pods: host.serving.pods,
                identity: Some(host.serving.identity.clone()),
            },
            metrics: host.metrics.clone(),
        };
        Ok((node, port))
    }
}

/// Opens the first port that is free, and sees to its certificate.
async fn open_port(
    host: &HostContext,
    name: &NodeName,
    provider: Arc<dyn Provider>,
    config: &Config,
    stop: &CancellationToken,
) -> Result<(Taken, u16), Say> {
    let serving = &host.serving;
    let certificate = match &serving.certificates {
        Certificates::Given(certificate) => certificate.clone(),
        Certificates::Requested { directory } => {
            let addresses: Vec<_> = serving.address.into_iter().collect();
            serving.vouched.add(name.clone(), addresses.iter().copied().collect());
            let names = ServingNames { node: name.clone(), addresses, names: vec![] };
            let client = client(config.clone(), "kubelet-api", host.metrics.clone())
                .map_err(|error| Say::no("CannotServe", error.to_string()))?;
            let requests = CertificateRequests::new(client, names, directory.clone());
            let certificate = requests.serving();
            tokio::spawn(requests.run(stop.clone()));
            certificate
        }
    };
    let mut tried = None;
    loop {
        let Some(taken) = serving.ports.take(tried) else {
            return Err(Say::no("CannotServe", "no port is free for its kubelet API"));
        };
        let listen = SocketAddr::new(serving.listen, taken.port);
        match serving.kubelets.add(name.clone(), provider.clone(), listen, certificate.clone()).await {
            Ok(at) => return Ok((taken, at.port())),
            // Another program has it: a kubelet, say.
            Err(KubeletsError::Listen { source, .. })
                if source.kind() == std::io::ErrorKind::AddrInUse && taken.port != 0 =>
            {
                tried = Some(taken.port);
            }
            Err(error) => return Err(Say::no("CannotServe", error.to_string())),
        }
    }
}

impl std::fmt::Debug for RunningNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningNode").field("name", &self.name).finish_non_exhaustive()
    }
}
