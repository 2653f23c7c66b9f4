use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use http::{HeaderMap, header::HOST};
use parking_lot::RwLock;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_util::sync::CancellationToken;

use super::{
    answer::Refusal,
    certificate::ServingCertificate,
    route::{Route, RouteError},
};
use crate::{
    contract::{NodeName, Pod, PodKey, Provider},
    pods::HostPods,
};

/// The nodes of this process, and where each answers.
#[derive(Default)]
pub(super) struct Nodes(RwLock<BTreeMap<NodeName, Served>>);

/// How one node is served.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) serving: ServingCertificate,
    /// The address of the listener on which it answers.
    pub(super) at: SocketAddr,
    /// Cancelled when the node is removed. Its streams end with it.
    pub(super) removed: CancellationToken,
}

impl Nodes {
    pub(super) fn contains(&self, node: &NodeName) -> bool {
        self.0.read().contains_key(node)
    }

    pub(super) fn insert(&self, node: NodeName, served: Served) {
        self.0.write().insert(node, served);
    }

    pub(super) fn remove(&self, node: &NodeName) -> Option<Served> {
        self.0.write().remove(node)
    }

    pub(super) fn remove_all(&self) -> Vec<Served> {
        std::mem::take(&mut *self.0.write()).into_values().collect()
    }

    pub(super) fn any_at(&self, at: SocketAddr) -> bool {
        self.0.read().values().any(|served| served.at == at)
    }

    /// Whom a request that came to a listener is about.
    pub(super) fn target(
        &self,
        at: SocketAddr,
        host_pods: &HostPods,
        headers: &HeaderMap,
        route: &Result<Route, RouteError>,
    ) -> Result<Target, Refusal> {
        let nodes = self.0.read();
        let pod = match route {
            Ok(Route::Logs { pod, .. } | Route::Upgrade { pod, .. }) => Some(pod),
            _ => None,
        };
        if let Some(wanted) = pod {
            let key = PodKey::new(wanted.namespace.as_str(), wanted.name.as_str());
            if let Some((node, pod)) = host_pods.find(&key)
                && let Some(served) = nodes.get(&node)
                && wanted.uid.as_deref().is_none_or(|uid| uid == pod.uid())
            {
                return Ok(Target { node, served: served.clone(), pod: Some(pod) });
            }
        }
        let mut here = nodes.iter().filter(|(_, served)| served.at == at);
        let called = headers.get(HOST).and_then(|host| host.to_str().ok()).map(host_name);
        let called = called.and_then(|name| here.clone().find(|(node, _)| node.as_str() == name));
        let only = || here.next().filter(|_| here.next().is_none());
        match called.or_else(only) {
            Some((node, served)) => Ok(Target { node: node.clone(), served: served.clone(), pod: None }),
            None if pod.is_some() => Err(Refusal::no_pod()),
            None => Err(Refusal::no_node()),
        }
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.read().iter().map(|(node, served)| (node, served.at))).finish()
    }
}

/// Whom a request is about.
pub(super) struct Target {
    pub(super) node: NodeName,
    pub(super) served: Served,
    pod: Option<Pod>,
}

impl Target {
    /// The pod, if there is one and it has such a container.
    pub(super) fn pod(&self, container: Option<&str>) -> Result<&Pod, Refusal> {
        let pod = self.pod.as_ref().ok_or_else(Refusal::no_pod)?;
        match container {
            Some(container) if !pod.has_container(container) => Err(Refusal::no_container(pod, container)),
            _ => Ok(pod),
        }
    }
}

/// The certificate of a listener: that of any of its nodes. They are reached under the same address, so each speaks for
/// all of them. What a client says by SNI does not help: API servers dial an IP address.
#[derive(Debug)]
pub(super) struct CertificateAt {
    pub(super) nodes: Arc<Nodes>,
    pub(super) at: SocketAddr,
}

impl ResolvesServerCert for CertificateAt {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let nodes = self.nodes.0.read();
        nodes.values().filter(|served| served.at == self.at).find_map(|served| served.serving.current())
    }
}

/// The name in a Host header, without the port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

    use super::*;
    use crate::{memory::MemoryProvider, pods::Scope};

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// Who answers for the node on a port, called by this name.
    fn asked(nodes: &Nodes, port: u16, host: &'static str) -> Option<String> {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
        let route = Route::parse(&Method::GET, "/pods", None);
        let host_pods = HostPods::new(Scope::Shared, None, Arc::default());
        nodes.target(at(port), &host_pods, &headers, &route).ok().map(|target| target.node.to_string())
    }

    #[tokio::test]
    async fn a_port_speaks_for_its_node() {
        let nodes = Nodes::default();
        for (name, port) in [("a", 1), ("b", 2), ("c", 3), ("d", 3)] {
            let served = Served {
                provider: Arc::new(MemoryProvider::default()),
                serving: ServingCertificate::default(),
                at: at(port),
                removed: CancellationToken::new(),
            };
            nodes.insert(NodeName::new(name).unwrap(), served);
        }
        assert_eq!(asked(&nodes, 1, "10.0.0.1:1").as_deref(), Some("a"));
        assert_eq!(asked(&nodes, 2, "a").as_deref(), Some("b"), "a name does not lead to another port");
        assert_eq!(asked(&nodes, 3, "10.0.0.1:3"), None, "two share the port");
        assert_eq!(asked(&nodes, 3, "d:3").as_deref(), Some("d"));
        assert_eq!(asked(&nodes, 4, "a"), None);
        nodes.remove(&NodeName::new("c").unwrap());
        assert_eq!(asked(&nodes, 3, "10.0.0.1:3").as_deref(), Some("d"));
    }

    #[test]
    fn a_port_is_no_part_of_a_name() {
        for (host, name) in [("a", "a"), ("a:1", "a"), ("[::1]", "[::1]"), ("[::1]:5", "[::1]"), ("", "")] {
            assert_eq!(host_name(host), name);
        }
    }
}
