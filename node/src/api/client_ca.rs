use std::{fmt, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authn::User;

/// Where every host publishes the CA of its client certificates.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const KEY: &str = "client-ca-file";

/// How often a file is looked at. Kubernetes swaps the files of a volume by a link, which no file watch sees well.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Why there is no usable client CA.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// The bundle has no certificate that can be used.
    #[error("the client CA bundle is not usable: {0}")]
    Bundle(String),
    /// The file cannot be read.
    #[error("the client CA file cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// The ConfigMap cannot be read.
    #[error("ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be read: {0}")]
    Host(#[source] Box<kube::Error>),
}

/// The CA of the host's client certificates, as it is now.
#[derive(Clone)]
pub struct ClientCa(Arc<ArcSwap<Bundle>>);

struct Bundle {
    pem: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// From a PEM bundle.
    pub fn from_pem(pem: &[u8]) -> Result<Self, ClientCaError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(Bundle::new(pem)?))))
    }

    /// From a file.
    pub async fn from_file(path: &Path) -> Result<Self, ClientCaError> {
        Self::from_pem(&tokio::fs::read(path).await?)
    }

    /// From where the host publishes it; none if it publishes none.
    pub async fn from_host(client: &Client) -> Result<Option<Self>, ClientCaError> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let found = api.get_opt(CONFIG_MAP).await.map_err(|e| ClientCaError::Host(Box::new(e)))?;
        let pem = found.and_then(|mut map| map.data.as_mut()?.remove(KEY));
        pem.map(|pem| Self::from_pem(pem.as_bytes())).transpose()
    }

    /// Keeps it as the file says, until told to stop.
    pub async fn follow_file(self, path: std::path::PathBuf, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            match tokio::fs::read(&path).await {
                Ok(pem) => self.replace(&pem),
                Err(error) => tracing::warn!(%error, "cannot read the client CA; the one from before stays"),
            }
        }
    }

    /// Keeps it as the host says, until told to stop.
    pub async fn follow_host(self, client: Client, stop: CancellationToken) {
        let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
        let config = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
        let mut maps = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
        loop {
            let map = tokio::select! {
                () = stop.cancelled() => return,
                map = maps.next() => map,
            };
            match map {
                Some(Ok(map)) if map.name_any() == CONFIG_MAP => {
                    if let Some(pem) = map.data.as_ref().and_then(|data| data.get(KEY)) {
                        self.replace(pem.as_bytes());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => tracing::warn!(%error, "cannot watch the host's client CA, trying again"),
                None => return,
            }
        }
    }

    /// A bundle that is not usable replaces nothing.
    fn replace(&self, pem: &[u8]) {
        if self.0.load().pem == pem {
            return;
        }
        match Bundle::new(pem) {
            Ok(bundle) => {
                tracing::info!("the client CA changed");
                self.0.store(Arc::new(bundle));
            }
            Err(error) => {
                tracing::warn!(%error, "the new client CA is not usable; the one from before stays");
            }
        }
    }

    /// Whom a chain of certificates names, if this CA says so at this moment.
    pub(super) fn user(&self, chain: &[CertificateDer<'_>]) -> Option<User> {
        let (leaf, intermediates) = chain.split_first()?;
        let bundle = self.0.load();
        if let Err(error) = bundle.verifier.verify_client_cert(leaf, intermediates, UnixTime::now()) {
            tracing::debug!(%error, "a client certificate is not accepted");
            return None;
        }
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let subject = certificate.subject();
        let name =
            subject.iter_common_name().next()?.as_str().ok().filter(|name| !name.is_empty())?.to_owned();
        let groups = subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect();
        Some(User::from_certificate(name, groups))
    }
}

impl Bundle {
    fn new(pem: &[u8]) -> Result<Self, ClientCaError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| ClientCaError::Bundle(e.to_string()))?;
            // One that cannot be an anchor must not take the others with it.
            if let Err(error) = roots.add(certificate) {
                tracing::warn!(%error, "a certificate of the client CA bundle is left out");
            }
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
            .build()
            .map_err(|e| ClientCaError::Bundle(e.to_string()))?;
        Ok(Self { pem: pem.to_vec(), verifier })
    }
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa").finish_non_exhaustive()
    }
}
