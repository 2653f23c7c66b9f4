use std::{fmt, path::PathBuf, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    core::ObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate::{CertificateError, ServingCertificate, ServingNames};
use crate::decide::Backoff;

/// Signs serving certificates of kubelets on every host. Approval is somebody else's: a person's or a controller's.
const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// How long a request waits for approval before another is made, so that a forgotten one does not block for ever.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Gets serving certificates from the host and renews them.
pub struct CertificateRequests {
    api: Api<CertificateSigningRequest>,
    names: ServingNames,
    /// Where a certificate and its key survive a restart.
    directory: Option<PathBuf>,
    serving: ServingCertificate,
}

impl CertificateRequests {
    /// With a client that acts as the node whose certificate it asks for.
    pub fn new(client: Client, names: ServingNames, directory: Option<PathBuf>) -> Self {
        Self { api: Api::all(client), names, directory, serving: ServingCertificate::default() }
    }

    /// The certificate, as it is at any time.
    pub fn serving(&self) -> ServingCertificate {
        self.serving.clone()
    }

    /// Asks, and asks again well before each expiry, until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut renew = self.restore().await;
        let mut failures = 0;
        loop {
            if let Some(at) = renew.take() {
                let wait = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(wait) => {}
                }
            }
            let answer = tokio::select! {
                () = stop.cancelled() => return,
                answer = self.request() => answer,
            };
            match answer {
                Ok(at) => {
                    failures = 0;
                    renew = Some(at);
                }
                Err(error) => {
                    failures += 1;
                    let pause = Backoff::spread(Backoff::SLOW.pause(failures, None));
                    tracing::warn!(%error, "no new serving certificate, trying again in {pause:?}");
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// Asks once. Returns when to ask again.
    async fn request(&self) -> Result<Timestamp, CertificateError> {
        let key = KeyPair::generate()?;
        let request = self.names.params()?.serialize_request(&key)?.pem()?;
        let usages = ["digital signature", "server auth"].map(str::to_owned).to_vec();
        let request = CertificateSigningRequest {
            metadata: ObjectMeta {
                generate_name: Some(format!("federlet-{}-", self.names.node)),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: SIGNER.into(),
                usages: Some(usages),
                ..CertificateSigningRequestSpec::default()
            },
            ..CertificateSigningRequest::default()
        };
        let created = self.api.create(&PostParams::default(), &request).await;
        let name = created.map_err(|e| CertificateError::Host(Box::new(e)))?.name_any();
        tracing::info!(request = name, "asked for a serving certificate; it waits for approval");
        let certificate = tokio::time::timeout(PATIENCE, self.signed(&name)).await.map_err(|_| {
            CertificateError::Refused(format!("{name} was not approved within {PATIENCE:?}"))
        })??;
        let renew = renewal(&certificate)?;
        self.serving.set(&certificate, key.serialize_pem().as_bytes())?;
        tracing::info!(request = name, %renew, "have a new serving certificate");
        self.keep(&certificate, &key).await;
        Ok(renew)
    }

    async fn signed(&self, name: &str) -> Result<Vec<u8>, CertificateError> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut requests =
            std::pin::pin!(watcher(self.api.clone(), config).default_backoff().applied_objects());
        while let Some(request) = requests.next().await {
            let Ok(status) = request.map(|r| r.status.unwrap_or_default()) else {
                continue;
            };
            let refused = status.conditions.unwrap_or_default();
            if let Some(no) = refused.into_iter().find(|c| ["Denied", "Failed"].contains(&c.type_.as_str())) {
                return Err(CertificateError::Refused(format!("{name}: {}", no.message.unwrap_or(no.type_))));
            }
            if let Some(ByteString(certificate)) = status.certificate.filter(|c| !c.0.is_empty()) {
                return Ok(certificate);
            }
        }
        Err(CertificateError::Refused(format!("{name} can no longer be watched")))
    }

    fn file(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(format!("{}-serving.pem", self.names.node)))
    }

    /// Uses what an earlier process got, if it is still good for these names. Returns when to renew it.
    async fn restore(&self) -> Option<Timestamp> {
        let pem = tokio::fs::read(self.file()?).await.ok()?;
        let renew = renewal(&pem).ok().filter(|renew| *renew > Timestamp::now())?;
        if !covers(&pem, &self.names) || self.serving.set(&pem, &pem).is_err() {
            return None;
        }
        tracing::info!(%renew, "using the serving certificate from before");
        Some(renew)
    }

    async fn keep(&self, certificate: &[u8], key: &KeyPair) {
        let Some(file) = self.file() else { return };
        let together = [certificate, b"\n", key.serialize_pem().as_bytes()].concat();
        if let Err(error) = write_private(&file, &together).await {
            tracing::warn!(%error, file = %file.display(), "cannot keep the serving certificate for the next start");
        }
    }
}

impl fmt::Debug for CertificateRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateRequests").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Writes a file that only we can read, all of it or none.
async fn write_private(file: &std::path::Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        tokio::fs::create_dir_all(directory).await?;
    }
    let partial = file.with_extension("partial");
    let mut open = tokio::fs::OpenOptions::new();
    let mut opened = open.write(true).create(true).truncate(true).mode(0o600).open(&partial).await?;
    opened.write_all(content).await?;
    opened.sync_all().await?;
    tokio::fs::rename(&partial, file).await
}

fn leaf(pem: &[u8]) -> Result<CertificateDer<'static>, CertificateError> {
    let first = CertificateDer::pem_slice_iter(pem).next();
    let first = first.ok_or_else(|| CertificateError::Unusable("there is no certificate in it".into()))?;
    first.map_err(|e| CertificateError::Unusable(e.to_string()))
}

/// When four fifths of its life are over, give or take, so that a fleet does not renew at the same hour.
fn renewal(pem: &[u8]) -> Result<Timestamp, CertificateError> {
    let leaf = leaf(pem)?;
    let (_, certificate) =
        X509Certificate::from_der(&leaf).map_err(|e| CertificateError::Unusable(e.to_string()))?;
    let validity = certificate.validity();
    let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let life = until.saturating_sub(from).max(0);
    let percent = 75 + i64::from(fastrand::u8(0..10));
    Timestamp::from_second(from + life * percent / 100).map_err(|e| CertificateError::Unusable(e.to_string()))
}

/// Whether a kept certificate speaks for every address that we are reached under now.
fn covers(pem: &[u8], names: &ServingNames) -> bool {
    let Ok(leaf) = leaf(pem) else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(&leaf) else {
        return false;
    };
    let Ok(Some(san)) = certificate.subject_alternative_name() else {
        return false;
    };
    use x509_parser::extensions::GeneralName;
    let has_address = |address: &std::net::IpAddr| {
        san.value.general_names.iter().any(|name| match (name, address) {
            (GeneralName::IPAddress(bytes), std::net::IpAddr::V4(v4)) => *bytes == v4.octets(),
            (GeneralName::IPAddress(bytes), std::net::IpAddr::V6(v6)) => *bytes == v6.octets(),
            _ => false,
        })
    };
    let has_name = |wanted: &String| {
        san.value.general_names.iter().any(|name| matches!(name, GeneralName::DNSName(dns) if dns == wanted))
    };
    names.addresses.iter().all(has_address) && names.names.iter().all(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::NodeName;

    fn names(address: [u8; 4]) -> ServingNames {
        let node = NodeName::new("m1").unwrap();
        ServingNames { node, addresses: vec![address.into()], names: vec!["m1.example".into()] }
    }

    #[test]
    fn a_certificate_is_renewed_in_its_last_quarter() {
        let mut params = names([10, 0, 0, 1]).params().unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 11);
        let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let renew = renewal(pem.as_bytes()).unwrap();
        assert!(renew >= "2026-03-17T00:00:00Z".parse().unwrap(), "{renew}");
        assert!(renew <= "2026-03-27T00:00:00Z".parse().unwrap(), "{renew}");
        assert!(renewal(b"not a certificate").is_err());
    }

    #[test]
    fn a_kept_certificate_must_speak_for_the_address_of_today() {
        let pem =
            names([10, 0, 0, 1]).params().unwrap().self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        assert!(covers(pem.as_bytes(), &names([10, 0, 0, 1])));
        assert!(!covers(pem.as_bytes(), &names([10, 0, 0, 2])));
        assert!(!covers(b"", &names([10, 0, 0, 1])));
    }
}
