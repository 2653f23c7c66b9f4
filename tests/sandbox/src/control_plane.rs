//! etcd, API server, controller-manager and scheduler of one cluster.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};

use crate::{
    builds::Binaries,
    certificates::Certificates,
    component::{self, Component, Files},
    kubeconfig,
    machine::Machine,
    plan::{ClusterPlan, SERVICE_CIDR},
    progress::Step,
};

/// An API server needs 5 s on an idle machine; several start at once on two cores.
const API_SERVER_PATIENCE: Duration = Duration::from_secs(120);

/// Starts the four daemons. The last two must wait: an API server that is not ready refuses them, and they end.
pub async fn start(
    cluster: &ClusterPlan,
    machine: &Machine,
    certificates: &Certificates,
    binaries: &Binaries,
    step: &Step,
) -> Result<()> {
    let control_plane =
        ControlPlane { cluster, certificates, dir: machine.instance().cluster_dir(&cluster.name) };
    step.say("etcd");
    let run = async |role: &str, program: PathBuf, args: Vec<String>| {
        let component = Component { id: role.to_owned(), machine: machine.name().to_owned(), program, args };
        component.start(machine, &cluster.name).await
    };
    run("etcd", binaries.etcd()?, control_plane.etcd()).await?;
    step.say("API server");
    let version = cluster.kubernetes.as_str();
    fs::write(control_plane.dir.join("audit-policy.yaml"), AUDIT_POLICY)?;
    run("kube-apiserver", binaries.kubernetes(version, "kube-apiserver")?, control_plane.api_server())
        .await?;
    wait_ready(machine, cluster).await?;
    step.say("controllers");
    for (id, role) in [("controller-manager", "kube-controller-manager"), ("scheduler", "kube-scheduler")] {
        let kubeconfig = kubeconfig::for_client(cluster, certificates, id)?;
        kubeconfig::write(&control_plane.dir.join(format!("{id}.kubeconfig")), &kubeconfig)?;
        let args =
            if id == "scheduler" { control_plane.scheduler() } else { control_plane.controller_manager() };
        run(role, binaries.kubernetes(version, role)?, args).await?;
    }
    Ok(())
}

/// Asks the API server itself, and gives up at once when it has ended.
async fn wait_ready(machine: &Machine, cluster: &ClusterPlan) -> Result<()> {
    let client = crate::cluster::client_for(machine.instance(), cluster).await?;
    let deadline = tokio::time::Instant::now() + API_SERVER_PATIENCE;
    loop {
        let request = http_get("/readyz")?;
        let last = match tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        component::check_all_run(machine.instance(), &cluster.name)?;
        if tokio::time::Instant::now() > deadline {
            let files = Files::new(machine.instance(), &cluster.name, "kube-apiserver");
            bail!(
                "the API server of {} is not ready after {} s ({last}). Its last lines, from {}:\n{}",
                cluster.name,
                API_SERVER_PATIENCE.as_secs(),
                files.log.display(),
                files.log_tail()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).context("cannot ask the API server")
}

struct ControlPlane<'a> {
    cluster: &'a ClusterPlan,
    certificates: &'a Certificates,
    dir: PathBuf,
}

impl ControlPlane<'_> {
    /// Only its own machine reaches it: it listens on that machine's loopback.
    fn etcd(&self) -> Vec<String> {
        vec![
            format!("--name={}", self.cluster.name),
            format!("--data-dir={}", self.dir.join("etcd").display()),
            "--listen-client-urls=http://127.0.0.1:2379".into(),
            "--advertise-client-urls=http://127.0.0.1:2379".into(),
            "--listen-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
            format!("--initial-cluster={}=http://127.0.0.1:2380", self.cluster.name),
            // A sandbox does not outlive its machine, so nothing is gained by waiting for the disk.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ]
    }

    fn api_server(&self) -> Vec<String> {
        let crt = |name| self.certificates.certificate(name).display().to_string();
        let key = |name| self.certificates.key(name).display().to_string();
        let file = |name| self.certificates.file(name).display().to_string();
        vec![
            format!("--advertise-address={}", self.cluster.control_plane().address),
            "--secure-port=6443".into(),
            "--etcd-servers=http://127.0.0.1:2379".into(),
            "--allow-privileged=true".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--enable-bootstrap-token-auth=true".into(),
            format!("--service-cluster-ip-range={SERVICE_CIDR}"),
            format!("--client-ca-file={}", crt("ca")),
            format!("--tls-cert-file={}", crt("apiserver")),
            format!("--tls-private-key-file={}", key("apiserver")),
            format!("--kubelet-client-certificate={}", crt("apiserver-kubelet-client")),
            format!("--kubelet-client-key={}", key("apiserver-kubelet-client")),
            // A kubelet, ours included, must show a certificate of the cluster's own authority.
            format!("--kubelet-certificate-authority={}", crt("ca")),
            "--kubelet-preferred-address-types=InternalIP,Hostname".into(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            format!("--service-account-key-file={}", file("service-accounts.pub")),
            format!("--service-account-signing-key-file={}", key("service-accounts")),
            format!("--requestheader-client-ca-file={}", crt("front-proxy-ca")),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            format!("--proxy-client-cert-file={}", crt("front-proxy-client")),
            format!("--proxy-client-key-file={}", key("front-proxy-client")),
            format!("--audit-policy-file={}", self.dir.join("audit-policy.yaml").display()),
            format!("--audit-log-path={}", self.dir.join("audit.log").display()),
            "--audit-log-maxsize=200".into(),
            "--audit-log-maxbackup=2".into(),
            "--profiling=false".into(),
        ]
    }

    fn controller_manager(&self) -> Vec<String> {
        let crt = |name| self.certificates.certificate(name).display().to_string();
        let key = |name| self.certificates.key(name).display().to_string();
        let mut args = self.as_client("controller-manager");
        args.extend([
            "--controllers=*,bootstrapsigner,tokencleaner".into(),
            "--use-service-account-credentials=true".into(),
            format!("--root-ca-file={}", crt("ca")),
            format!("--service-account-private-key-file={}", key("service-accounts")),
            format!("--cluster-signing-cert-file={}", crt("ca")),
            format!("--cluster-signing-key-file={}", key("ca")),
            format!("--service-cluster-ip-range={SERVICE_CIDR}"),
        ]);
        args
    }

    fn scheduler(&self) -> Vec<String> {
        self.as_client("scheduler")
    }

    fn as_client(&self, id: &str) -> Vec<String> {
        let kubeconfig = self.dir.join(format!("{id}.kubeconfig")).display().to_string();
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            // There is one of each, so nobody needs to be elected.
            "--leader-elect=false".into(),
            // The defaults (20 and 50 requests a second) would be what every measurement measures.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=1000".into(),
            "--profiling=false".into(),
        ]
    }
}

/// One line per finished request, without bodies: tests count and attribute writes by it.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ['/readyz*', '/livez*', '/healthz*', '/version', '/openapi/*']
- level: Metadata
";
