//! An API server whose clock is wrong: the two answers by which a member is known, and a date before them.

use std::{net::IpAddr, sync::Arc};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// It answers until dropped.
pub(crate) struct Skewed {
    pub(crate) url: String,
    serving: JoinHandle<()>,
}

impl Skewed {
    /// At this address, so many seconds behind.
    pub(crate) async fn start(address: IpAddr, behind: i64) -> Result<Self> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([address.to_string()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        let (tls, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind((address, 0)).await?);
        let url = format!("https://{}", listener.local_addr()?);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move { answer(&tls, stream, behind).await.ok() });
            }
        });
        Ok(Self { url, serving })
    }
}

impl Drop for Skewed {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(tls: &TlsAcceptor, stream: TcpStream, behind: i64) -> Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut head = vec![];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && stream.read_buf(&mut head).await? > 0 {}
    let head = String::from_utf8_lossy(&head);
    let (code, body) = match head.split_whitespace().nth(1) {
        Some("/version") => (
            "200 OK",
            json!({
                "major": "1", "minor": "35", "gitVersion": "v1.35.4", "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "", "goVersion": "", "compiler": "gc", "platform": "linux/amd64",
            }),
        ),
        Some(path) if path.starts_with("/api/v1/namespaces/kube-system") => (
            "200 OK",
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "kube-system", "uid": "5b6f8a52-7f3c-4c58-9d86-0d1f4f2a8c11"},
            }),
        ),
        _ => {
            ("404 Not Found", json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}))
        }
    };
    let date = Timestamp::now() - SignedDuration::from_secs(behind);
    let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date)?;
    let body = body.to_string();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {code}\r\nDate: {date}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    Ok(stream.shutdown().await?)
}
