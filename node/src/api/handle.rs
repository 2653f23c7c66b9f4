use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::UPGRADE};
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::{
    answer::{Body, Refusal, json_response, metrics_response, plain, whole},
    authn::Authentication,
    authz::{Attributes, Authorization},
    nodes::{Nodes, Target},
    route::Route,
    streams::OpenStreams,
};
use crate::{
    contract::{Phase, Pod, QUERY},
    metrics::Metrics,
    pods::HostPods,
};

/// What the server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// Connections at a time, to all nodes together.
    pub connections: usize,
    /// Logs, execs, attaches and port-forwards of one pod at a time.
    pub streams_per_pod: usize,
    /// How long an exec, attach or port-forward may be silent, and how long a client may take nothing of an answer. As
    /// the kubelet's.
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
pub(super) struct KubeletApi {
    authentication: Authentication,
    authorization: Authorization,
    host_pods: Arc<HostPods>,
    metrics: Arc<Metrics>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) streams: OpenStreams,
    pub(super) settings: ApiSettings,
    /// Streams that have left the connections on which they came.
    pub(super) tasks: TaskTracker,
}

impl KubeletApi {
    pub(super) fn new(
        authentication: Authentication,
        authorization: Authorization,
        host_pods: Arc<HostPods>,
        settings: ApiSettings,
        metrics: Arc<Metrics>,
        tasks: TaskTracker,
    ) -> Self {
        let streams = OpenStreams::new(settings.streams_per_pod, metrics.clone());
        let nodes = Arc::default();
        Self { authentication, authorization, host_pods, metrics, nodes, streams, settings, tasks }
    }

    /// Answers one request that came to a listener over a connection with these client certificates.
    pub(super) async fn answer(
        &self,
        at: SocketAddr,
        request: Request<Incoming>,
        certificates: Option<&[CertificateDer<'static>]>,
    ) -> Response<Body> {
        let to_upgrade = request.headers().contains_key(UPGRADE);
        match self.try_answer(at, request, certificates).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(to_upgrade),
        }
    }

    async fn try_answer(
        &self,
        at: SocketAddr,
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
        let again = request.headers().get(QUERY).and_then(|query| query.to_str().ok());
        let route = Route::parse(
            request.method(),
            uri.path(),
            uri.query().filter(|query| !query.is_empty()).or(again),
        );
        let target = self.nodes.target(at, &self.host_pods, request.headers(), &route);
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
        let provider = &target.served.provider;
        match route {
            Route::Healthz => Ok(plain(whole(Bytes::from_static(b"ok")))),
            Route::Configz => Ok(json_response(self.configz().to_string())),
            Route::OwnMetrics => Ok(metrics_response(self.metrics.encode().into())),
            Route::Metrics(kind) => Ok(metrics_response(provider.metrics(kind).await?)),
            Route::StatsSummary => {
                let mut stats = provider.stats().await?;
                // A provider need not know what its node is called.
                if let Some(Value::Object(node)) = stats.get_mut("node") {
                    node.entry("nodeName").or_insert_with(|| target.node.as_str().into());
                }
                Ok(json_response(stats.to_string()))
            }
            Route::NodeLogs => {
                Err(Refusal::new(StatusCode::NOT_FOUND, "a virtual node has no log files of its own"))
            }
            Route::Pods => Ok(pod_list(self.host_pods.of(&target.node).iter())),
            Route::RunningPods => {
                let pods = provider.get_pods().await?;
                Ok(pod_list(pods.iter().filter(|pod| is_running(pod))))
            }
            Route::Logs { container, options, .. } => self.logs(&target, &container, &options).await,
            Route::Upgrade { request: upgrade, .. } => self.upgrade(request, &target, upgrade).await,
        }
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
        f.debug_struct("KubeletApi").field("nodes", &self.nodes).finish_non_exhaustive()
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
