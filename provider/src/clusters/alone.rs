//! One member that a file describes, served by a process of its own.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use federlet_node::{metrics::Metrics, node::Fence};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, Connections},
    keeper::wanted,
    node::background,
};
use crate::{
    api::ClusterSpec,
    cluster::ClusterProvider,
    errors::brief,
    join::node::is_virtual,
    member::{Access, CA_KEY, KUBECONFIG_KEY, MemberFacts, TOKEN_KEY, Way, WayError},
    settings::{MemberSettings, SettingsError},
    site::{HostSide, Site},
    target::ApiAccess,
    version::{Version, VersionError},
};

/// How soon a member that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often credentials are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// What a file says about a member: what a Cluster would, and where its credentials are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberFile {
    /// Labels, as those of a Cluster.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// As that of a Cluster. Of `secretRef` nothing is read.
    #[serde(default)]
    pub spec: ClusterSpec,
    /// A folder with files `token`, `caBundle` or `kubeconfig`, as the keys of a Secret that is mounted. They are read
    /// again when they change.
    pub credentials: PathBuf,
}

/// Why a member cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum AloneError {
    /// What is written about it is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There is no way to it.
    #[error(transparent)]
    Way(#[from] WayError),
    /// A client cannot be made.
    #[error("cannot make a client of the member: {0}")]
    Client(#[source] Box<kube::Error>),
    /// Its version cannot be read.
    #[error(transparent)]
    Version(#[from] VersionError),
}

/// A member and the one node that stands for it.
#[derive(Debug)]
pub struct Alone {
    /// Who runs the pods of the node.
    pub provider: Arc<ClusterProvider>,
    file: MemberFile,
    connection: Arc<Connection>,
    connections: Connections,
}

impl Alone {
    /// Connects to the member, however long it takes. None if told to stop meanwhile. The node is registered with these
    /// taints.
    ///
    /// A member that was there before is served though it does not answer: its node must not seem dead for that.
    pub async fn connect(
        file: MemberFile,
        host: HostSide,
        host_api: Option<ApiAccess>,
        addresses: Vec<IpAddr>,
        taints: &[Taint],
        metrics: &Arc<Metrics>,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, AloneError> {
        let settings = MemberSettings::read(host.node.as_str(), &file.labels, &file.spec)?;
        let way = file.way().await?;
        let access = Access::new(way.clone(), metrics.clone());
        let (facts, was_there) = loop {
            match access.facts().await {
                Ok(facts) => break (facts, false),
                Err(trouble) => {
                    tracing::warn!(reason = trouble.reason.as_str(), %trouble, "the member cannot be used yet");
                }
            }
            match Api::<Node>::all(host.client.clone()).get_opt(host.node.as_str()).await {
                Ok(node) => {
                    if let Some(facts) = from_before(node.as_ref(), &file.spec.id) {
                        break (facts, true);
                    }
                }
                Err(error) => {
                    tracing::warn!(error = brief(&error), "the host does not say whether it has the node");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(None),
                () = tokio::time::sleep(AGAIN) => {}
            }
        };
        let id = if file.spec.id.is_empty() {
            tracing::info!(
                id = facts.id,
                "the member that answers is taken for the right one: spec.id would say which is"
            );
            facts.id
        } else {
            file.spec.id.clone()
        };
        let version: Version = facts.version.parse()?;
        let connections = Connections::default();
        let connection = connections
            .get(&host.id, &id, None, way, metrics)
            .map_err(|error| AloneError::Client(Box::new(error)))?;
        let mut target = settings.target(host.id.clone(), version, host_api, addresses);
        target.keep_on_host(taints);
        let site = Site::new(host, connection.clients.clone(), settings, target);
        let provider = ClusterProvider::new(site, connection.watch.clone());
        if was_there {
            provider.answered_before();
        }
        Ok(Some(Self { provider, file, connection, connections }))
    }

    /// What goes on beside the node, until told to stop. `client` writes labels and taints of the node, where it may.
    pub async fn run(self, fence: Fence, client: Client, stop: CancellationToken) {
        tokio::join!(
            background(|term| self.provider.clone().run(term), fence.clone(), stop.clone()),
            self.follow_credentials(&stop),
            self.keep_node(&fence, client, &stop),
        );
        drop(self.connection);
        drop(self.provider);
        self.connections.closed().await;
    }

    /// A token that was rotated is used from then on.
    async fn follow_credentials(&self, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            match self.file.way().await {
                Ok(way) if self.connection.leads_to(&way.endpoint) => self.connection.renew(&way),
                Ok(_) => tracing::warn!("the way to the member is another one now: start this process again"),
                Err(error) => {
                    tracing::warn!(%error, "the credentials of the member cannot be used; those from before are");
                }
            }
        }
    }

    async fn keep_node(&self, fence: &Fence, client: Client, stop: &CancellationToken) {
        let nodes: Api<Node> = Api::all(client);
        let name = self.provider.site().host.node.clone();
        let only_this = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(45);
        let mut events = watcher(nodes.clone(), only_this).default_backoff().applied_objects().boxed();
        let mut reports = self.provider.report();
        let mut live: Option<Node> = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = reports.changed() => if changed.is_err() { return },
                event = events.next() => match event {
                    Some(Ok(node)) => live = Some(node),
                    Some(Err(error)) => tracing::debug!(%error, "watching the node failed, trying again"),
                    None => return,
                },
            }
            let Some(node) = live.as_ref().filter(|_| fence.holds()) else { continue };
            let settings = self.provider.site().settings();
            let wanted = wanted(&settings, &reports.borrow_and_update());
            let Some(patch) = wanted.patch(node) else { continue };
            let written = nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
            if let Err(error) = written {
                tracing::warn!(error = brief(&error), "cannot write labels and taints of the node");
            }
        }
    }
}

/// What the Node says of a member that was served before, by another process. Nothing if it is not said which member
/// that is: another one may be there now.
fn from_before(node: Option<&Node>, id: &str) -> Option<MemberFacts> {
    let node = node.filter(|node| is_virtual(*node) && !id.is_empty())?;
    let version = node.status.as_ref()?.node_info.as_ref()?.kubelet_version.clone();
    version.parse::<Version>().is_ok().then(|| MemberFacts { id: id.to_owned(), version })
}

impl MemberFile {
    async fn way(&self) -> Result<Way, WayError> {
        let mut keys = BTreeMap::new();
        for key in [TOKEN_KEY, CA_KEY, KUBECONFIG_KEY] {
            if let Ok(value) = tokio::fs::read(self.credentials.join(key)).await {
                keys.insert(key.to_owned(), value);
            }
        }
        Way::read(&self.spec, &keys)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_that_was_served_before_is_known_by_its_node() {
        let node = |kind: &str, version: &str| -> Option<Node> {
            let metadata = json!({ "name": "m", "labels": { "type": kind } });
            let info = json!({
                "kubeletVersion": version, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                "systemUUID": "",
            });
            serde_json::from_value(json!({ "metadata": metadata, "status": { "nodeInfo": info } })).ok()
        };
        let served = node("virtual-kubelet", "v1.35.4");
        assert_eq!(
            from_before(served.as_ref(), "x"),
            Some(MemberFacts { id: "x".into(), version: "v1.35.4".into() })
        );
        for (node, id, why) in [
            (served, "", "which member it was is not said"),
            (None, "x", "it was never served"),
            (node("worker", "v1.35.4"), "x", "it is a machine"),
            (node("virtual-kubelet", ""), "x", "it was never described"),
        ] {
            assert_eq!(from_before(node.as_ref(), id), None, "{why}");
        }
    }
}
