//! What a process tells about itself: traces for a collector, metrics, a name in the audit log.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use federlet_e2e::{Kubectl, SOON, http_get};
use federlet_sandbox::{Sandbox, eventually};
use futures::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::{
    audit::user_agents,
    objects::{create, pod, spec},
    process::Process,
};

/// As much of an OpenTelemetry collector as keeps what it is sent.
struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
    _task: AbortOnDropHandle<()>,
}

impl Collector {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, received) = (listener.local_addr()?, Arc::<Mutex<Vec<u8>>>::default());
        let kept = received.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = kept.clone();
                let service = service_fn(move |request| keep(request, kept.clone()));
                let connection = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { address, received, _task: AbortOnDropHandle::new(task) })
    }

    /// Whether these bytes are in what was received. Protocol buffers write texts as they are.
    fn has(&self, text: &str) -> bool {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

type Answer = StreamBody<stream::Iter<std::array::IntoIter<Result<Frame<Bytes>, Infallible>, 2>>>;

async fn keep(
    request: Request<Incoming>,
    kept: Arc<Mutex<Vec<u8>>>,
) -> Result<Response<Answer>, hyper::Error> {
    let path = request.uri().path().as_bytes().to_vec();
    let body = request.into_body().collect().await?.to_bytes();
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend_from_slice(&path);
    kept.extend_from_slice(&body);
    // An empty message, and that all is well.
    let mut well = HeaderMap::new();
    well.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(well))];
    let mut response = Response::new(StreamBody::new(stream::iter(frames)));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_tells_what_it_does() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let collector = Collector::start().await?;
    let node = Process::new(&host, "e2e-telemetry").await?;
    let node =
        node.with(&["--trace-exporter=otlp", "--trace-service-name=e2e-traces", "--trace-tag=team=a-team"]);
    let mut node =
        node.with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{}", collector.address));
    node.begin().await?;
    sandbox
        .in_namespace("telemetry", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            create(&kubectl, &pod("traced", &spec(&node.name, json!({})))).await?;
            kubectl.run("wait pod/traced --for=condition=Ready --timeout=60s").await?;
            let texts = ["TraceService/Export", "e2e-traces", "a-team", "provider", "create", "/traced"];
            eventually("the collector has the trace", SOON, async || {
                let missing: Vec<_> = texts.into_iter().filter(|text| !collector.has(text)).collect();
                ensure!(missing.is_empty(), "without {missing:?}");
                Ok(())
            })
            .await?;

            kubectl.run("logs traced --tail=1").await?;
            let metrics = http_get(node.metrics, "/metrics").await?;
            for name in [
                "federlet_build_info{version=",
                "federlet_pod_queue_depth{",
                "federlet_pod_queue_wait_seconds_bucket{",
                "federlet_pod_operation_seconds_bucket{",
                "federlet_api_requests_total{",
                "federlet_pods{",
                "federlet_streams_open{kind=\"logs\"}",
                "federlet_node_ready{node=\"e2e-telemetry\"} 1",
                "federlet_ping_age_seconds{",
            ] {
                ensure!(metrics.contains(name), "{name} is not in\n{metrics}");
            }
            let agents = user_agents(&host, &space.namespace)?;
            ensure!(
                agents.iter().any(|a| a.starts_with("federlet/") && a.ends_with(" (pods)")),
                "{agents:?}"
            );
            Ok(())
        })
        .await
        .with_context(|| node.log())?;
    node.finish().await
}
