use std::{fmt, time::Duration};

use http::Uri;
use kube::Config;
use serde_json::json;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take where an answer is expected.
const ANSWER: Duration = Duration::from_secs(30);
/// How long the answer to a small question may take.
const PROBE: Duration = Duration::from_secs(5);

/// Where a member's API server is, how it proves that it is itself, and, if by a certificate, how we prove who we are.
/// All that new connections are needed for when it changes.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub url: Uri,
    /// Authorities that may have signed its certificate, as DER; those of the system if unset.
    pub ca: Option<Vec<Vec<u8>>>,
    /// The name in its certificate, if it is not that of the address.
    pub server_name: Option<String>,
    /// Believe any certificate.
    pub insecure: bool,
    /// The proxy on the way.
    pub proxy: Option<Uri>,
    /// Our certificate and its key, as in a kubeconfig.
    pub identity: Option<ClientIdentity>,
}

/// A client certificate and its key, each PEM in base64.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// What a client is for, and so how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Requests that are answered at once or not at all.
    Requests,
    /// Streams, in which nothing may be said for hours.
    Streams,
    /// Small questions.
    Probe,
}

impl Endpoint {
    /// For a client of this kind, without a token.
    pub(super) fn config(&self, patience: Patience) -> Config {
        let mut config = Config::new(self.url.clone());
        config.root_cert.clone_from(&self.ca);
        config.tls_server_name.clone_from(&self.server_name);
        config.accept_invalid_certs = self.insecure;
        config.proxy_url.clone_from(&self.proxy);
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = match patience {
            Patience::Requests => Some(ANSWER),
            Patience::Streams => None,
            Patience::Probe => Some(PROBE),
        };
        config.write_timeout = config.read_timeout;
        // Or the time that a connection was idle counts as time without an answer.
        config.reset_reader_on_write = true;
        if let Some(ClientIdentity { certificate, key }) = &self.identity {
            let pair = json!({ "client-certificate-data": certificate, "client-key-data": key });
            // These are two fields of it, so it is read.
            config.auth_info = serde_json::from_value(pair).unwrap_or_default();
        }
        config
    }
}

impl fmt::Debug for Endpoint {
    /// Without keys, and without what may be written before the `@` of a proxy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("host", &self.url.host())
            .field("proxy", &self.proxy.as_ref().and_then(Uri::host))
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}
