use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwapOption;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::client_ca::LOOK_EVERY;
use crate::{client::brief, contract::NodeName};

/// Why there is no usable serving certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The certificate or the key is not usable, or they do not belong together.
    #[error("the serving certificate is not usable: {0}")]
    Unusable(String),
    /// No key or request could be made.
    #[error("cannot make a key or certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The host did not sign.
    #[error("cannot request a serving certificate: {}", brief(.0))]
    Host(#[source] Box<kube::Error>),
    /// Whoever decides said no.
    #[error("the request for a serving certificate was refused: {0}")]
    Refused(String),
}

/// For whom a serving certificate speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingNames {
    /// The node in whose name it is asked for.
    pub node: NodeName,
    /// The addresses under which it is reached.
    pub addresses: Vec<IpAddr>,
    /// And the DNS names.
    pub names: Vec<String>,
}

impl ServingNames {
    /// The subject that the signer `kubernetes.io/kubelet-serving` demands, and the names.
    pub(super) fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let mut names = self.names.clone();
        if names.is_empty() && self.addresses.is_empty() {
            names.push(self.node.to_string());
        }
        let mut params = CertificateParams::new(names)?;
        params.subject_alt_names.extend(self.addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{}", self.node));
        Ok(params)
    }
}

/// The certificate with which a node answers, as it is now. Clones are the same one. While there is none, handshakes fail.
#[derive(Clone, Default)]
pub struct ServingCertificate(Arc<ArcSwapOption<CertifiedKey>>);

impl ServingCertificate {
    /// From files, which are looked at again with [`follow_files`](Self::follow_files).
    pub async fn from_files(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let serving = Self::default();
        serving.set(&read(certificate).await?, &read(key).await?)?;
        Ok(serving)
    }

    /// One that nobody signed. API servers that verify kubelets refuse it, so it is a choice that someone makes.
    pub fn self_signed(names: &ServingNames) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let certificate = names.params()?.self_signed(&key)?;
        let serving = Self::default();
        serving.set(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())?;
        Ok(serving)
    }

    /// Keeps it as the files say, until told to stop.
    pub async fn follow_files(self, certificate: PathBuf, key: PathBuf, stop: CancellationToken) {
        let mut known = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let (Ok(certificate), Ok(key)) = (read(&certificate).await, read(&key).await) else {
                continue;
            };
            if known.as_ref() == Some(&(certificate.clone(), key.clone())) {
                continue;
            }
            // Between the writing of the one file and of the other they do not match; the next look finds both.
            match self.set(&certificate, &key) {
                Ok(()) => known = Some((certificate, key)),
                Err(error) => tracing::warn!(%error, "the new serving certificate is not used yet"),
            }
        }
    }

    /// Serves with these from now on, both in PEM. What is not usable changes nothing.
    pub fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        let unusable = |what: &dyn fmt::Display| CertificateError::Unusable(what.to_string());
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|e| unusable(&e))?;
        if chain.is_empty() {
            return Err(unusable(&"there is no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| unusable(&e))?;
        let key = aws_lc_rs::sign::any_supported_type(&key).map_err(|e| unusable(&e))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|e| unusable(&e))?;
        self.0.store(Some(Arc::new(certified)));
        Ok(())
    }

    /// How a server that asks nobody for a certificate speaks TLS with this one.
    pub fn acceptor(&self) -> Result<TlsAcceptor, CertificateError> {
        let config = super::tls::plain_config(Arc::new(self.clone()));
        let config = config.map_err(|error| CertificateError::Unusable(error.to_string()))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    pub(super) fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate").field("present", &self.0.load().is_some()).finish()
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    tokio::fs::read(path).await.map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    fn names() -> ServingNames {
        ServingNames {
            node: NodeName::new("m1").unwrap(),
            addresses: vec![[10, 0, 0, 1].into()],
            names: vec![],
        }
    }

    #[test]
    fn it_has_the_subject_that_the_signer_demands() {
        let serving = ServingCertificate::self_signed(&names()).unwrap();
        let certified = serving.current().unwrap();
        let (_, certificate) = X509Certificate::from_der(&certified.cert[0]).unwrap();
        assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:m1");
        let san = certificate.subject_alternative_name().unwrap().unwrap();
        assert_eq!(san.value.general_names.len(), 1);
    }

    #[test]
    fn a_key_that_does_not_belong_to_it_replaces_nothing() {
        let serving = ServingCertificate::self_signed(&names()).unwrap();
        let before = serving.current();
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let certificate = names().params().unwrap().self_signed(&one).unwrap().pem();
        for (certificate, key) in [
            (certificate.as_str(), other.serialize_pem()),
            ("", one.serialize_pem()),
            (&certificate, "x".into()),
        ] {
            assert!(serving.set(certificate.as_bytes(), key.as_bytes()).is_err());
            assert!(Arc::ptr_eq(before.as_ref().unwrap(), serving.current().as_ref().unwrap()));
        }
    }
}
