//! A virtual node for a member, in this process.

use std::sync::Arc;

use anyhow::{Context, Result};
use federlet_node::{
    VirtualNode, VirtualNodeSettings,
    api::{
        ApiSettings, Authentication, Authorization, CertificateRequests, ClientCa, Kubelets, ServingNames,
    },
    client::{client, heartbeat_client},
    contract::NodeName,
    node::{HostVersion, NodeFacts, NodeSettings, NodeTemplate},
    pods::{Events, HostPods, PodSettings, References, Scope},
};
use federlet_provider::{
    cluster::ClusterProvider,
    names::HostId,
    settings::MemberSettings,
    site::{Clients, HostNamespaces, HostSide, Site, find_host_api},
    watch::MemberWatch,
};
use federlet_sandbox::Cluster;
use k8s_openapi::api::core::v1::{Namespace, Taint};
use kube::{Api, Config};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::process::{address_towards, approve, forget_requests};

async fn config(cluster: &Cluster) -> Result<Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.admin_kubeconfig())?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)
}

async fn identity(client: &kube::Client) -> Result<String> {
    Api::<Namespace>::all(client.clone()).get("kube-system").await?.metadata.uid.context("no UID")
}

pub(crate) async fn serve_member(
    host: &Cluster,
    member: &Cluster,
    settings: MemberSettings,
) -> Result<DropGuard> {
    let (metrics, name) = (Arc::default(), settings.name.to_string());
    let node = NodeName::new(settings.name.as_str())?;
    let (to_host, to_member) = (config(host).await?, config(member).await?);
    let address = address_towards(host).await?;
    let pods = client(to_host.clone(), "pods", Arc::clone(&metrics))?;
    let version = pods.apiserver_version().await?;
    let host_pods = HostPods::new(Scope::Node(node.clone()), None, Arc::clone(&metrics));
    let stop = CancellationToken::new();
    let (watching, watcher, watch_stop) = (host_pods.clone(), pods.clone(), stop.clone());
    tokio::spawn(async move { watching.run(watcher, watch_stop).await });

    let clients = Clients {
        pods: client(to_member.clone(), "member-pods", Arc::clone(&metrics))?,
        watch: client(to_member.clone(), "member-watch", Arc::clone(&metrics))?,
        streams: client(to_member, "member-streams", Arc::clone(&metrics))?,
    };
    let member_version = clients.pods.apiserver_version().await?.git_version.parse()?;
    let host_id = HostId::new(&identity(&pods).await?)?;
    let namespaces = HostNamespaces::new();
    tokio::spawn(namespaces.clone().run(pods.clone(), stop.clone()));
    let side = HostSide {
        id: host_id.clone(),
        version: version.git_version.parse()?,
        node: node.clone(),
        client: pods.clone(),
        pods: host_pods.clone(),
        namespaces: namespaces.clone(),
        events: Events::new(pods.clone(), &node),
    };
    let api = find_host_api(&pods).await?;
    let target = settings.target(host_id.clone(), member_version, api, vec![address]);
    let site = Site::new(side, clients.clone(), settings, target);
    let tasks = TaskTracker::new();
    let id = identity(&clients.pods).await?;
    let watch = MemberWatch::start(clients, host_id, id, &tasks, &stop);
    let provider = ClusterProvider::new(site, watch);
    tokio::spawn(provider.clone().run(stop.clone()));

    let ca = ClientCa::from_host(&pods).await?;
    let kubelets = Kubelets::new(
        Authentication::new(ca, Some(pods.clone()))?,
        Authorization::new(pods.clone()),
        host_pods.clone(),
        ApiSettings::default(),
        Arc::clone(&metrics),
    );
    let names = ServingNames { node: node.clone(), addresses: vec![address], names: Vec::new() };
    forget_requests(host, names.node.as_str()).await?;
    let requests = CertificateRequests::new(pods.clone(), names, None);
    let serving = requests.serving();
    tokio::spawn(requests.run(stop.clone()));
    let at = kubelets.add(node.clone(), provider.clone(), ([0, 0, 0, 0], 0).into(), serving).await?;
    let virtual_node = VirtualNode {
        template: NodeTemplate {
            name: node,
            os: "linux".into(),
            arch: "amd64".into(),
            taints: vec![Taint {
                key: "virtual-kubelet.io/provider".into(),
                value: Some("federlet".into()),
                effect: "NoSchedule".into(),
                time_added: None,
            }],
            address: Some(address),
            kubelet_port: at.port(),
            host: HostVersion::new(&version.git_version, &version.minor),
        },
        provider,
        references: Some(References::new(pods.clone())),
        client: pods,
        heartbeat_client: heartbeat_client(to_host, Arc::clone(&metrics))?,
        heartbeat: tokio::runtime::Handle::current(),
        host_pods,
        facts: NodeFacts::default(),
        settings: VirtualNodeSettings {
            node: NodeSettings::default(),
            pods: PodSettings::default(),
            identity: Some("e2e".into()),
        },
        metrics,
    };
    let until = stop.clone();
    tokio::spawn(async move {
        virtual_node.run(until).await;
        kubelets.stop().await;
    });
    approve(host, &name).await?;
    Ok(stop.drop_guard())
}
