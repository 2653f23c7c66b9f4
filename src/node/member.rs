use std::{net::IpAddr, path::Path, sync::Arc};

use anyhow::{Context, bail};
use federlet_node::{
    client::client,
    contract::NodeName,
    metrics::Metrics,
    node::HostVersion,
    pods::{Events, HostPods},
};
use federlet_provider::{
    api::PodApi,
    clusters::{Alone, MemberFile},
    follow::{HostObjects, Lanes},
    site::{HostNamespaces, HostSide},
};
use k8s_openapi::api::core::v1::Taint;
use kube::Config;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{host::host_id, serve::WithinHostArgs};

/// What a member is told about the host.
pub(super) struct Told<'a> {
    pub(super) node: &'a NodeName,
    pub(super) version: &'a HostVersion,
    pub(super) address: Option<IpAddr>,
    pub(super) config: &'a Config,
    pub(super) host_pods: &'a Arc<HostPods>,
    pub(super) within: &'a WithinHostArgs,
    pub(super) taints: &'a [Taint],
}

impl Told<'_> {
    /// Connects to the member that a file describes. None if told to stop meanwhile.
    pub(super) async fn connect(
        self,
        file: Option<&Path>,
        metrics: &Arc<Metrics>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Alone>> {
        let Some(file) = file else { bail!("--provider cluster needs --provider-config") };
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let described: MemberFile =
            serde_saphyr::from_str(&text).with_context(|| format!("{} is not understood", file.display()))?;
        let make = |part| client(self.config.clone(), part, metrics.clone());
        let pods = make("pods")?;
        let namespaces = HostNamespaces::new();
        tasks.spawn(namespaces.clone().run(make("watch")?, stop.clone()));
        let objects = HostObjects::new(make("watch")?);
        tasks.spawn(objects.clone().run(stop.clone()));
        let wanted = described.spec.federlet.as_ref().and_then(|own| own.pod_api).unwrap_or(PodApi::Host);
        let host_api = if wanted == PodApi::Host { self.within.pod_api(&pods).await } else { None };
        let side = HostSide {
            id: host_id(&pods).await?,
            version: self.version.to_string().parse()?,
            node: self.node.clone(),
            events: Events::new(pods.clone(), self.node),
            lanes: Lanes::new(self.config.clone(), metrics.clone()),
            own: pods.clone(),
            client: pods,
            pods: self.host_pods.clone(),
            namespaces,
            objects,
            rewrite: None,
        };
        let addresses = self.address.into_iter().collect();
        let connected =
            Alone::connect(described, side, host_api, addresses, self.taints, metrics, stop).await;
        connected.with_context(|| format!("{} cannot be served", file.display()))
    }
}
