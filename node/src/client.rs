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

/// A client for one part of the process, [named](named()) and counted.
pub fn client(config: Config, part: &'static str, metrics: Arc<Metrics>) -> Result<Client, kube::Error> {
    let config = named(config, part);
    let count = layer_fn(move |inner| Counted::new(inner, part, metrics.clone()));
    Ok(ClientBuilder::try_from(config)?.with_layer(&count).build())
}

/// How one part of the process asks.
///
/// Every request carries `User-Agent: federlet/<version> (<part>)`, so that an audit log can be read. Nothing is retried by
/// itself: whoever asks knows best when to ask again, and a worker must not sleep in a client.
pub fn named(mut config: Config, part: &'static str) -> Config {
    config.default_retry = false;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    let agent = format!("federlet/{} ({part})", env!("CARGO_PKG_VERSION"));
    let agent = HeaderValue::from_str(&agent).unwrap_or(HeaderValue::from_static("federlet"));
    config.headers.push((USER_AGENT, agent));
    config
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

/// Counts the requests of one part of the process.
#[derive(Clone)]
pub struct Counted<S> {
    inner: S,
    part: &'static str,
    metrics: Arc<Metrics>,
}

impl<S> Counted<S> {
    /// Counts what goes through `inner`.
    pub const fn new(inner: S, part: &'static str, metrics: Arc<Metrics>) -> Self {
        Self { inner, part, metrics }
    }
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

/// How long an answer may take. A connection that died without a word would hold the pod, and a worker, for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that got no answer we can act on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    /// It failed.
    #[error("the host's API server: {}", brief(.0))]
    Failed(Box<kube::Error>),
    /// Nobody answered.
    #[error("the host's API server did not answer within {ANSWER_TIMEOUT:?}")]
    Silence,
}

impl From<kube::Error> for HostError {
    fn from(source: kube::Error) -> Self {
        Self::Failed(Box::new(source))
    }
}

/// Waits for an answer, though not for ever.
pub(crate) async fn answered<T>(request: impl Future<Output = T>) -> Result<T, HostError> {
    // A request is large, and many workers wait for one.
    tokio::time::timeout(ANSWER_TIMEOUT, Box::pin(request)).await.map_err(|_| HostError::Silence)
}

/// How often to ask again at once while the host's caches do not know of the pod yet: a second in all.
const LAGS: u32 = 6;
/// The first pause; each is twice as long as the one before.
const LAG: Duration = Duration::from_millis(15);

/// Whether the host has not noticed yet that the pod is on this node.
///
/// Its Node authorizer and its admission plugins ask caches of their own, and we may have heard of the pod before them.
pub fn is_behind(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let about_pod = status.message.starts_with("pod ") || status.message.starts_with("pods ");
    let unplaced = ["no relationship found between node", "bound to a pod scheduled on a different node"];
    (status.code == 403 && unplaced.iter().any(|said| status.message.contains(said)))
        || (status.code == 404 && about_pod)
}

/// Asks the host, and again if it is only behind.
pub async fn ask<T, F>(question: impl Fn() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut asked = 0;
    loop {
        match question().await {
            Err(error) if is_behind(&error) && asked < LAGS => {}
            answer => return answer,
        }
        tokio::time::sleep(LAG * 2_u32.pow(asked)).await;
        asked += 1;
    }
}

impl HostError {
    /// How long the API server asks to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let Self::Failed(source) = self else { return None };
        let kube::Error::Api(status) = &**source else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
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

    #[tokio::test(start_paused = true)]
    async fn a_host_that_is_behind_is_asked_again_but_not_for_ever() {
        let forbidden = |message: &str| {
            let status = kube::core::Status::failure(message, "Forbidden").with_code(403);
            kube::Error::Api(status.boxed())
        };
        for (message, right_after, asked) in [
            ("no relationship found between node 'n' and this object", 3, 3),
            ("no relationship found between node 'n' and this object", u32::MAX, LAGS + 1),
            ("this node may not", 3, 1),
        ] {
            let count = std::cell::Cell::new(0);
            let question = || {
                count.set(count.get() + 1);
                let answer = if count.get() < right_after { Err(forbidden(message)) } else { Ok(()) };
                std::future::ready(answer)
            };
            let begun = tokio::time::Instant::now();
            assert_eq!(ask(question).await.is_ok(), asked == right_after, "{message}");
            assert_eq!(count.get(), asked, "{message}");
            assert!(begun.elapsed() < Duration::from_secs(2));
        }
    }
}
