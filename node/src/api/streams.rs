use std::{collections::HashMap, future::Future, io, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    answer::{Body, Refusal, negotiation, plain, whole},
    handle::{KubeletApi, in_time},
    nodes::Target,
    relay::copy_until_either_ends,
    server::Connection,
};
use crate::{
    contract::{ByteStream, LogOptions, Pod, PodId, ProviderError, UpgradeAnswer, UpgradeRequest},
    metrics::{Metrics, OpenStream},
};

/// Logs, execs, attaches and port-forwards: what takes as long as the client or the container likes.
impl KubeletApi {
    pub(super) async fn logs(
        &self,
        target: &Target,
        container: &str,
        options: &LogOptions,
        over: &Connection,
    ) -> Result<Response<Body>, Refusal> {
        let pod = target.pod(Some(container))?;
        let open = self.streams.open(pod, "logs")?;
        let (provider, removed) = (&target.served.provider, &target.served.removed);
        let log = provider.logs(pod, container, options);
        if !options.follow {
            return Ok(log_response(in_time(log).await?, open, removed));
        }
        // Who follows a log stays for days, and its first line may be long in coming. Enough of them would leave no place
        // for anybody else.
        over.make_room();
        let log = while_served(log, removed).await;
        let mut response =
            log.map_or_else(|refusal| refusal.into_response(false), |log| log_response(log, open, removed));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(response)
    }

    pub(super) async fn upgrade(
        &self,
        request: Request<Incoming>,
        target: &Target,
        mut upgrade: UpgradeRequest,
    ) -> Result<Response<Body>, Refusal> {
        let pod = target.pod(upgrade.container.as_deref())?;
        upgrade.headers = negotiation(request.headers());
        if !upgrade.headers.contains_key(UPGRADE) {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "upgrade request required"));
        }
        let open = self.streams.open(pod, upgrade.kind.as_str())?;
        let (headers, io) = match in_time(target.served.provider.upgrade(pod, upgrade)).await? {
            UpgradeAnswer::Refused(refusal) => return Ok(refusal.map(whole)),
            UpgradeAnswer::Switched { headers, io } => (headers, io),
        };
        let mut response = Response::new(whole(Bytes::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = negotiation(&headers);
        let (idle, removed) = (self.settings.idle, target.served.removed.clone());
        self.tasks.spawn(async move {
            match hyper::upgrade::on(request).await {
                Ok(client) => {
                    let ended =
                        copy_until_either_ends(TokioIo::new(client), io, idle, removed.cancelled()).await;
                    tracing::debug!(?ended, "a stream ended");
                }
                Err(error) => tracing::debug!(%error, "a client did not switch"),
            }
            drop(open);
        });
        Ok(response)
    }
}

/// A log, as it comes. The place is taken as long as the body lives: until the log ends or the client is gone.
fn log_response(log: ByteStream, open: Open, removed: &CancellationToken) -> Response<Body> {
    let log = log.take_until(removed.clone().cancelled_owned());
    let frames = log.map(move |chunk| open.pass(chunk));
    plain(BodyExt::boxed_unsync(StreamBody::new(frames)))
}

/// What a provider answers, as long as the client waits and the node is served: a kubelet says nothing at all of a
/// followed log before its first line.
async fn while_served<T>(
    call: impl Future<Output = Result<T, ProviderError>>,
    removed: &CancellationToken,
) -> Result<T, Refusal> {
    tokio::select! {
        answer = call => Ok(answer?),
        () = removed.cancelled() => Err(ProviderError::unavailable("the node is not served here any more").into()),
    }
}

/// How many streams each pod has open, and how many it may have.
pub(super) struct OpenStreams {
    counts: Arc<Mutex<HashMap<PodId, usize>>>,
    most: usize,
    metrics: Arc<Metrics>,
}

impl OpenStreams {
    pub(super) fn new(most: usize, metrics: Arc<Metrics>) -> Self {
        Self { counts: Arc::default(), most, metrics }
    }

    /// Takes one of the places for streams of a pod.
    fn open(&self, pod: &Pod, kind: &'static str) -> Result<Open, Refusal> {
        let mut counts = self.counts.lock();
        let count = counts.entry(pod.id().clone()).or_default();
        if *count >= self.most {
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many streams of this pod are open"));
        }
        *count += 1;
        drop(counts);
        let _counted = self.metrics.stream(kind);
        Ok(Open { counts: self.counts.clone(), id: pod.id().clone(), _counted })
    }
}

/// A stream of a pod, as long as it lives.
struct Open {
    counts: Arc<Mutex<HashMap<PodId, usize>>>,
    id: PodId,
    _counted: OpenStream,
}

impl Open {
    fn pass(&self, chunk: io::Result<Bytes>) -> io::Result<Frame<Bytes>> {
        chunk.map(Frame::data)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_log_is_waited_for_until_its_node_goes() {
        let removed = CancellationToken::new();
        let first_line = async {
            tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
            Ok(())
        };
        assert!(while_served(first_line, &removed).await.is_ok());
        let refused = async { Err::<(), _>(ProviderError::NotFound) };
        let refusal = while_served(refused, &removed).await.unwrap_err();
        assert_eq!(refusal.into_response(false).status(), StatusCode::NOT_FOUND);
        removed.cancel();
        let refusal = while_served(pending::<Result<(), _>>(), &removed).await.unwrap_err();
        assert_eq!(refusal.into_response(false).status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn each_pod_has_so_many_places_and_gives_them_back() {
        let streams = OpenStreams::new(2, Arc::default());
        let pod = |name: &str| {
            Pod::try_from(json!({"metadata": {"namespace": "n", "name": name, "uid": name}})).unwrap()
        };
        let one = streams.open(&pod("a"), "exec").unwrap();
        let _two = streams.open(&pod("a"), "logs").unwrap();
        assert!(streams.open(&pod("a"), "exec").is_err());
        assert!(streams.open(&pod("b"), "exec").is_ok(), "another pod has places of its own");
        drop(one);
        assert!(streams.open(&pod("a"), "exec").is_ok());
        drop(_two);
        assert!(streams.counts.lock().is_empty());
    }
}
