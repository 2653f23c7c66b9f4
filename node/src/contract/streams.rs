use std::{fmt, pin::Pin};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Pod, ProviderError};

/// What `kubectl logs`, `exec`, `attach`, `port-forward` and `top` ask of a provider.
///
/// Who asks has been authenticated and authorised, and the pod is one of this node. Dropping a returned stream means
/// that the client went away: stop whatever feeds it.
#[async_trait]
pub trait PodStreams: Send + Sync + 'static {
    /// The log of a container, as bytes. The client's pace is the stream's pace: it is polled only when there is
    /// room for more.
    async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        let (_, _, _) = (pod, container, options);
        Err(ProviderError::unsupported("this provider has no logs"))
    }

    /// Connects exec, attach or port-forward. The bytes after the switch are SPDY or websocket frames between the
    /// client and whoever answers here; this crate copies them and reads none.
    async fn upgrade(&self, pod: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        let _ = pod;
        Err(ProviderError::unsupported(format!("this provider has no {}", request.kind)))
    }

    /// The kubelet's `/stats/summary`: usage of the node and of each of its pods, under the host's names.
    async fn stats(&self) -> Result<Value, ProviderError> {
        Err(ProviderError::unsupported("this provider has no statistics"))
    }

    /// Metrics in the Prometheus text format, under the host's names.
    async fn metrics(&self, kind: MetricsKind) -> Result<Bytes, ProviderError> {
        let _ = kind;
        Err(ProviderError::unsupported("this provider has no metrics"))
    }
}

/// Bytes as they come. An error ends the stream and the client's connection.
pub type ByteStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Which of the kubelet's metrics endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsKind {
    /// `/metrics/resource`, from which `kubectl top` and the autoscalers live.
    Resource,
    /// `/metrics/cadvisor`.
    Cadvisor,
}

/// Every option of `kubectl logs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Stay and send what comes.
    pub follow: bool,
    /// The container's earlier instance.
    pub previous: bool,
    /// Begin each line with its time.
    pub timestamps: bool,
    /// Nothing older than so many seconds.
    pub since_seconds: Option<u64>,
    /// Nothing older than this.
    pub since_time: Option<Timestamp>,
    /// So many lines from the end. Zero is not the same as unset.
    pub tail_lines: Option<u64>,
    /// No more than so many bytes.
    pub limit_bytes: Option<u64>,
    /// One of the container's two outputs.
    pub source: LogSource,
}

/// Which output of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogSource {
    /// Both, in order.
    #[default]
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which of the three upgrades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpgradeKind {
    /// Run a command in a container.
    Exec,
    /// Join a container's main process.
    Attach,
    /// Connections to ports of the pod.
    PortForward,
}

impl UpgradeKind {
    /// As kubectl calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "port-forward",
        }
    }
}

impl fmt::Display for UpgradeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request to switch protocols, understood and stripped of all that says who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeRequest {
    /// Which of the three.
    pub kind: UpgradeKind,
    /// GET from websocket clients, POST from SPDY ones.
    pub method: Method,
    /// The container; none for port-forward.
    pub container: Option<String>,
    /// The command and its arguments; empty except for exec.
    pub command: Vec<String>,
    /// Whether the client sends standard input.
    pub stdin: bool,
    /// Whether it wants standard output.
    pub stdout: bool,
    /// Whether it wants standard error.
    pub stderr: bool,
    /// Whether it is a terminal.
    pub tty: bool,
    /// Ports that a websocket port-forward names in advance.
    pub ports: Vec<u16>,
    /// The headers that negotiate the switch, and no others.
    pub headers: HeaderMap,
}

/// A connection after the switch.
pub type Duplex = Pin<Box<dyn ReadWrite>>;

/// Both directions of a connection.
pub trait ReadWrite: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> ReadWrite for T {}

/// What the other side said to an [`UpgradeRequest`].
#[non_exhaustive]
pub enum UpgradeAnswer {
    /// It switched. Bytes are copied between the client and `io` until either ends.
    Switched {
        /// The headers of its answer: the protocol it chose.
        headers: HeaderMap,
        /// The connection.
        io: Duplex,
    },
    /// It did not, and the client hears why in its own words.
    Refused(Response<Bytes>),
}

/// More than any explanation of a refusal needs.
const REFUSAL_LIMIT: usize = 64 * 1024;

impl UpgradeAnswer {
    /// The answer of an HTTP server to which the request was passed on.
    ///
    /// Whoever gets a refusal gets its body too, up to a bound: the other side may not be trusted.
    pub async fn from_response<B>(mut response: Response<B>) -> Result<Self, ProviderError>
    where
        B: hyper::body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let headers = std::mem::take(response.headers_mut());
            let upgraded = hyper::upgrade::on(response)
                .await
                .map_err(|e| ProviderError::unavailable(format!("the connection did not switch: {e}")))?;
            return Ok(Self::Switched { headers, io: Box::pin(TokioIo::new(upgraded)) });
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, REFUSAL_LIMIT).collect().await.map_or_else(
            |_| Bytes::from_static(b"the answer was too long or broke off"),
            http_body_util::Collected::to_bytes,
        );
        let mut refusal = Response::new(body);
        // A redirect from behind us is not to be followed by anybody, and success is not a switch.
        *refusal.status_mut() = if head.status.is_client_error() || head.status.is_server_error() {
            head.status
        } else {
            StatusCode::BAD_GATEWAY
        };
        for name in [header::CONTENT_TYPE.as_str(), "x-accepted-stream-protocol-versions"] {
            for value in head.headers.get_all(name) {
                if let Ok(name) = http::HeaderName::try_from(name) {
                    refusal.headers_mut().append(name, value.clone());
                }
            }
        }
        Ok(Self::Refused(refusal))
    }
}

impl fmt::Debug for UpgradeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switched { headers, .. } => {
                f.debug_struct("Switched").field("headers", headers).finish_non_exhaustive()
            }
            Self::Refused(response) => f.debug_tuple("Refused").field(&response.status()).finish(),
        }
    }
}
