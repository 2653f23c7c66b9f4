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
use crate::{client::brief, decide::Backoff};

/// Where every host publishes the CA of its client certificates.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const KEY: &str = "client-ca-file";

/// How often a file is looked at. Kubernetes swaps the files of a volume by a link, which no file watch sees well.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How often a host that does not answer is asked, before we go on and wait for its answer meanwhile.
const ATTEMPTS: u32 = 4;

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
    #[error("ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be read: {}", brief(.0))]
    Host(#[source] Box<kube::Error>),
}

impl ClientCaError {
    /// Whether the host understood who asks and says no.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Host(error) if matches!(&**error, kube::Error::Api(status) if status.is_forbidden()))
    }
}

/// The CA of the host's client certificates, as it is now.
#[derive(Clone)]
pub struct ClientCa(Arc<ArcSwap<Bundle>>);

#[derive(Default)]
struct Bundle {
    pem: Vec<u8>,
    /// None as long as nobody said which CA it is: then no certificate names anybody.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
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

    /// One that the host has still to publish. Until then it knows nobody.
    fn unknown() -> Self {
        Self(Arc::default())
    }

    /// Whether there is one already.
    pub fn is_known(&self) -> bool {
        self.0.load().verifier.is_some()
    }

    /// From where the host publishes it now or will do so; none if it is not ours to read.
    ///
    /// A host that was started a moment ago has not published it yet, and one that does not answer may have. So only a
    /// refusal is final. Whoever has this should [follow](Self::follow_host) it.
    pub async fn of_host(client: &Client) -> Option<Self> {
        for failures in 1..=ATTEMPTS {
            let error = match Self::from_host(client).await {
                Ok(Some(ca)) => return Some(ca),
                Ok(None) => {
                    tracing::warn!("the host publishes no client CA yet: client certificates name nobody");
                    return Some(Self::unknown());
                }
                Err(error) => error,
            };
            if error.is_refusal() {
                tracing::warn!(%error, "client certificates cannot be verified");
                return None;
            }
            tracing::warn!(%error, "the host's client CA is not known yet");
            tokio::time::sleep(Backoff::spread(Backoff::default().pause(failures, None))).await;
        }
        Some(Self::unknown())
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
        if let Err(error) = bundle.verifier.as_ref()?.verify_client_cert(leaf, intermediates, UnixTime::now())
        {
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
        Ok(Self { pem: pem.to_vec(), verifier: Some(verifier) })
    }
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::StatusCode;
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use serde_json::json;

    use super::*;
    use crate::fake_api::{failure, fake_api};

    fn authority() -> (String, Issuer<'static, KeyPair>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        let pem = params.self_signed(&key).unwrap().pem();
        (pem, Issuer::new(params, key))
    }

    fn client(change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "team-a");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        params
    }

    fn signed(params: &CertificateParams, issuer: &Issuer<'static, KeyPair>) -> Vec<CertificateDer<'static>> {
        vec![params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()]
    }

    #[test]
    fn a_certificate_of_the_ca_names_its_user_and_groups() {
        let (pem, issuer) = authority();
        let user =
            ClientCa::from_pem(pem.as_bytes()).unwrap().user(&signed(&client(|_| {}), &issuer)).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups),
            ("jane", vec!["team-a".to_owned(), "system:authenticated".into()])
        );
    }

    #[test]
    fn nobody_else_is_anybody() {
        let (pem, issuer) = authority();
        let (_, stranger) = authority();
        let ca = ClientCa::from_pem(pem.as_bytes()).unwrap();
        let user = |params: CertificateParams, issuer| ca.user(&signed(&params, issuer));
        assert_eq!(user(client(|_| {}), &stranger), None, "of another CA with the same name");
        let expired = client(|c| {
            c.not_before = rcgen::date_time_ymd(2020, 1, 1);
            c.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        assert_eq!(user(expired, &issuer), None, "expired");
        let early = client(|c| c.not_before = rcgen::date_time_ymd(2999, 1, 1));
        assert_eq!(user(early, &issuer), None, "not yet valid");
        let server = client(|c| c.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        assert_eq!(user(server, &issuer), None, "a server's");
        let nameless = client(|c| c.distinguished_name = rcgen::DistinguishedName::new());
        assert_eq!(user(nameless, &issuer), None, "without a name");
        assert_eq!(ca.user(&[]), None);
        assert_eq!(ca.user(&[CertificateDer::from(vec![1, 2, 3])]), None);
    }

    #[test]
    fn a_rotated_ca_counts_at_once_and_a_broken_one_never() {
        let ((old, old_issuer), (new, new_issuer)) = (authority(), authority());
        let ca = ClientCa::from_pem(old.as_bytes()).unwrap();
        let chain = signed(&client(|_| {}), &old_issuer);
        assert!(ca.user(&chain).is_some());
        ca.replace(b"not a certificate");
        ca.replace(b"");
        assert!(ca.user(&chain).is_some());
        ca.replace(new.as_bytes());
        assert!(ca.user(&chain).is_none());
        assert!(ca.user(&signed(&client(|_| {}), &new_issuer)).is_some());
    }

    fn published(pem: &str) -> serde_json::Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {KEY: pem},
               "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE, "resourceVersion": "2"}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_ca_that_the_host_publishes_later_counts_from_then_on() {
        let ((pem, issuer), jane) = (authority(), client(|_| {}));
        let there = Arc::new(AtomicBool::new(false));
        let now = there.clone();
        let (client, _) = fake_api(move |request| {
            match (request.contains("watch="), now.load(Ordering::SeqCst)) {
                (false, _) if !request.contains("fieldSelector") => failure(StatusCode::NOT_FOUND),
                (false, _) => (
                    StatusCode::OK,
                    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}),
                ),
                (true, true) => (StatusCode::OK, json!({"type": "ADDED", "object": published(&pem)})),
                (true, false) => failure(StatusCode::SERVICE_UNAVAILABLE),
            }
        });
        let ca = ClientCa::of_host(&client).await.unwrap();
        let chain = signed(&jane, &issuer);
        assert_eq!((ca.is_known(), ca.user(&chain)), (false, None));
        let stop = CancellationToken::new();
        let following = tokio::spawn(ca.clone().follow_host(client, stop.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        there.store(true, Ordering::SeqCst);
        while !ca.is_known() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(ca.user(&chain).unwrap().name, "jane");
        stop.cancel();
        following.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_refusal_is_final() {
        let (forbidden, asked) = fake_api(|_| failure(StatusCode::FORBIDDEN));
        assert!(ClientCa::of_host(&forbidden).await.is_none());
        assert_eq!(asked.take().len(), 1);

        let ((pem, _), answers) = (authority(), AtomicUsize::new(0));
        let (busy, _) = fake_api(move |_| match answers.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => failure(StatusCode::SERVICE_UNAVAILABLE),
            _ => (StatusCode::OK, published(&pem)),
        });
        assert!(ClientCa::of_host(&busy).await.unwrap().is_known());

        let (broken, _) = fake_api(|_| (StatusCode::OK, published("not a certificate")));
        assert!(!ClientCa::of_host(&broken).await.unwrap().is_known());
    }

    #[test]
    fn an_empty_bundle_is_no_ca() {
        assert!(ClientCa::from_pem(b"").is_err());
    }
}
