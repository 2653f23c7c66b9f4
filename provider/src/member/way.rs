use std::{collections::BTreeMap, fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Request, Uri, header::AUTHORIZATION};
use kube::client::Body;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{
    endpoint::{ClientIdentity, Endpoint},
    kubeconfig::{self, Plain},
};
use crate::api::ClusterSpec;

/// Where a Secret has the bearer token, as Karmada does it.
pub const TOKEN_KEY: &str = "token";
/// Where it has the authority of the API server.
pub const CA_KEY: &str = "caBundle";
/// Where it has a whole kubeconfig.
pub const KUBECONFIG_KEY: &str = "kubeconfig";

/// The way to a member: where it is, and as whom we come.
#[derive(Clone, Debug)]
pub struct Way {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Our bearer token, if we have one.
    pub token: Option<HeaderValue>,
}

/// Why a Cluster and its Secret lead nowhere. No message shows what is in the Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WayError {
    /// There is no address.
    #[error("spec.apiEndpoint is missing: say where the API server of the member is")]
    NoEndpoint,
    /// It is not an address, or not one we use.
    #[error("{0:?} is not an address such as https://203.0.113.7:6443")]
    Endpoint(String),
    /// The proxy is not one we can use.
    #[error("the proxy {0:?} is not an address that begins with http://, https:// or socks5://")]
    Proxy(String),
    /// Headers for the proxy are not sent.
    #[error("spec.proxyHeader is not supported")]
    ProxyHeader,
    /// The Secret opens nothing.
    #[error("the Secret has neither `token` nor `kubeconfig`")]
    NoCredentials,
    /// The token is not one.
    #[error("the token is empty or has characters that a token cannot have")]
    Token,
    /// The certificates cannot be read.
    #[error("{0} holds no certificate in PEM")]
    Ca(&'static str),
    /// The kubeconfig cannot be read.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// The kubeconfig would run a program, read a file, or act as somebody else.
    #[error(
        "the kubeconfig uses {0}: only what is written out in it is taken (token, client-certificate-data, \
         client-key-data, certificate-authority-data), never a program or a path"
    )]
    Refused(String),
}

impl Way {
    /// Reads what a Cluster and the keys of its Secret say. Keys of their own count more than a kubeconfig, and the
    /// Cluster more than both.
    pub fn read(spec: &ClusterSpec, keys: &BTreeMap<String, Vec<u8>>) -> Result<Self, WayError> {
        if !spec.proxy_header.is_empty() {
            return Err(WayError::ProxyHeader);
        }
        let said = |key: &str| keys.get(key).filter(|value| !value.is_empty());
        let config = said(KUBECONFIG_KEY).map(|text| kubeconfig::read(text)).transpose()?.unwrap_or_default();
        let Plain { server, ca, server_name, insecure, proxy, token, identity } = config;
        let token = match said(TOKEN_KEY) {
            Some(token) => Some(bearer(token)?),
            None => token.map(|token| bearer(token.as_bytes())).transpose()?,
        };
        let identity = identity.map(|(certificate, key)| ClientIdentity { certificate, key });
        if token.is_none() && identity.is_none() {
            return Err(WayError::NoCredentials);
        }
        let text = |own: &str, other: Option<String>| {
            Some(own.to_owned()).filter(|own| !own.is_empty()).or(other.filter(|other| !other.is_empty()))
        };
        let url = text(&spec.api_endpoint, server).ok_or(WayError::NoEndpoint)?;
        let endpoint = Endpoint {
            url: address(&url)?,
            ca: match (said(CA_KEY), ca) {
                (Some(pem), _) => Some(certificates(pem).ok_or(WayError::Ca(CA_KEY))?),
                (None, Some(base64)) => Some(
                    decode(&base64)
                        .and_then(|pem| certificates(&pem))
                        .ok_or(WayError::Ca("certificate-authority-data"))?,
                ),
                (None, None) => None,
            },
            server_name,
            insecure: spec.insecure_skip_tls_verification || insecure,
            proxy: text(&spec.proxy_url, proxy).map(|proxy| proxy_address(&proxy)).transpose()?,
            identity,
        };
        Ok(Self { endpoint, token })
    }
}

/// What goes into the header of each request.
pub(super) fn bearer(token: &[u8]) -> Result<HeaderValue, WayError> {
    let token = std::str::from_utf8(token).map_err(|_| WayError::Token)?.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(WayError::Token);
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| WayError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

fn address(text: &str) -> Result<Uri, WayError> {
    let wrong = || WayError::Endpoint(shown(text));
    let uri: Uri = text.trim().parse().map_err(|_| wrong())?;
    // Without TLS anybody on the way reads the token.
    let good = uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty());
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if good && !has_user { Ok(uri) } else { Err(wrong()) }
}

fn proxy_address(text: &str) -> Result<Uri, WayError> {
    let wrong = || WayError::Proxy(shown(text));
    let uri: Uri = text.trim().parse().map_err(|_| wrong())?;
    let good = matches!(uri.scheme_str(), Some("http" | "https" | "socks5"));
    if good && uri.host().is_some_and(|host| !host.is_empty()) { Ok(uri) } else { Err(wrong()) }
}

/// What may be shown of an address: a password stands before the `@`.
fn shown(text: &str) -> String {
    let after = text.rsplit_once('@').map_or(text, |(_, after)| after);
    after.chars().take(120).collect()
}

fn certificates(pem: &[u8]) -> Option<Vec<Vec<u8>>> {
    let all: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect::<Result<_, _>>()
        .ok()?;
    (!all.is_empty()).then_some(all)
}

/// Base64 as Kubernetes writes bytes in JSON.
fn decode(base64: &str) -> Option<Vec<u8>> {
    let read: k8s_openapi::ByteString = serde_json::from_value(base64.trim().into()).ok()?;
    Some(read.0)
}

/// A bearer token that many clients share. Each request takes it as it is then.
#[derive(Clone, Default)]
pub struct Token(Arc<ArcSwapOption<HeaderValue>>);

impl Token {
    /// From now on it is this one.
    pub fn set(&self, value: Option<HeaderValue>) {
        self.0.store(value.map(Arc::new));
    }

    pub(super) fn sign(&self, mut request: Request<Body>) -> Request<Body> {
        if let Some(value) = &*self.0.load() {
            request.headers_mut().insert(AUTHORIZATION, HeaderValue::clone(value));
        }
        request
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
