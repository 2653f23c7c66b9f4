use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{HOST, UPGRADE},
};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use super::{
    answer::{Body, Refusal, json_response, metrics_response, negotiation, plain, whole},
    authn::Authentication,
    authz::{Attributes, Authorization},
    relay::copy_until_either_ends,
    route::{Route, RouteError, Streams},
};
use crate::{
    contract::{
        LogOptions, NodeName, Phase, Pod, PodKey, Provider, UpgradeAnswer, UpgradeKind, UpgradeRequest,
    },
    metrics::{Metrics, OpenStream},
    pods::HostPods,
};

/// What the server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// Connections at a time.
    pub connections: usize,
    /// Logs, execs, attaches and port-forwards of one pod at a time.
    pub streams_per_pod: usize,
    /// How long an exec, attach or port-forward may be silent. As the kubelet's.
    pub idle: Duration,
    /// How the node is set up, for `/configz`.
    pub cluster_domain: String,
}

impl Default for ApiSettings {
    fn default() -> Self {
        let idle = Duration::from_secs(4 * 60 * 60);
        Self { connections: 1000, streams_per_pod: 100, idle, cluster_domain: "cluster.local".into() }
    }
}

/// Answers requests to the kubelet API of any node of this process.
pub struct KubeletApi {
    authentication: Authentication,
    authorization: Authorization,
    host_pods: Arc<HostPods>,
    nodes: RwLock<HashMap<NodeName, Arc<dyn Provider>>>,
    streams: Arc<Mutex<HashMap<PodKey, usize>>>,
    metrics: Arc<Metrics>,
    pub(super) settings: ApiSettings,
}

impl KubeletApi {
    /// It cannot be made without a way to know who calls and a way to ask whether they may.
    pub fn new(
        authentication: Authentication,
        authorization: Authorization,
        host_pods: Arc<HostPods>,
        settings: ApiSettings,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let (nodes, streams) = (RwLock::default(), Arc::default());
        Arc::new(Self { authentication, authorization, host_pods, nodes, streams, metrics, settings })
    }

    /// Begins to answer for a node.
    pub fn add_node(&self, node: NodeName, provider: Arc<dyn Provider>) {
        self.nodes.write().insert(node, provider);
    }

    /// Stops to answer for a node.
    pub fn remove_node(&self, node: &NodeName) {
        self.nodes.write().remove(node);
    }

    /// Answers one request that came over a connection with these client certificates.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        certificates: Option<&[CertificateDer<'static>]>,
    ) -> Response<Body> {
        let to_upgrade = request.headers().contains_key(UPGRADE);
        match self.try_answer(request, certificates).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(to_upgrade),
        }
    }

    async fn try_answer(
        &self,
        request: Request<Incoming>,
        certificates: Option<&[CertificateDer<'static>]>,
    ) -> Result<Response<Body>, Refusal> {
        let user = self
            .authentication
            .user(certificates, request.headers())
            .await
            .map_err(|e| Refusal::cannot_ask(&e))?;
        let user = user.ok_or_else(Refusal::unauthenticated)?;
        let uri = request.uri();
        let route = Route::parse(request.method(), uri.path(), uri.query());
        let target = self.target(request.headers(), &route);
        let attributes = Attributes::of(request.method(), &route);
        let node = target.as_ref().ok().map(|target| &target.node);
        let allowed =
            self.authorization.allows(&user, &attributes, node).await.map_err(|e| Refusal::cannot_ask(&e))?;
        if !allowed {
            return Err(Refusal::forbidden(&user, &attributes));
        }
        // Only now may the caller learn what is there and what is not.
        self.dispatch(request, route?, target?).await
    }

    async fn dispatch(
        &self,
        request: Request<Incoming>,
        route: Route,
        target: Target,
    ) -> Result<Response<Body>, Refusal> {
        let provider = &target.provider;
        match route {
            Route::Healthz => Ok(plain(whole(Bytes::from_static(b"ok")))),
            Route::Configz => Ok(json_response(self.configz().to_string())),
            Route::OwnMetrics => Ok(metrics_response(self.metrics.encode().into())),
            Route::Metrics(kind) => Ok(metrics_response(provider.metrics(kind).await?)),
            Route::StatsSummary => Ok(json_response(provider.stats().await?.to_string())),
            Route::Pods => Ok(pod_list(self.host_pods.of(&target.node).iter())),
            Route::RunningPods => {
                let pods = provider.get_pods().await?;
                Ok(pod_list(pods.iter().filter(|pod| is_running(pod))))
            }
            Route::Logs { container, options, .. } => self.logs(&target, &container, &options).await,
            Route::Upgrade { kind, container, streams, .. } => {
                let upgrade = upgrade_request(&request, kind, container, streams);
                self.upgrade(request, &target, upgrade).await
            }
        }
    }

    async fn logs(
        &self,
        target: &Target,
        container: &str,
        options: &LogOptions,
    ) -> Result<Response<Body>, Refusal> {
        let pod = target.pod(Some(container))?;
        let open = self.open(pod, "logs")?;
        let log = target.provider.logs(pod, container, options).await?;
        // The place is taken as long as the body lives: until the log ends or the client is gone.
        let frames = stream::unfold((log, open), |(mut log, open)| async move {
            let chunk = log.next().await?;
            Some((chunk.map(Frame::data), (log, open)))
        });
        Ok(plain(BodyExt::boxed_unsync(StreamBody::new(frames))))
    }

    async fn upgrade(
        &self,
        request: Request<Incoming>,
        target: &Target,
        upgrade: UpgradeRequest,
    ) -> Result<Response<Body>, Refusal> {
        let pod = target.pod(upgrade.container.as_deref())?;
        if !upgrade.headers.contains_key(UPGRADE) {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "upgrade request required"));
        }
        let open = self.open(pod, upgrade.kind.as_str())?;
        let (headers, io) = match target.provider.upgrade(pod, upgrade).await? {
            UpgradeAnswer::Refused(refusal) => return Ok(refusal.map(whole)),
            UpgradeAnswer::Switched { headers, io } => (headers, io),
        };
        let mut response = Response::new(whole(Bytes::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = negotiation(&headers);
        let idle = self.settings.idle;
        tokio::spawn(async move {
            match hyper::upgrade::on(request).await {
                Ok(client) => {
                    let ended = copy_until_either_ends(TokioIo::new(client), io, idle).await;
                    tracing::debug!(?ended, "a stream ended");
                }
                Err(error) => tracing::debug!(%error, "a client did not switch"),
            }
            drop(open);
        });
        Ok(response)
    }

    /// Whom a request is about: the node of its pod, else the node whose name it calls, else the only one.
    fn target(&self, headers: &HeaderMap, route: &Result<Route, RouteError>) -> Result<Target, Refusal> {
        let nodes = self.nodes.read();
        let pod = match route {
            Ok(Route::Logs { pod, .. } | Route::Upgrade { pod, .. }) => Some(pod),
            _ => None,
        };
        if let Some(wanted) = pod {
            let key = PodKey::new(wanted.namespace.as_str(), wanted.name.as_str());
            if let Some((node, pod)) = self.host_pods.find(&key)
                && let Some(provider) = nodes.get(&node)
                && wanted.uid.as_deref().is_none_or(|uid| uid == pod.uid())
            {
                return Ok(Target { node, provider: provider.clone(), pod: Some(pod) });
            }
        }
        let called = headers.get(HOST).and_then(|host| host.to_str().ok()).map(host_name);
        let called = called.and_then(|name| nodes.iter().find(|(node, _)| node.as_str() == name));
        let only = || nodes.iter().next().filter(|_| nodes.len() == 1);
        match called.or_else(only) {
            Some((node, provider)) => {
                Ok(Target { node: node.clone(), provider: provider.clone(), pod: None })
            }
            None if pod.is_some() => Err(Refusal::no_pod()),
            None => Err(Refusal::no_node()),
        }
    }

    /// Takes one of the places for streams of a pod.
    fn open(&self, pod: &Pod, kind: &'static str) -> Result<Open, Refusal> {
        let mut streams = self.streams.lock();
        let count = streams.entry(pod.key().clone()).or_default();
        if *count >= self.settings.streams_per_pod {
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many streams of this pod are open"));
        }
        *count += 1;
        drop(streams);
        Ok(Open {
            streams: self.streams.clone(),
            key: pod.key().clone(),
            _counted: self.metrics.stream(kind),
        })
    }

    fn configz(&self) -> Value {
        let ApiSettings { cluster_domain, idle, .. } = &self.settings;
        json!({"kubeletconfig": {
            "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "clusterDomain": cluster_domain, "streamingConnectionIdleTimeout": format!("{}s", idle.as_secs()),
            "authentication": {"anonymous": {"enabled": false}}, "authorization": {"mode": "Webhook"},
        }})
    }
}

impl fmt::Debug for KubeletApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeletApi").field("nodes", &self.nodes.read().keys()).finish_non_exhaustive()
    }
}

/// Whom a request is about.
struct Target {
    node: NodeName,
    provider: Arc<dyn Provider>,
    pod: Option<Pod>,
}

impl Target {
    /// The pod, if there is one and it has such a container.
    fn pod(&self, container: Option<&str>) -> Result<&Pod, Refusal> {
        let pod = self.pod.as_ref().ok_or_else(Refusal::no_pod)?;
        match container {
            Some(container) if !pod.has_container(container) => Err(Refusal::no_container(pod, container)),
            _ => Ok(pod),
        }
    }
}

/// A stream of a pod, as long as it lives.
struct Open {
    streams: Arc<Mutex<HashMap<PodKey, usize>>>,
    key: PodKey,
    _counted: OpenStream,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut streams = self.streams.lock();
        if let Some(count) = streams.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&self.key);
            }
        }
    }
}

fn upgrade_request(
    request: &Request<Incoming>,
    kind: UpgradeKind,
    container: Option<String>,
    streams: Streams,
) -> UpgradeRequest {
    let Streams { command, stdin, stdout, stderr, tty, ports } = streams;
    let (method, headers) = (request.method().clone(), negotiation(request.headers()));
    UpgradeRequest { kind, method, container, command, stdin, stdout, stderr, tty, ports, headers }
}

/// The name in a Host header, without the port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// What `/runningpods/` shows: as with the real kubelet, not what is ending.
fn is_running(pod: &Pod) -> bool {
    pod.phase() == Phase::Running && pod.deletion().is_none()
}

/// A PodList, written pod by pod: ten thousand of them need not be in memory twice.
fn pod_list<'a>(pods: impl Iterator<Item = &'a Pod>) -> Response<Body> {
    let mut list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_owned();
    for (n, pod) in pods.enumerate() {
        if n > 0 {
            list.push(',');
        }
        list.push_str(&pod.json().to_string());
    }
    list.push_str("]}");
    json_response(list)
}
