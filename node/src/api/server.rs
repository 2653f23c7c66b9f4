use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{certificate::ServingCertificate, handle::KubeletApi, tls};

/// How long a client may take for its handshake and for the head of each request. An idle connection ends with it.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(60);

/// The head of a request: a long exec command is in the URL.
const HEAD_BYTES: usize = 128 * 1024;
const HEADERS: usize = 100;

/// How soon a peer that is gone without a word is noticed, also in the middle of a silent stream.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long requests that are under way may take after we were told to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Answers on one listener for all nodes of `api`, until told to stop.
pub async fn serve(
    api: Arc<KubeletApi>,
    listener: TcpListener,
    serving: ServingCertificate,
    stop: CancellationToken,
) -> Result<(), rustls::Error> {
    let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(serving.resolver())?));
    let places = Arc::new(Semaphore::new(api.settings.connections));
    let connections = TaskTracker::new();
    loop {
        // Without a free place nobody is accepted: who waits, waits in the kernel's queue and costs nothing here.
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = places.clone().acquire_owned() => match place {
                Ok(place) => place,
                Err(_) => break,
            },
        };
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
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
        connections.spawn(connection(api.clone(), acceptor.clone(), stream, peer, place, stop.clone()));
    }
    connections.close();
    let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
    Ok(())
}

async fn connection(
    api: Arc<KubeletApi>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!(%peer, "a TLS handshake took too long"),
    };
    let certificates: Option<Arc<[CertificateDer<'static>]>> =
        stream.get_ref().1.peer_certificates().map(Into::into);
    let service = service_fn(move |request: Request<Incoming>| {
        let (api, certificates) = (api.clone(), certificates.clone());
        async move { Ok::<_, Infallible>(api.answer(request, certificates.as_deref()).await) }
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
            let _ = tokio::time::timeout(LAST_ANSWERS, connection).await;
        }
    }
    // A connection that switched protocols has left for a task of its own and is bounded by the streams of its pod.
    drop(place);
}
