use std::{collections::HashMap, fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::{Mutex, Semaphore},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    authn::Authentication,
    authz::Authorization,
    certificate::ServingCertificate,
    handle::{ApiSettings, KubeletApi},
    nodes::{CertificateAt, Served},
    server::Port,
    tls,
};
use crate::{
    contract::{NodeName, Provider},
    metrics::Metrics,
    pods::HostPods,
};

/// How long requests that are under way may take after we were told to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Why a node is not served.
#[derive(Debug, thiserror::Error)]
pub enum KubeletsError {
    /// It is served already.
    #[error("the kubelet API of node {0} is served already")]
    Served(NodeName),
    /// Its address cannot be listened on.
    #[error("cannot listen on {address} for the kubelet API of node {node}: {source}")]
    Listen {
        /// Whose.
        node: NodeName,
        /// Which address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// There can be no TLS.
    #[error("the kubelet API cannot speak TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The kubelet APIs of all nodes of this process. Nodes come and go while it runs.
///
/// An API server calls a node by address and port and does not say which node it means. So a node is best given a port
/// of its own, which it publishes in `status.daemonEndpoints`: a request about the node itself (its pods, its usage) is
/// answered for the node of the port.
///
/// Nodes can also share a port. Logs, exec, attach and port-forward work as well then, since the pod says which node it
/// is on. A request about the node itself is answered only if its `Host` header is the name of one of them; else it is a
/// 404 that says why. It is never answered for all of them together: whoever sums up what nodes say would count twice.
///
/// Who may call, and how much at a time, is the same for all.
pub struct Kubelets {
    api: Arc<KubeletApi>,
    ports: Mutex<HashMap<SocketAddr, Open>>,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// A port that is open as long as this lives.
struct Open {
    stop: DropGuard,
    accepting: JoinHandle<()>,
}

impl Open {
    /// Closes the port. It can be used again when this returns; its connections finish what is under way.
    async fn close(self) {
        drop(self.stop);
        let _ = self.accepting.await;
    }
}

impl Kubelets {
    /// For nodes whose pods are in `host_pods`. It cannot be made without a way to know who calls and a way to ask
    /// whether they may.
    pub fn new(
        authentication: Authentication,
        authorization: Authorization,
        host_pods: Arc<HostPods>,
        settings: ApiSettings,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(settings.connections));
        let tasks = TaskTracker::new();
        let api = KubeletApi::new(authentication, authorization, host_pods, settings, metrics, tasks.clone());
        Arc::new(Self { api: Arc::new(api), ports: Mutex::default(), places, tasks })
    }

    /// Begins to answer for a node, and returns the address of its listener: where the port was 0, with the one that
    /// was free. A listener that other nodes have is shared.
    ///
    /// Until `serving` holds a certificate, handshakes fail.
    pub async fn add(
        &self,
        node: NodeName,
        provider: Arc<dyn Provider>,
        listen: SocketAddr,
        serving: ServingCertificate,
    ) -> Result<SocketAddr, KubeletsError> {
        let mut ports = self.ports.lock().await;
        let nodes = &self.api.nodes;
        if nodes.contains(&node) {
            return Err(KubeletsError::Served(node));
        }
        let served = |at| Served { provider, serving, at, removed: CancellationToken::new() };
        if ports.contains_key(&listen) {
            nodes.insert(node, served(listen));
            return Ok(listen);
        }
        let bound = async {
            let listener = TcpListener::bind(listen).await?;
            let at = listener.local_addr()?;
            Ok((listener, at))
        };
        let (listener, at) = bound.await.map_err(|source| KubeletsError::Listen {
            node: node.clone(),
            address: listen,
            source,
        })?;
        let certificate = CertificateAt { nodes: nodes.clone(), at };
        let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(Arc::new(certificate))?));
        nodes.insert(node, served(at));
        let stop = CancellationToken::new();
        let port = Port {
            api: self.api.clone(),
            at,
            acceptor,
            places: self.places.clone(),
            connections: self.tasks.clone(),
            stop: stop.clone(),
        };
        let accepting = tokio::spawn(port.accept(listener));
        ports.insert(at, Open { stop: stop.drop_guard(), accepting });
        Ok(at)
    }

    /// Stops to answer for a node and ends its streams. Its port is closed, unless other nodes have it too.
    pub async fn remove(&self, node: &NodeName) {
        let mut ports = self.ports.lock().await;
        let Some(served) = self.api.nodes.remove(node) else { return };
        served.removed.cancel();
        if !self.api.nodes.any_at(served.at)
            && let Some(open) = ports.remove(&served.at)
        {
            open.close().await;
        }
    }

    /// Closes all ports and ends all streams, and waits a little for answers that are under way.
    pub async fn stop(&self) {
        let ports = std::mem::take(&mut *self.ports.lock().await);
        for open in ports.into_values() {
            open.close().await;
        }
        for served in self.api.nodes.remove_all() {
            served.removed.cancel();
        }
        self.tasks.close();
        let _ = tokio::time::timeout(LAST_ANSWERS, self.tasks.wait()).await;
        self.tasks.reopen();
    }
}

impl fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelets").field("nodes", &self.api.nodes).finish_non_exhaustive()
    }
}
