use std::{io, sync::Arc, time::Duration};

use federlet_node::{
    client::{Counted, client, named},
    metrics::Metrics,
};
use http::Uri;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tower::{BoxError, Layer, ServiceExt, service_fn, util::option_layer};

/// A member that is gone without a word is noticed after so much silence, and so many questions that far apart: whoever
/// follows a log says nothing by which it would be.
const SILENCE: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_secs(10);
const QUESTIONS: u32 = 3;

/// A client for streams in which nothing may be said for hours.
///
/// Through a proxy it is an ordinary one: what is beyond the proxy cannot be asked this way.
pub(super) fn streaming(
    config: Config,
    part: &'static str,
    metrics: Arc<Metrics>,
) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return client(config, part, metrics);
    }
    let config = named(config, part);
    let encrypted = config.rustls_https_connector_with_connector(kept_alive())?;
    let limit = config.connect_timeout.unwrap_or(Duration::MAX);
    // The limit holds for all of it, also for a member that takes connections and then says nothing.
    let connector = service_fn(move |to: Uri| {
        let connecting = encrypted.clone().oneshot(to);
        Box::pin(async move {
            let late = |_| BoxError::from(io::Error::from(io::ErrorKind::TimedOut));
            tokio::time::timeout(limit, connecting).await.map_err(late)?
        })
    });
    let http: Http<_, Body> = Http::builder(TokioExecutor::new()).build(connector);
    let authenticated = option_layer(config.auth_layer()?).layer(http.map_err(BoxError::from));
    let service = config.base_uri_layer().layer(config.extra_headers_layer()?.layer(authenticated));
    Ok(Client::new(Counted::new(service, part, metrics), config.default_namespace))
}

fn kept_alive() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(SILENCE));
    connector.set_keepalive_interval(Some(BETWEEN));
    connector.set_keepalive_retries(Some(QUESTIONS));
    connector
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpSocket},
    };

    use super::*;

    async fn listener() -> (TcpListener, Uri) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        (listener, at)
    }

    #[tokio::test]
    async fn silent_connections_are_kept_alive() {
        let (_listener, at) = listener().await;
        let stream = kept_alive().oneshot(at).await.unwrap().into_inner();
        let socket = TcpSocket::from_std_stream(stream.into_std().unwrap());
        assert!(socket.keepalive().unwrap());
    }

    #[tokio::test]
    async fn it_asks_as_any_other_client_does() {
        let (listener, at) = listener().await;
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut head).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            String::from_utf8(head).unwrap()
        });
        let client = streaming(Config::new(at), "member-streams", Arc::default()).unwrap();
        let request =
            http::Request::get("/api/v1/namespaces/n/pods/p/log?follow=true").body(Vec::new()).unwrap();
        assert_eq!(client.request_text(request).await.unwrap(), "ok");
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("GET /api/v1/namespaces/n/pods/p/log?follow=true HTTP/1.1"), "{asked}");
        assert!(asked.contains("(member-streams)"), "{asked}");
    }

    #[tokio::test]
    async fn a_member_that_takes_connections_and_says_nothing_is_not_waited_for() {
        let (_listener, at) = listener().await;
        let mut config = Config::new(at.to_string().replace("http:", "https:").parse().unwrap());
        config.accept_invalid_certs = true;
        config.connect_timeout = Some(Duration::from_millis(50));
        let client = streaming(config, "member-streams", Arc::default()).unwrap();
        assert!(client.apiserver_version().await.is_err());
    }
}
