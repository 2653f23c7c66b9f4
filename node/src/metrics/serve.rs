use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use super::Metrics;

/// What our metrics are written in.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Connections at a time. Prometheus needs one.
const CONNECTIONS: usize = 32;

/// Answers `/metrics`, `/healthz` and `/readyz` over plain HTTP until told to stop.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for metrics");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (metrics, stop) = (metrics.clone(), stop.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request| std::future::ready(answer(&request, &metrics)));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .max_buf_size(16 * 1024)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                () = stop.cancelled() => {}
                _ = connection => {}
            }
            drop(place);
        });
    }
}

fn answer<B>(request: &Request<B>, metrics: &Metrics) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, kind, text) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, OPEN_METRICS, metrics.encode()),
        "/healthz" => (StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned()),
        "/readyz" if metrics.has_begun.load(Ordering::Relaxed) => {
            (StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned())
        }
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", "starting\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "try /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_it_has_begun() {
        let metrics = Metrics::default();
        let asked = |path: &str| {
            let request = Request::builder().uri(path).body(()).unwrap();
            answer(&request, &metrics).unwrap().status().as_u16()
        };
        assert_eq!((asked("/healthz"), asked("/readyz"), asked("/")), (200, 503, 404));
        metrics.begun();
        assert_eq!(asked("/readyz"), 200);
    }
}
