//! A virtual node between its two clusters: what every part that serves it needs.

mod contents;
mod host_api;
mod host_namespaces;
mod rewrite;
mod spaces;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use federlet_node::{
    contract::{NodeName, Pod, PodKey},
    pods::{Events, HostPods},
};
use kube::Client;

pub(crate) use self::contents::{Contents, Fate};
pub use self::{
    host_api::{find_host_api, host_api},
    host_namespaces::HostNamespaces,
    rewrite::Rewrite,
    spaces::{Space, Spaces},
};
use crate::{
    follow::{HostObjects, Lanes},
    marks,
    names::{HostId, HostPodKey},
    settings::MemberSettings,
    target::Target,
    translate::TranslateError,
    version::Version,
    watch::{MemberWatch, OurPod, Slot},
};

/// The host, as one virtual node sees it.
#[derive(Clone)]
pub struct HostSide {
    /// Which host: the UID of its `kube-system` namespace.
    pub id: HostId,
    /// The version of its API server.
    pub version: Version,
    /// The node.
    pub node: NodeName,
    /// A client that acts for the node.
    pub client: Client,
    /// Connections for many watches, which act for the node as well.
    pub lanes: Arc<Lanes>,
    /// A client that acts for Federlet itself, for what no node may do: to make volumes for claims.
    pub own: Client,
    /// The host's pods.
    pub pods: Arc<HostPods>,
    /// The host's namespaces.
    pub namespaces: Arc<HostNamespaces>,
    /// Its Services, claims and volumes.
    pub objects: Arc<HostObjects>,
    /// Where to tell people about their pods.
    pub events: Events,
    /// What makes pods differ from cluster to cluster, if anything does.
    pub rewrite: Option<Arc<dyn Rewrite>>,
}

/// Ways to the member, each with its own connections, so that a long download never delays a pod.
#[derive(Clone)]
pub struct Clients {
    /// To write pods and what goes along with them.
    pub pods: Client,
    /// To watch.
    pub watch: Client,
    /// For logs, exec and the like. It has no timeouts.
    pub streams: Client,
}

/// One virtual node between its two clusters.
pub struct Site {
    /// The host's side.
    pub host: HostSide,
    /// The member's side.
    pub member: Clients,
    /// Namespaces of the member, and what owns our objects there.
    pub spaces: Spaces,
    settings: ArcSwap<MemberSettings>,
    target: ArcSwap<Target>,
}

impl Site {
    /// A site for a member that was reached once, so that its version is known.
    pub fn new(host: HostSide, member: Clients, settings: MemberSettings, target: Target) -> Arc<Self> {
        let spaces = Spaces::new(member.pods.clone());
        let (settings, target) = (ArcSwap::from_pointee(settings), ArcSwap::from_pointee(target));
        Arc::new(Self { host, member, spaces, settings, target })
    }

    /// What was decided about the member, as of now.
    pub fn settings(&self) -> Arc<MemberSettings> {
        self.settings.load_full()
    }

    /// Decides otherwise, from now on.
    pub fn change_settings(&self, settings: MemberSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// What must be known of the member to send a pod there, as of now.
    pub fn target(&self) -> Arc<Target> {
        self.target.load_full()
    }

    /// Something new was learned about the member.
    pub fn change_target(&self, change: impl Fn(&mut Target)) {
        self.target.rcu(|target| {
            let mut target = Target::clone(target);
            change(&mut target);
            target
        });
    }

    /// The namespace of the member for one of the host, made if need be, and its anchor.
    pub async fn space(
        &self,
        host_namespace: &str,
    ) -> Result<Arc<Space>, federlet_node::contract::ProviderError> {
        self.spaces.get(host_namespace, &self.target()).await
    }

    /// The host's pod of this name, as far as it is on this node.
    pub fn host_pod(&self, key: &PodKey) -> Option<Pod> {
        self.host.pods.get(&self.host.node, key)
    }

    /// Where a pod of the host is in the member, or would be.
    ///
    /// Where it is already counts more than what it says of itself now: it must never be in two places.
    pub fn slot(&self, watch: &MemberWatch, key: &PodKey) -> Result<Slot, TranslateError> {
        let target = self.target();
        let plain = target.namespaces.member_key(&HostPodKey::new(key.namespace(), key.name())?)?;
        let plain = Slot::new(plain.namespace(), plain.name());
        let through_us = |pod: &OurPod| pod.node() == target.node.as_str();
        if watch.pod(&plain).is_some_and(|there| through_us(&there) && there.host_name() == key.name()) {
            return Ok(plain);
        }
        if let Some(there) = watch.renamed(&plain).filter(through_us) {
            return Ok(there.slot().clone());
        }
        let host = self.host_pod(key);
        let Some(name) = host.as_ref().and_then(|pod| pod.annotation(marks::MEMBER_NAME)) else {
            return Ok(plain);
        };
        let named = target.namespaces.member_key(&HostPodKey::new(key.namespace(), name)?)?;
        Ok(Slot::new(named.namespace(), named.name()))
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("node", &self.host.node).finish_non_exhaustive()
    }
}

impl fmt::Debug for HostSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSide").field("id", &self.id).field("node", &self.node).finish_non_exhaustive()
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
