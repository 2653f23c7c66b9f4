//! A small provider for the streams: its pods are in memory, and what one asks of a container of theirs is asked of one
//! real pod in a member.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use federlet_node::{
    VirtualNode, VirtualNodeSettings,
    api::{
        ApiSettings, Authentication, Authorization, CertificateRequests, ClientCa, KubeletApi, ServingNames,
        serve,
    },
    client::{client, heartbeat_client},
    contract::{
        ByteStream, ChangeStream, LogOptions, NodeName, NodeProvider, Pod, PodId, PodKey,
        PodLifecycleHandler, PodNotifier, PodStreams, ProviderError, ReportStream, UpgradeAnswer,
        UpgradeRequest,
    },
    memory::MemoryProvider,
    node::{HostVersion, NodeFacts, NodeSettings, NodeTemplate},
    pods::{HostPods, PodSettings, Scope},
};
use federlet_sandbox::Cluster;
use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use kube::{Client, Config, client::Body};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::process::{address_towards, approve, forget_requests, free_port};

struct Relay {
    memory: MemoryProvider,
    member: Client,
    namespace: String,
    pod: &'static str,
}

#[async_trait]
impl PodLifecycleHandler for Relay {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.memory.create_pod(pod).await
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.memory.update_pod(pod).await
    }

    async fn delete_pod(&self, pod: &PodId, grace: Duration) -> Result<(), ProviderError> {
        self.memory.delete_pod(pod, grace).await
    }

    async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError> {
        self.memory.get_pod(key).await
    }

    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
        self.memory.get_pods().await
    }
}

impl PodNotifier for Relay {
    fn notify_pods(&self) -> ChangeStream {
        self.memory.notify_pods()
    }
}

#[async_trait]
impl NodeProvider for Relay {
    async fn ping(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    fn notify_node_status(&self) -> ReportStream {
        // Hosts that know this pass websockets on as they are.
        let declare = |mut report: federlet_node::contract::NodeReport| {
            report.status.declared_features = Some(vec!["ExtendWebSocketsToKubelet".into()]);
            report
        };
        self.memory.notify_node_status().map(declare).boxed()
    }
}

#[async_trait]
impl PodStreams for Relay {
    async fn logs(
        &self,
        _: &Pod,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        let request = options.to_api_server(&self.namespace, self.pod, container).map(|()| Body::empty());
        let response = self.member.send(request).await.map_err(unavailable)?;
        if !response.status().is_success() {
            return Err(ProviderError::invalid(format!("the member said {}", response.status())));
        }
        Ok(response.into_body().into_data_stream().map_err(std::io::Error::other).boxed())
    }

    async fn upgrade(&self, _: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        let request = request.to_api_server(&self.namespace, self.pod, None).map(|()| Body::empty());
        UpgradeAnswer::from_response(self.member.send(request).await.map_err(unavailable)?).await
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err gives it away")]
fn unavailable(error: kube::Error) -> ProviderError {
    ProviderError::unavailable(error.to_string())
}

/// Serves a node `name` on the host until dropped. Its containers are those of `pod` in the member.
pub(crate) async fn serve_relay(
    host: &Cluster,
    member: &Cluster,
    name: &str,
    namespace: &str,
    pod: &'static str,
) -> Result<DropGuard> {
    forget_requests(host, name).await?;
    let metrics = Arc::default();
    let node = NodeName::new(name)?;
    let (to_host, to_member) = (config(host).await?, config(member).await?);
    let (address, port) = (address_towards(host).await?, free_port()?);
    let provider = Arc::new(Relay {
        memory: MemoryProvider::default(),
        member: client(to_member, "streams", Arc::clone(&metrics))?,
        namespace: namespace.to_owned(),
        pod,
    });
    let pods = client(to_host.clone(), "pods", Arc::clone(&metrics))?;
    let version = pods.apiserver_version().await?;
    let host_pods = HostPods::new(Scope::Node(node.clone()), None, Arc::clone(&metrics));
    let stop = CancellationToken::new();
    let (watching, watcher, watch_stop) = (host_pods.clone(), pods.clone(), stop.clone());
    tokio::spawn(async move { watching.run(watcher, watch_stop).await });

    let ca = ClientCa::from_host(&pods).await?;
    ensure!(ca.is_some(), "the host publishes no client CA");
    let authentication = Authentication::new(ca, Some(pods.clone()))?;
    let authorization = Authorization::new(pods.clone());
    let api = KubeletApi::new(
        authentication,
        authorization,
        host_pods.clone(),
        ApiSettings::default(),
        Arc::clone(&metrics),
    );
    api.add_node(node.clone(), provider.clone());
    let names = ServingNames { node: node.clone(), addresses: vec![address], names: Vec::new() };
    let requests = CertificateRequests::new(pods.clone(), names, None);
    let serving = requests.serving();
    tokio::spawn(requests.run(stop.clone()));
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    tokio::spawn(serve(api, listener, serving, stop.clone()));

    let virtual_node = VirtualNode {
        template: NodeTemplate {
            name: node,
            os: "linux".into(),
            arch: "amd64".into(),
            taints: Vec::new(),
            address: Some(address),
            kubelet_port: port,
            host: HostVersion::new(&version.git_version, &version.minor),
        },
        provider,
        client: pods,
        heartbeat_client: heartbeat_client(to_host, Arc::clone(&metrics))?,
        heartbeat: tokio::runtime::Handle::current(),
        host_pods,
        references: None,
        facts: NodeFacts::default(),
        settings: VirtualNodeSettings {
            node: NodeSettings::default(),
            pods: PodSettings::default(),
            identity: Some("e2e".into()),
        },
        metrics,
    };
    tokio::spawn(virtual_node.run(stop.clone()));
    approve(host, name).await?;
    Ok(stop.drop_guard())
}

async fn config(cluster: &Cluster) -> Result<Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.admin_kubeconfig())?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)
}
