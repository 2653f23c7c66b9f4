//! Clients of the host's API server, each with its name and its counters.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Method, Request, Response, header::USER_AGENT};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use tower::{Service, layer::layer_fn};

use crate::metrics::Metrics;

/// How long a request of a heartbeat may take. Two fit between renewals, four within the life of a lease.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client for one part of the process.
///
/// Every request carries `User-Agent: federlet/<version> (<part>)`, so that an audit log can be read, and is counted.
/// It retries nothing by itself: whoever asks knows best when to ask again, and a worker must not sleep in a client.
pub fn client(mut config: Config, part: &'static str, metrics: Arc<Metrics>) -> Result<Client, kube::Error> {
    config.default_retry = false;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    let agent = format!("federlet/{} ({part})", env!("CARGO_PKG_VERSION"));
    let agent = HeaderValue::from_str(&agent).unwrap_or(HeaderValue::from_static("federlet"));
    config.headers.push((USER_AGENT, agent));
    let count = layer_fn(move |inner| Counted { inner, part, metrics: metrics.clone() });
    Ok(ClientBuilder::try_from(config)?.with_layer(&count).build())
}

/// A client for leases and node status: on its own connection, and impatient, so that no pod work delays it.
pub fn heartbeat_client(mut config: Config, metrics: Arc<Metrics>) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(HEARTBEAT_TIMEOUT);
    config.read_timeout = Some(HEARTBEAT_TIMEOUT);
    config.write_timeout = Some(HEARTBEAT_TIMEOUT);
    // Or the time between two beats counts as time without an answer.
    config.reset_reader_on_write = true;
    client(config, "heartbeat", metrics)
}

/// What an API server said, without the rest of its answer: fit for a log line.
pub(crate) fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

#[derive(Clone)]
struct Counted<S> {
    inner: S,
    part: &'static str,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb(request.method(), request.uri().query());
        let (part, metrics) = (self.part, self.metrics.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or("error".to_owned(), |a| a.status().as_u16().to_string());
            metrics.request(part, verb, &code);
            answer
        })
    }
}

impl<S> fmt::Debug for Counted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("part", &self.part).finish_non_exhaustive()
    }
}

fn verb(method: &Method, query: Option<&str>) -> &'static str {
    let watches = query.is_some_and(|q| q.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")));
    match method.as_str() {
        "GET" if watches => "watch",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_told_from_the_request() {
        assert_eq!(verb(&Method::GET, Some("limit=5&watch=true")), "watch");
        assert_eq!(verb(&Method::GET, Some("limit=5")), "get");
        assert_eq!(verb(&Method::PATCH, None), "patch");
    }
}
