//! A registry that only gives: every node has one on its loopback and pulls all its images from it.
//!
//! With it, `image: nginx` works as a person expects, `imagePullPolicy: Always` included, and an image that is not
//! there is refused at once instead of after a search for the internet.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::images::Store;

/// On each machine's own loopback.
pub const ADDRESS: &str = "127.0.0.1:5000";

/// Serves the store until the machine is gone.
pub async fn serve(store: PathBuf) -> Result<()> {
    let address: SocketAddr = ADDRESS.parse()?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let store = Store::new(store);
    loop {
        let (stream, _) = listener.accept().await?;
        let store = store.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let store = store.clone();
                async move { Ok::<_, Infallible>(answer(&store, request.method(), request.uri())) }
            });
            // A client that goes away early is its own business.
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

fn answer(store: &Store, method: &Method, uri: &http::Uri) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        return status(StatusCode::METHOD_NOT_ALLOWED);
    }
    match route(uri) {
        Some(Route::Root) => status(StatusCode::OK),
        Some(Route::Manifest { repository, reference }) => match store.manifest(&repository, reference) {
            Ok((digest, bytes)) => give("application/vnd.oci.image.manifest.v1+json", &digest, bytes, method),
            Err(_) => status(StatusCode::NOT_FOUND),
        },
        Some(Route::Blob { digest }) => match store.blob(digest) {
            Ok(bytes) => give("application/octet-stream", digest, bytes, method),
            Err(_) => status(StatusCode::NOT_FOUND),
        },
        None => status(StatusCode::NOT_FOUND),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Route<'a> {
    Root,
    Manifest { repository: String, reference: &'a str },
    Blob { digest: &'a str },
}

/// containerd says in `ns` which registry it was really asked for.
fn route(uri: &http::Uri) -> Option<Route<'_>> {
    let rest = uri.path().strip_prefix("/v2/")?;
    if rest.is_empty() {
        return Some(Route::Root);
    }
    let registry = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("ns="));
    if let Some((name, reference)) = rest.rsplit_once("/manifests/") {
        let repository = format!("{}/{name}", registry.unwrap_or("docker.io"));
        return Some(Route::Manifest { repository, reference });
    }
    let (_, digest) = rest.rsplit_once("/blobs/")?;
    Some(Route::Blob { digest })
}

fn give(kind: &str, digest: &str, bytes: Vec<u8>, method: &Method) -> Response<Full<Bytes>> {
    let length = bytes.len();
    let body = if method == Method::HEAD { Bytes::new() } else { Bytes::from(bytes) };
    Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_LENGTH, length)
        .header("Docker-Content-Digest", digest)
        .body(Full::new(body))
        .unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_containerd_are_understood() {
        let uri: http::Uri = "/v2/library/nginx/manifests/latest?ns=docker.io".parse().unwrap();
        let route_of_nginx =
            Route::Manifest { repository: "docker.io/library/nginx".into(), reference: "latest" };
        assert_eq!(route(&uri), Some(route_of_nginx));
        let uri: http::Uri = "/v2/me/app/manifests/1?x=y&ns=ghcr.io".parse().unwrap();
        assert_eq!(
            route(&uri),
            Some(Route::Manifest { repository: "ghcr.io/me/app".into(), reference: "1" })
        );
        let uri: http::Uri = "/v2/a/blobs/sha256:00?ns=docker.io".parse().unwrap();
        assert_eq!(route(&uri), Some(Route::Blob { digest: "sha256:00" }));
        assert_eq!(route(&"/v2/".parse().unwrap()), Some(Route::Root));
        assert_eq!(route(&"/etc/passwd".parse().unwrap()), None);
    }

    #[test]
    fn it_gives_and_never_takes() {
        let store = Store::new("/nonexistent");
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let response = answer(&store, &method, &"/v2/a/blobs/uploads/".parse().unwrap());
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        }
        let missing = answer(&store, &Method::GET, &"/v2/library/x/manifests/1".parse().unwrap());
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    }
}
