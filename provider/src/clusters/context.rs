//! What all virtual nodes of a process share.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, sync::Arc};

use federlet_node::{
    api::{Kubelets, ServingCertificate},
    metrics::Metrics,
    node::{HostVersion, NodeSettings},
    pods::{HostPods, PodSettings},
};
use k8s_openapi::api::core::v1::Taint;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::approve::Vouched;
use crate::{
    follow::HostObjects,
    names::HostId,
    site::{HostNamespaces, Rewrite},
    target::ApiAccess,
    version::Version,
};

/// The host, and this process on it.
#[derive(Clone)]
pub struct HostContext {
    /// Which host: the UID of its `kube-system` namespace.
    pub id: HostId,
    /// How clients reach it.
    pub config: Config,
    /// A client that is this process itself, for requests that are answered at once or not at all.
    pub client: Client,
    /// And one to watch with, which is patient.
    pub watch: Client,
    /// Its version, as far as pods depend on it.
    pub version: Version,
    /// And as far as nodes do.
    pub host_version: HostVersion,
    /// Its pods.
    pub pods: Arc<HostPods>,
    /// Its namespaces.
    pub namespaces: Arc<HostNamespaces>,
    /// Its Services, claims and volumes.
    pub objects: Arc<HostObjects>,
    /// What makes pods differ from cluster to cluster, if anything does.
    pub rewrite: Option<Arc<dyn Rewrite>>,
    /// Where pods in members find its API server.
    pub pod_api: Option<ApiAccess>,
    /// Where heartbeats run.
    pub heartbeat: Handle,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How nodes are served.
    pub serving: Serving,
}

/// How virtual nodes are served.
#[derive(Clone)]
pub struct Serving {
    /// As whom their leases are held: the name of this replica.
    pub identity: String,
    /// The one Cluster that this process serves; all that have no process of their own if unset.
    pub only: Option<String>,
    /// Their kubelet APIs.
    pub kubelets: Arc<Kubelets>,
    /// The address these listen on.
    pub listen: IpAddr,
    /// The ports.
    pub ports: Arc<Ports>,
    /// The address that nodes publish.
    pub address: Option<IpAddr>,
    /// Where their certificates come from.
    pub certificates: Certificates,
    /// For which nodes this process vouches.
    pub vouched: Vouched,
    /// `kubernetes.io/arch` where the machines of a member do not agree.
    pub arch: String,
    /// Taints to register with, beside those of the Cluster.
    pub taints: Vec<Taint>,
    /// The node's part.
    pub node: NodeSettings,
    /// The pods' part.
    pub pods: PodSettings,
}

/// Where the certificates of kubelet APIs come from.
#[derive(Clone, Debug)]
pub enum Certificates {
    /// Each node asks the host for its own.
    Requested {
        /// Where they are kept for the next start.
        directory: Option<PathBuf>,
    },
    /// All nodes have this one.
    Given(ServingCertificate),
}

/// Ports for kubelet APIs: each node has one of its own, from the first upward.
#[derive(Debug)]
pub struct Ports {
    first: u16,
    taken: Mutex<BTreeSet<u16>>,
}

/// A port that is taken as long as this lives.
#[derive(Debug)]
pub(super) struct Taken {
    ports: Arc<Ports>,
    pub(super) port: u16,
}

impl Ports {
    /// From this one on; any that is free if it is 0.
    pub fn from(first: u16) -> Arc<Self> {
        Arc::new(Self { first, taken: Mutex::default() })
    }

    /// The first that no other node of this process has, beginning after `tried`.
    pub(super) fn take(self: &Arc<Self>, tried: Option<u16>) -> Option<Taken> {
        if self.first == 0 {
            return Some(Taken { ports: self.clone(), port: 0 });
        }
        let mut taken = self.taken.lock();
        let begin = tried.map_or(Some(self.first), |port| port.checked_add(1))?;
        let port = (begin..=u16::MAX).find(|port| !taken.contains(port))?;
        taken.insert(port);
        Some(Taken { ports: self.clone(), port })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.ports.taken.lock().remove(&self.port);
    }
}

impl std::fmt::Debug for HostContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostContext").field("id", &self.id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("identity", &self.identity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_port_and_gives_it_back() {
        let ports = Ports::from(10250);
        let (first, second) = (ports.take(None).unwrap(), ports.take(None).unwrap());
        assert_eq!((first.port, second.port), (10250, 10251));
        drop(first);
        assert_eq!(ports.take(None).unwrap().port, 10250);
        assert_eq!(ports.take(Some(10251)).unwrap().port, 10252);
        assert!(Ports::from(65535).take(Some(65535)).is_none());
        assert_eq!(Ports::from(0).take(None).unwrap().port, 0);
    }
}
