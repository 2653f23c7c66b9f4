//! Streams of pods that only pretend to run: what one asks of a container of theirs is asked of one real pod in a member.

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use anyhow::Result;
use async_trait::async_trait;
use federlet_node::{
    client::client,
    contract::{
        ByteStream, Duplex, LogOptions, Pod, PodStreams, ProviderError, UpgradeAnswer, UpgradeKind,
        UpgradeRequest,
    },
};
use federlet_sandbox::Cluster;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderMap, Method, header::UPGRADE};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::embedded::config;

pub(crate) struct Relay {
    member: Client,
    namespace: String,
    pod: &'static str,
    arrived: Mutex<HashSet<(&'static str, String)>>,
    open: Arc<AtomicUsize>,
}

impl Relay {
    /// One whose containers are those of `pod` in the member.
    pub(crate) async fn new(member: &Cluster, namespace: &str, pod: &'static str) -> Result<Self> {
        Ok(Self {
            member: client(config(member).await?, "streams", Arc::default())?,
            namespace: namespace.to_owned(),
            pod,
            arrived: Mutex::default(),
            open: Arc::default(),
        })
    }

    /// In which protocols each kind of stream arrived since the last question, as `exec` and `POST spdy/3.1`.
    pub(crate) fn arrived(&self) -> HashSet<(&'static str, String)> {
        std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many connections to the member are open for streams.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn note(&self, kind: UpgradeKind, method: &Method, headers: &HeaderMap) {
        let protocol = headers.get(UPGRADE).and_then(|v| v.to_str().ok()).unwrap_or("none");
        let how = format!("{method} {}", protocol.to_ascii_lowercase());
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).insert((kind.as_str(), how));
    }
}

#[async_trait]
impl PodStreams for Relay {
    async fn logs(
        &self,
        _: &Pod,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        let request = options.to_api_server(&self.namespace, self.pod, container).map(|()| Body::empty());
        let response = self.member.send(request).await.map_err(unavailable)?;
        if !response.status().is_success() {
            return Err(ProviderError::invalid(format!("the member said {}", response.status())));
        }
        Ok(response.into_body().into_data_stream().map_err(std::io::Error::other).boxed())
    }

    async fn upgrade(&self, _: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        self.note(request.kind, &request.method, &request.headers);
        let request = request.to_api_server(&self.namespace, self.pod, None).map(|()| Body::empty());
        let answer =
            UpgradeAnswer::from_response(self.member.send(request).await.map_err(unavailable)?).await?;
        Ok(match answer {
            UpgradeAnswer::Switched { headers, io } => {
                UpgradeAnswer::Switched { headers, io: Box::pin(Counted::new(io, self.open.clone())) }
            }
            refused => refused,
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err gives it away")]
fn unavailable(error: kube::Error) -> ProviderError {
    ProviderError::unavailable(error.to_string())
}

/// A connection that is counted as long as it lives.
struct Counted {
    io: Duplex,
    open: Arc<AtomicUsize>,
}

impl Counted {
    fn new(io: Duplex, open: Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self { io, open }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.io.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.io.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.io.as_mut().poll_shutdown(cx)
    }
}
