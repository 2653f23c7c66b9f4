//! The HTTPS server that the host's API server calls.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use federlet_node::{api::ServingCertificate, metrics::Metrics};
use http::{Method, Request as HttpRequest, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Pods, pods, policies,
    review::{Answer, Request},
};

/// How long a client may take for its handshake, and be idle.
const HANDSHAKE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(120);
/// The largest object that the API server takes is 3 MiB of JSON; an update is about two of them.
const BODY_BYTES: usize = 8 << 20;
/// Connections at the same time. Who waits, waits in the kernel's queue.
const CONNECTIONS: usize = 256;
/// How long answers that are under way may take after we were told to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Everything that the webhooks answer with.
pub struct Webhooks {
    /// Where pods go.
    pub pods: Pods,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Webhooks {
    async fn answer(&self, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
        let begun = Instant::now();
        let webhook = match (request.method(), request.uri().path()) {
            (&Method::GET, "/healthz") => return plain(StatusCode::OK, "ok"),
            (&Method::POST, "/pods") => "pods",
            (&Method::POST, "/room") => "room",
            (&Method::POST, "/policies") => "policies",
            (&Method::POST, "/validate") => "validate",
            _ => return plain(StatusCode::NOT_FOUND, "there is nothing here"),
        };
        let body = match Limited::new(request.into_body(), BODY_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let request = match Request::read(&body) {
            Ok(request) => request,
            Err(error) => return plain(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let answer = match webhook {
            "pods" => self.pods.answer(&request).await,
            "room" => pods::ask_for_room(&request),
            "policies" => policies::identify(&request),
            _ => policies::check(&request),
        };
        self.metrics.admission(webhook, answer.result(), begun.elapsed());
        if let Answer::NotNow(why) = &answer {
            tracing::warn!(webhook, namespace = request.namespace, why, "could not answer");
        }
        let review = answer.review(&request).to_string();
        let mut response = Response::new(Full::new(Bytes::from(review)));
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        response
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    response
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    certificate: ServingCertificate,
    webhooks: Arc<Webhooks>,
    stop: CancellationToken,
) {
    let acceptor = match certificate.acceptor() {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "the webhook cannot speak TLS"),
    };
    let (places, connections) = (Arc::new(Semaphore::new(CONNECTIONS)), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Often a lack of file descriptors, which passes.
                tracing::warn!(%error, "the webhook cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let (acceptor, webhooks, stop) = (acceptor.clone(), webhooks.clone(), stop.clone());
        connections.spawn(async move {
            connection(stream, acceptor, webhooks, stop).await;
            drop(place);
        });
    }
    connections.close();
    let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    webhooks: Arc<Webhooks>,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let service = service_fn(move |request: HttpRequest<Incoming>| {
        let webhooks = webhooks.clone();
        async move { Ok::<_, Infallible>(webhooks.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = &mut connection => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended badly");
        },
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST_ANSWERS, connection).await;
        }
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}
