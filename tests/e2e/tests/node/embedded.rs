//! Virtual nodes in the process of the test, with whatever provider it likes.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use anyhow::{Context, Result};
use federlet_e2e::{SOON, here::address_towards};
use federlet_node::{
    VirtualNode, VirtualNodeSettings,
    api::{ApiSettings, Authentication, Authorization, ClientCa, Kubelets, ServingCertificate},
    client::{client, heartbeat_client},
    contract::{NodeName, Provider},
    metrics::Metrics,
    node::{HostVersion, NodeFacts, NodeSettings, NodeTemplate},
    pods::{HostPods, PodSettings, References, Scope},
};
use federlet_sandbox::{Cluster, eventually};
use k8s_openapi::api::core::v1::Taint;
use kube::{Client, Config};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{authority::Authority, process::remove_node};

/// What a process that serves nodes has once. Its nodes end when it is dropped.
pub(crate) struct Embedded {
    pub(crate) kubelets: Arc<Kubelets>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) address: IpAddr,
    host: Cluster,
    config: Config,
    client: Client,
    version: HostVersion,
    host_pods: Arc<HostPods>,
    serving: ServingCertificate,
    stop: CancellationToken,
    nodes: BTreeMap<String, Running>,
}

/// A node that is served.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Embedded {
    pub(crate) async fn start(host: &Cluster) -> Result<Self> {
        Self::with(host, config(host).await?, ApiSettings::default()).await
    }

    /// One that reaches the host in its own way, within its own bounds.
    pub(crate) async fn with(host: &Cluster, config: Config, settings: ApiSettings) -> Result<Self> {
        let metrics: Arc<Metrics> = Arc::default();
        let stop = CancellationToken::new();
        let client = client(config.clone(), "pods", metrics.clone())?;
        let version = client.apiserver_version().await?;
        let host_pods = HostPods::new(Scope::Shared, None, metrics.clone());
        let (watching, watcher, watch_stop) = (host_pods.clone(), client.clone(), stop.clone());
        tokio::spawn(async move { watching.run(watcher, watch_stop).await });

        let ca = ClientCa::from_host(&client).await?.context("the host publishes no client CA")?;
        let authentication = Authentication::new(Some(ca), Some(client.clone()))?;
        let authorization = Authorization::new(client.clone());
        let kubelets =
            Kubelets::new(authentication, authorization, host_pods.clone(), settings, metrics.clone());
        let address = address_towards(host).await?;
        let serving = Authority::of(host)?.serving(address).await?;
        Ok(Self {
            kubelets,
            metrics,
            address,
            host: host.clone(),
            config,
            client,
            version: HostVersion::new(&version.git_version, &version.minor),
            host_pods,
            serving,
            stop,
            nodes: BTreeMap::new(),
        })
    }

    /// Serves one more node and waits until it is Ready and answers. Returns the port of its kubelet API.
    pub(crate) async fn serve(&mut self, name: &str, provider: Arc<dyn Provider>) -> Result<u16> {
        let port = self.begin(name, provider, NodeSettings::default()).await?;
        answers(&self.host, name).await?;
        Ok(port)
    }

    /// Serves one more node, whatever becomes of it.
    pub(crate) async fn begin(
        &mut self,
        name: &str,
        provider: Arc<dyn Provider>,
        settings: NodeSettings,
    ) -> Result<u16> {
        let node = NodeName::new(name)?;
        let anywhere = ([0, 0, 0, 0], 0).into();
        let at = self.kubelets.add(node.clone(), provider.clone(), anywhere, self.serving.clone()).await?;
        let virtual_node = VirtualNode {
            template: NodeTemplate {
                name: node,
                os: "linux".into(),
                arch: "amd64".into(),
                taints: vec![taint()],
                address: Some(self.address),
                kubelet_port: at.port(),
                host: self.version.clone(),
            },
            provider,
            client: self.client.clone(),
            heartbeat_client: heartbeat_client(self.config.clone(), self.metrics.clone())?,
            heartbeat: tokio::runtime::Handle::current(),
            host_pods: self.host_pods.clone(),
            references: Some(References::new(self.client.clone())),
            facts: NodeFacts::default(),
            settings: VirtualNodeSettings {
                node: settings,
                pods: PodSettings::default(),
                identity: Some("e2e".into()),
            },
            metrics: self.metrics.clone(),
        };
        let stop = self.stop.child_token();
        let task = tokio::spawn(virtual_node.run(stop.clone()));
        self.nodes.insert(name.to_owned(), Running { stop, task });
        Ok(at.port())
    }

    /// Stops to serve a node. The host keeps it.
    pub(crate) async fn stop(&mut self, name: &str) -> Result<()> {
        let Running { stop, task } = self.nodes.remove(name).context("no such node")?;
        stop.cancel();
        self.kubelets.remove(&NodeName::new(name)?).await;
        Ok(task.await?)
    }

    /// Takes its nodes away for good.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            remove_node(&self.host, &name).await?;
            self.stop(&name).await?;
        }
        self.kubelets.stop().await;
        Ok(())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits until a node is Ready and the host's API server gets an answer from its kubelet API.
pub(crate) async fn answers(host: &Cluster, name: &str) -> Result<()> {
    eventually(&format!("node {name} is Ready and answers"), SOON, async || {
        let ready = format!("wait node/{name} --for=condition=Ready --timeout=5s");
        host.kubectl_output(&ready.split(' ').collect::<Vec<_>>()).await?;
        proxied(host, name, "healthz").await
    })
    .await?;
    Ok(())
}

/// What a node answers through the host's API server.
pub(crate) async fn proxied(host: &Cluster, node: &str, path: &str) -> Result<String> {
    host.kubectl_output(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/{path}")]).await
}

pub(crate) async fn config(cluster: &Cluster) -> Result<Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.admin_kubeconfig())?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)
}

fn taint() -> Taint {
    Taint {
        key: "virtual-kubelet.io/provider".into(),
        value: Some("federlet".into()),
        effect: "NoSchedule".into(),
        time_added: None,
    }
}
