//! `federlet serve`: every member that joined, as a node of the host.

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use federlet_node::{
    api::ServingNames,
    client::{client, heartbeat_client},
    contract::NodeName,
    metrics::Metrics,
    pods::{HostPods, Scope},
};
use federlet_policy::control::{self, Control};
use federlet_provider::{
    api::Cluster,
    clusters::{Certificates, Clusters, HostContext, Ports, Replicas, Serving, Vouched, serve_fleet},
    fleet::FLEET,
    follow::HostObjects,
    join::SYSTEM_NAMESPACE,
    names::MemberName,
    site::{HostNamespaces, Rewrite, find_host_api, host_api},
    target::ApiAccess,
};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    crds,
    host::{HostArgs, answered, answering, host_id, published_address, reach_host},
    kubelet::KubeletArgs,
    policies::PolicyArgs,
    process::{Heartbeat, arch, serve_metrics, stop_on_signals},
    telemetry::TelemetryArgs,
    work::{RegisterArgs, WorkArgs},
};

/// The flags of `federlet serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    host: HostArgs,

    #[command(flatten)]
    within: WithinHostArgs,

    #[command(flatten)]
    register: RegisterArgs,

    #[command(flatten)]
    work: WorkArgs,

    #[command(flatten)]
    kubelet: KubeletArgs,

    #[command(flatten)]
    policies: PolicyArgs,

    #[command(flatten)]
    telemetry: TelemetryArgs,
}

/// How a process that serves Clusters fits into its host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Host")]
pub(crate) struct WithinHostArgs {
    /// Where pods in members find the host's API server, as `ADDRESS:PORT` [default: where its Service `kubernetes`
    /// leads].
    #[arg(long, env = "FEDERLET_HOST_API", value_name = "ADDRESS:PORT")]
    pub(crate) host_api: Option<std::net::SocketAddr>,

    /// The pod that this process is, in namespace `federlet-system`. What it keeps there of itself goes with it.
    #[arg(long, env = "FEDERLET_POD", value_name = "NAME/UID", value_parser = parse_pod)]
    pub(crate) pod: Option<OwnerReference>,
}

impl WithinHostArgs {
    /// Where pods in members find the host's API server, as told or as found.
    pub(crate) async fn pod_api(&self, client: &Client) -> Option<ApiAccess> {
        if let Some(told) = self.host_api {
            return Some(host_api(told.ip(), told.port()));
        }
        let why = match find_host_api(client).await {
            Ok(Some(found)) => return Some(found),
            Ok(None) => "its Service `kubernetes` leads nowhere".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(why, "pods in members find no API server of the host: say where with --host-api");
        None
    }
}

/// Which Clusters a process serves.
#[derive(Debug)]
pub(crate) enum Which {
    /// All that have no process of their own; and policies, if the host is to ask about them.
    All(PolicyArgs),
    /// This one alone. Others decide where its pods go; whether what is overridden in them is done here.
    One { name: MemberName, overrides: bool },
}

impl ServeArgs {
    /// Serves until SIGTERM or SIGINT.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { host, within, register, work, kubelet, policies, telemetry } = self;
        let which = Which::All(policies);
        Process { which, host, within, register, work, kubelet, telemetry }.run().await
    }
}

/// A process that serves Clusters: all, or one.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) which: Which,
    pub(crate) host: HostArgs,
    pub(crate) within: WithinHostArgs,
    pub(crate) register: RegisterArgs,
    pub(crate) work: WorkArgs,
    pub(crate) kubelet: KubeletArgs,
    pub(crate) telemetry: TelemetryArgs,
}

impl Process {
    /// Serves until SIGTERM or SIGINT.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { which, host, within, register, work, kubelet, telemetry } = self;
        let (only, overrides, policies) = match which {
            Which::All(policies) => (None, false, Some(policies)),
            Which::One { name, overrides } => (Some(name), overrides, None),
        };
        let told = telemetry.init()?;
        let stop = stop_on_signals()?;
        let metrics = Arc::new(Metrics::default());
        let tasks = TaskTracker::new();
        serve_metrics(&telemetry.metrics_addr, &metrics, &tasks, &stop).await?;

        let config = host.config().await?;
        let own = client(answering(config.clone()), "serve", metrics.clone())?;
        let Some(version) = reach_host(&own, work.startup_timeout, &stop).await? else { return Ok(()) };
        let id = host_id(&own).await?;
        let identity = register.identity("federlet");
        tracing::info!(%version, host = %id, replica = identity, "the host answers");
        ensure_namespace(&own).await?;
        // First of all, so that whoever joins meanwhile knows that somebody will serve it.
        let watch = client(config.clone(), "watch", metrics.clone())?;
        let replicas = Replicas::new(
            heartbeat_client(config.clone(), metrics.clone())?,
            watch.clone(),
            identity.clone(),
            only.as_ref().map(MemberName::as_str),
        )
        .owned_by(within.pod.clone());
        let live = replicas.live();
        tasks.spawn(replicas.run(stop.clone()));
        // Whoever installs may, and a service account need not be allowed to: then the chart or a join does it.
        match crds::ensure(&own).await {
            Ok(told) if told.is_empty() => {}
            Ok(told) => tracing::info!(?told, "told the host what Clusters and policies are"),
            Err(error) => tracing::debug!("{error:#}"),
        }
        if !until_clusters_exist(&own, &stop).await? {
            tasks.close();
            tasks.wait().await;
            return Ok(());
        }
        let pod_api = within.pod_api(&own).await;

        let scope = match &only {
            Some(only) => Scope::Node(NodeName::new(only.as_str())?),
            None => Scope::Shared,
        };
        let pods = HostPods::new(scope, None, metrics.clone());
        let (watching, watch_client, watch_stop) = (pods.clone(), watch.clone(), stop.clone());
        tasks.spawn(async move { watching.run(watch_client, watch_stop).await });
        let namespaces = HostNamespaces::new();
        let objects = HostObjects::new(watch.clone());
        tasks.spawn(objects.clone().run(stop.clone()));
        tasks.spawn(namespaces.clone().run(watch.clone(), stop.clone()));

        let address = published_address(kubelet.address, kubelet.node_address, &config)?;
        let kubelet_client = client(config.clone(), "kubelet-api", metrics.clone())?;
        let domain = work.cluster_domain.clone();
        let kubelets =
            kubelet.kubelets(&kubelet_client, pods.clone(), domain, metrics.clone(), &tasks, &stop).await?;
        let heartbeat = Heartbeat::start()?;
        let mut rewrite: Option<Arc<dyn Rewrite>> = None;
        let mut copies = None;
        let asked = match policies {
            Some(policies) => policies.listen(kubelet.address).await?,
            None => {
                let said = if overrides {
                    "of policies, overrides are obeyed; others decide where pods go"
                } else {
                    "policies are not obeyed"
                };
                tracing::info!("{said}");
                None
            }
        };
        if asked.is_some() || overrides {
            let control = Control::new(control::Host {
                id: id.clone(),
                client: own.clone(),
                watch: watch.clone(),
                heartbeat: heartbeat_client(config.clone(), metrics.clone())?,
                identity: identity.clone(),
                metrics: metrics.clone(),
                taints: register.taints(),
                own_namespace: SYSTEM_NAMESPACE,
                fleet_node: Some(NodeName::new(FLEET)?),
            });
            rewrite = Some(control.rewriter());
            match asked {
                Some((listener, registration)) => {
                    copies = Some(control.copies());
                    tasks.spawn(control.run(listener, registration, stop.clone()));
                }
                // Others decide; what they decided for its pods is made here.
                None => drop(tasks.spawn(control.overrides_only(stop.clone()))),
            }
        }
        let context = HostContext {
            id,
            client: own,
            watch,
            version: version.to_string().parse()?,
            host_version: version,
            pods,
            namespaces,
            objects,
            rewrite,
            pod_api,
            heartbeat: heartbeat.handle.clone(),
            metrics: metrics.clone(),
            serving: Serving {
                identity,
                only: only.map(|only| only.to_string()),
                kubelets,
                listen: kubelet.address,
                ports: Ports::from(kubelet.port),
                address,
                certificates: certificates(&kubelet, address, &tasks, &stop).await?,
                vouched: Vouched::default(),
                arch: arch().to_owned(),
                taints: register.taints(),
                node: work.node(),
                pods: work.pods(),
            },
            config,
        };
        if let Some(copies) = copies {
            tasks.spawn(serve_fleet(context.clone(), copies, live.clone(), stop.clone()));
        }
        metrics.begun();
        Clusters::new(context).run(live, stop).await;
        tasks.close();
        tasks.wait().await;
        tracing::info!("stopped; nodes and pods stay as they are");
        told.finish().await;
        Ok(())
    }
}

fn parse_pod(text: &str) -> anyhow::Result<OwnerReference> {
    let (name, uid) = text.split_once('/').context("a pod is NAME/UID")?;
    if name.is_empty() || uid.is_empty() {
        bail!("a pod is NAME/UID");
    }
    Ok(OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: name.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    })
}

async fn certificates(
    kubelet: &KubeletArgs,
    address: Option<IpAddr>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> anyhow::Result<Certificates> {
    let node = NodeName::new("federlet")?;
    let names = ServingNames { node, addresses: address.into_iter().collect(), names: vec![] };
    Ok(match kubelet.given_certificate(&names, tasks, stop).await? {
        Some(given) => Certificates::Given(given),
        None => Certificates::Requested { directory: kubelet.cert_dir.clone() },
    })
}

/// Our own namespace is there after an installation; elsewhere it is made.
pub(crate) async fn ensure_namespace(client: &Client) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_opt(SYSTEM_NAMESPACE).await.map_err(|error| answered("the host", &error))?;
    if found.is_some() {
        return Ok(());
    }
    let metadata = ObjectMeta { name: Some(SYSTEM_NAMESPACE.into()), ..ObjectMeta::default() };
    match namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            bail!("namespace {SYSTEM_NAMESPACE} is missing on the host: create it")
        }
        answer => answer
            .map(drop)
            .map_err(|error| answered("the host", &error))
            .with_context(|| format!("cannot create namespace {SYSTEM_NAMESPACE}")),
    }
}

/// Waits until the host knows what a Cluster is. False if told to stop meanwhile.
async fn until_clusters_exist(client: &Client, stop: &CancellationToken) -> anyhow::Result<bool> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let mut said = false;
    loop {
        match clusters.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(
                        "the host does not know Clusters yet; the first `federlet join` brings them"
                    );
                }
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                bail!("this identity may not list Clusters on the host: {}", status.message)
            }
            Err(error) => tracing::warn!(%error, "the host does not answer, trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_a_name_and_a_uid() {
        let pod = parse_pod("federlet-1/4c2a").unwrap();
        assert_eq!((&*pod.kind, &*pod.name, &*pod.uid), ("Pod", "federlet-1", "4c2a"));
        assert!(["", "a", "a/", "/b"].iter().all(|text| parse_pod(text).is_err()));
    }
}
