use std::{fmt, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::UPGRADE};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::{
    answer::{Body, Refusal, json_response, metrics_response, own_metrics_response, plain, whole},
    authn::Authentication,
    authz::{Attributes, Authorization},
    nodes::{Nodes, Target},
    route::Route,
    server::Connection,
    streams::OpenStreams,
};
use crate::{
    contract::{Phase, Pod, ProviderError, QUERY},
    metrics::Metrics,
    pods::HostPods,
};

/// How long a provider may take until it begins to answer. What comes after the beginning takes as long as it takes.
const FIRST_WORD: Duration = Duration::from_secs(60);

/// What the server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// Connections at a time, to all nodes together. Those that became a stream of a pod are not counted.
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

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>, over: &Connection) -> Response<Body> {
        let to_upgrade = request.headers().contains_key(UPGRADE);
        match self.try_answer(request, over).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(to_upgrade),
        }
    }

    async fn try_answer(
        &self,
        request: Request<Incoming>,
        over: &Connection,
    ) -> Result<Response<Body>, Refusal> {
        let user = self
            .authentication
            .user(over.certificates.as_deref(), request.headers())
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
        let target = self.nodes.target(over.at, &self.host_pods, request.headers(), &route);
        let attributes = Attributes::of(request.method(), &route);
        let node = target.as_ref().ok().map(|target| &target.node);
        let allowed =
            self.authorization.allows(&user, &attributes, node).await.map_err(|e| Refusal::cannot_ask(&e))?;
        if !allowed {
            return Err(Refusal::forbidden(&user, &attributes));
        }
        // Only now may the caller learn what is there and what is not.
        self.dispatch(request, route?, target?, over).await
    }

    async fn dispatch(
        &self,
        request: Request<Incoming>,
        route: Route,
        target: Target,
        over: &Connection,
    ) -> Result<Response<Body>, Refusal> {
        let provider = &target.served.provider;
        match route {
            Route::Healthz => Ok(plain(whole(Bytes::from_static(b"ok")))),
            Route::Configz => Ok(json_response(self.configz().to_string())),
            Route::OwnMetrics => Ok(own_metrics_response(self.metrics.encode().into())),
            Route::Metrics(kind) => Ok(metrics_response(in_time(provider.metrics(kind)).await?)),
            Route::StatsSummary => {
                let mut stats = in_time(provider.stats()).await?;
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
                let pods = in_time(provider.get_pods()).await?;
                Ok(pod_list(pods.iter().filter(|pod| is_running(pod))))
            }
            Route::Logs { container, options, .. } => self.logs(&target, &container, &options, over).await,
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

/// What a provider answers, if it begins to in time: a caller who waits takes a place.
pub(super) async fn in_time<T>(call: impl Future<Output = Result<T, ProviderError>>) -> Result<T, Refusal> {
    let late = |_| Err(ProviderError::unavailable(format!("the provider took longer than {FIRST_WORD:?}")));
    Ok(tokio::time::timeout(FIRST_WORD, call).await.unwrap_or_else(late)?)
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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_is_not_waited_for() {
        let refusal = in_time(pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!(refusal.into_response(false).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(in_time(async { Ok(()) }).await.is_ok());
    }
}
