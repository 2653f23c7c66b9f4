//! The CA of a cluster, as its administrator has it: for certificates that nobody would ask for.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use federlet_node::api::ServingCertificate;
use federlet_sandbox::Cluster;
use jiff::Timestamp;
use kube::config::AuthInfo;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in files that go with it.
pub(crate) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// As the credentials of a client.
    pub(crate) fn credentials(&self) -> AuthInfo {
        AuthInfo {
            client_certificate: Some(self.certificate().display().to_string()),
            client_key: Some(self.key().display().to_string()),
            ..AuthInfo::default()
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Authority {
    /// The one that signs for this cluster.
    pub(crate) fn of(cluster: &Cluster) -> Result<Self> {
        let files = cluster.certificates();
        let text = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("{}", path.display()));
        let key = KeyPair::from_pem(&text(&files.key("ca"))?)?;
        let pem = text(&files.certificate("ca"))?;
        Ok(Self { issuer: Issuer::from_ca_cert_pem(&pem, key)?, pem })
    }

    /// One that calls itself as every cluster's does and signs for nobody.
    pub(crate) fn stranger() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A client certificate of an administrator, good from one time to another, both in seconds from now.
    pub(crate) fn administrator(&self, from: i64, until: i64) -> Result<Files> {
        self.client("sandbox-admin", "system:masters", from, until)
    }

    /// A client certificate as a kubelet has it.
    pub(crate) fn node(&self, name: &str) -> Result<Files> {
        self.client(&format!("system:node:{name}"), "system:nodes", -60, 600)
    }

    pub(crate) fn client(&self, user: &str, group: &str, from: i64, until: i64) -> Result<Files> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, from, until)
    }

    /// A serving certificate for a node at this address, good for so long.
    pub(crate) fn kubelet(&self, address: IpAddr, from: i64, until: i64) -> Result<Files> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, from, until)
    }

    pub(crate) async fn serving(&self, address: IpAddr) -> Result<ServingCertificate> {
        let files = self.kubelet(address, -60, 86_400)?;
        Ok(ServingCertificate::from_files(&files.certificate(), &files.key()).await?)
    }

    fn sign(&self, mut params: CertificateParams, from: i64, until: i64) -> Result<Files> {
        let now = Timestamp::now().as_second();
        params.not_before =
            (std::time::UNIX_EPOCH + std::time::Duration::from_secs((now + from).try_into()?)).into();
        params.not_after =
            (std::time::UNIX_EPOCH + std::time::Duration::from_secs((now + until).try_into()?)).into();
        let key = KeyPair::generate()?;
        let unique = Timestamp::now().as_nanosecond();
        let folder = std::env::temp_dir().join(format!("federlet-e2e-{}-{unique}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let files = Files { folder };
        std::fs::write(files.certificate(), params.signed_by(&key, &self.issuer)?.pem())?;
        std::fs::write(files.key(), key.serialize_pem())?;
        Ok(files)
    }
}
