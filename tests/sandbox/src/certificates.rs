//! The keys and certificates of one cluster, as kubeadm would make them.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::plan::{ClusterPlan, KUBERNETES_SERVICE_IP};

/// A folder of PEM files, each certificate `NAME.crt` beside its key `NAME.key`.
#[derive(Debug, Clone)]
pub struct Certificates {
    dir: PathBuf,
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file.write_all(text.as_bytes())?)
}

/// A certificate and the key that signs with it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Certificates {
    /// Makes all that a cluster needs.
    pub fn create(dir: &Path, cluster: &ClusterPlan) -> Result<Self> {
        let made = Self { dir: dir.to_owned() };
        fs::create_dir_all(dir)?;
        let ca = made.authority("ca", "kubernetes-ca")?;
        let front_proxy = made.authority("front-proxy-ca", "kubernetes-front-proxy-ca")?;
        made.api_server(&ca, cluster)?;
        made.client(&ca, "admin", "sandbox-admin", Some("system:masters"))?;
        made.client(&ca, "apiserver-kubelet-client", "kube-apiserver-kubelet-client", None)?;
        made.client(&ca, "controller-manager", "system:kube-controller-manager", None)?;
        made.client(&ca, "scheduler", "system:kube-scheduler", None)?;
        made.client(&ca, "kube-proxy", "system:kube-proxy", None)?;
        made.client(&front_proxy, "front-proxy-client", "front-proxy-client", None)?;
        for (machine, _) in cluster.nodes() {
            let user = format!("system:node:{}", machine.name);
            made.client(&ca, &format!("kubelet-{}", machine.name), &user, Some("system:nodes"))?;
            let names = vec![machine.name.clone(), machine.address.to_string()];
            made.server(
                &ca,
                &format!("kubelet-{}-serving", machine.name),
                &user,
                Some("system:nodes"),
                names,
            )?;
        }
        let tokens = KeyPair::generate()?;
        made.write("service-accounts.key", &tokens.serialize_pem())?;
        made.write("service-accounts.pub", &tokens.public_key_pem())?;
        Ok(made)
    }

    /// Those of a cluster that exists.
    pub fn open(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Path of a certificate.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.crt"))
    }

    /// Path of a key.
    pub fn key(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.key"))
    }

    /// Path of any file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Contents of a file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn authority(&self, name: &str, common_name: &str) -> Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        self.write(&format!("{name}.crt"), &pem)?;
        self.write(&format!("{name}.key"), &key.serialize_pem())?;
        Ok(Authority { issuer: Issuer::new(params, key), pem })
    }

    fn api_server(&self, ca: &Authority, cluster: &ClusterPlan) -> Result<()> {
        let service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned);
        let mut names = service.to_vec();
        names.push("kubernetes.default.svc.cluster.local".to_owned());
        names.extend(["localhost", "127.0.0.1", KUBERNETES_SERVICE_IP].map(str::to_owned));
        names.extend([cluster.name.clone(), cluster.control_plane().address.to_string()]);
        self.server(ca, "apiserver", "kube-apiserver", None, names)
    }

    fn client(&self, ca: &Authority, name: &str, user: &str, group: Option<&str>) -> Result<()> {
        self.leaf(ca, name, user, group, ExtendedKeyUsagePurpose::ClientAuth, Vec::new())
    }

    fn server(
        &self,
        ca: &Authority,
        name: &str,
        user: &str,
        group: Option<&str>,
        names: Vec<String>,
    ) -> Result<()> {
        self.leaf(ca, name, user, group, ExtendedKeyUsagePurpose::ServerAuth, names)
    }

    fn leaf(
        &self,
        ca: &Authority,
        name: &str,
        user: &str,
        group: Option<&str>,
        usage: ExtendedKeyUsagePurpose,
        names: Vec<String>,
    ) -> Result<()> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &ca.issuer)?;
        self.write(&format!("{name}.crt"), &format!("{}{}", certificate.pem(), ca.pem))?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        write_private(&self.file(name), text)
    }
}
