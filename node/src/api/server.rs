use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{handle::KubeletApi, stall::Patient};

/// How long a client may take for its handshake and for the head of each request. An idle connection ends with it.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(60);

/// The head of a request: a long exec command is in the URL.
const HEAD_BYTES: usize = 128 * 1024;
const HEADERS: usize = 100;

/// How soon a peer that is gone without a word is noticed, also in the middle of a silent stream.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long an answer that is under way may take after we were told to stop.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// One listener.
#[derive(Clone)]
pub(super) struct Port {
    pub(super) api: Arc<KubeletApi>,
    pub(super) at: SocketAddr,
    pub(super) acceptor: TlsAcceptor,
    pub(super) places: Arc<Semaphore>,
    pub(super) connections: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// A connection, as those see it who answer what comes over it.
pub(super) struct Connection {
    /// The listener to which it came.
    pub(super) at: SocketAddr,
    /// The certificates that the client showed, and of which it has the key.
    pub(super) certificates: Option<Vec<CertificateDer<'static>>>,
    /// The place that it takes among all connections.
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Connection {
    /// Gives up its place. From now on it is bounded by the streams of a pod, so it must carry nothing else.
    pub(super) fn make_room(&self) {
        self.place.lock().take();
    }
}

impl Port {
    /// Takes connections until told to stop. They end by themselves.
    pub(super) async fn accept(self, listener: TcpListener) {
        loop {
            let (stream, peer) = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Often a lack of file descriptors, which passes.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            // Without a free place nobody else is accepted: who waits, waits in the kernel's queue and costs nothing
            // here.
            let place = tokio::select! {
                () = self.stop.cancelled() => return,
                place = self.places.clone().acquire_owned() => match place {
                    Ok(place) => place,
                    Err(_) => return,
                },
            };
            self.connections.spawn(self.clone().serve(stream, peer, place));
        }
    }

    async fn serve(self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        let Self { api, at, acceptor, stop, .. } = self;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        let _ = stream.set_nodelay(true);
        let stream = Patient::new(stream, api.settings.idle);
        let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => return tracing::debug!(%peer, "a TLS handshake took too long"),
        };
        let certificates = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
        // A connection that switched protocols leaves for a task of its own and is bounded by the streams of its pod.
        let over = Arc::new(Connection { at, certificates, place: Mutex::new(Some(place)) });
        let service = service_fn(move |request: Request<Incoming>| {
            let (api, over) = (api.clone(), over.clone());
            async move { Ok::<_, Infallible>(api.answer(request, &over).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            ended = &mut connection => if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a connection ended badly");
            },
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
            }
        }
    }
}
