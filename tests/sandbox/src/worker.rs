//! A real node: containerd, kubelet and kube-proxy on one machine.

use std::{fs, net::Ipv4Addr, path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{
    builds::Binaries,
    certificates::Certificates,
    cgroups,
    component::{Component, Files},
    kubeconfig,
    machine::Machine,
    plan::{ClusterPlan, DNS_SERVICE_IP, MachinePlan, NodePlan, POD_CIDR},
    shell,
};

/// Where Debian's package puts the plugins.
pub const CNI_PLUGINS: &str = "/usr/lib/cni";

/// The image that holds a pod's namespaces.
pub const PAUSE_IMAGE: &str = "registry.federlet.local/pause:1";

/// Everything that the parts of one node have in common.
#[derive(Debug)]
pub struct Worker<'a> {
    /// Its cluster.
    pub cluster: &'a ClusterPlan,
    /// Its machine's plan.
    pub plan: &'a MachinePlan,
    /// Its machine.
    pub machine: &'a Machine,
    /// Its cluster's.
    pub certificates: &'a Certificates,
    /// What there is to run.
    pub binaries: &'a Binaries,
}

impl Worker<'_> {
    /// Starts containerd and the registry that it pulls from.
    pub async fn start_containerd(&self, sandbox: &Path, images: &Path) -> Result<()> {
        let Some(node) = &self.plan.node else {
            return Ok(());
        };
        let dir = self.machine.dir();
        fs::create_dir_all(dir.join("cni"))?;
        fs::write(dir.join("cni/10-pods.conflist"), serde_json::to_string_pretty(&pod_network(node))?)?;
        write_registry_mirror(&dir)?;
        fs::write(dir.join("containerd.toml"), containerd_config(&dir))?;
        let containerd = shell::which("containerd").context("containerd is not installed")?;
        let config = dir.join("containerd.toml").display().to_string();
        self.start("containerd", containerd, vec!["--config".into(), config]).await?;
        let args = vec!["registry".into(), images.display().to_string()];
        self.start("registry", sandbox.to_owned(), args).await?;
        self.wait_for_containerd().await
    }

    /// Starts the kubelet; containerd must be there.
    pub async fn start_kubelet(&self) -> Result<()> {
        let dir = self.machine.dir();
        let name = &self.plan.name;
        let client = kubeconfig::for_client(self.cluster, self.certificates, &format!("kubelet-{name}"))?;
        kubeconfig::write(&dir.join("kubelet.kubeconfig"), &client)?;
        fs::write(dir.join("kubelet.json"), serde_json::to_string_pretty(&self.kubelet_config())?)?;
        let args = vec![
            format!("--config={}", dir.join("kubelet.json").display()),
            format!("--kubeconfig={}", dir.join("kubelet.kubeconfig").display()),
            format!("--hostname-override={name}"),
            format!("--node-ip={}", self.plan.address),
        ];
        self.start("kubelet", self.binaries.kubernetes(&self.cluster.kubernetes, "kubelet")?, args).await
    }

    /// Starts kube-proxy. A control plane without a kubelet has it too, so that its API server reaches Services.
    pub async fn start_kube_proxy(&self) -> Result<()> {
        let dir = self.machine.dir();
        let client = kubeconfig::for_client(self.cluster, self.certificates, "kube-proxy")?;
        kubeconfig::write(&dir.join("kube-proxy.kubeconfig"), &client)?;
        let config =
            kube_proxy_config(&dir.join("kube-proxy.kubeconfig"), &self.plan.name, self.plan.address);
        fs::write(dir.join("kube-proxy.json"), serde_json::to_string_pretty(&config)?)?;
        let args = vec![format!("--config={}", dir.join("kube-proxy.json").display())];
        self.start("kube-proxy", self.binaries.kubernetes(&self.cluster.kubernetes, "kube-proxy")?, args)
            .await
    }

    /// The name of one of this node's components.
    pub fn component(&self, role: &str) -> String {
        Component::id(role, &self.plan.name, self.cluster.machines.len() > 1)
    }

    async fn start(&self, role: &str, program: std::path::PathBuf, args: Vec<String>) -> Result<()> {
        let component =
            Component { id: self.component(role), machine: self.plan.name.clone(), program, args };
        component.start(self.machine, &self.cluster.name).await
    }

    async fn wait_for_containerd(&self) -> Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let mut command = self.machine.command("ctr");
            command.args(["--connect-timeout=2s", "version"]);
            match shell::output(&mut command).await {
                Ok(_) => return Ok(()),
                Err(_) if tokio::time::Instant::now() < deadline => {}
                Err(error) => {
                    let files = Files::new(
                        self.machine.instance(),
                        &self.cluster.name,
                        &self.component("containerd"),
                    );
                    bail!(
                        "containerd of {} does not answer ({error}). Its last lines, from {}:\n{}",
                        self.plan.name,
                        files.log.display(),
                        files.log_tail()
                    );
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn kubelet_config(&self) -> Value {
        let path = |path: std::path::PathBuf| path.display().to_string();
        let serving = format!("kubelet-{}-serving", self.plan.name);
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true },
                "x509": { "clientCAFile": path(self.certificates.certificate("ca")) },
            },
            "authorization": { "mode": "Webhook" },
            "tlsCertFile": path(self.certificates.certificate(&serving)),
            "tlsPrivateKeyFile": path(self.certificates.key(&serving)),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "clusterDNS": [DNS_SERVICE_IP],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            // Works alike on machines with either version of cgroups, and without rights over systemd's tree.
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroups::path(self.machine.instance(), &self.plan.name),
            // In a cgroup of its own a pod's resources can change in place.
            "cgroupsPerQOS": cgroups::suits_pods(self.machine.instance(), &self.plan.name),
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "oomScoreAdj": 0,
            "maxPods": 250,
            "serializeImagePulls": false,
            // The disk is shared with everything else here: its fullness is no reason to evict a test's pod.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
                "imagefs.inodesFree": "0%",
            },
        })
    }
}

/// Loads a docker or OCI archive into a node.
pub async fn import_image(machine: &Machine, archive: &Path) -> Result<()> {
    let mut command = machine.command("ctr");
    command.args(["--namespace=k8s.io", "images", "import"]).arg(archive);
    shell::output(&mut command)
        .await
        .with_context(|| format!("cannot load {} into {}", archive.display(), machine.name()))?;
    Ok(())
}

/// Point-to-point links rather than a bridge: then replies from a Service on the same node pass the connection
/// tracker without help from the kernel's bridge filter.
fn pod_network(node: &NodePlan) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": node.pod_cidr }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

fn containerd_config(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without the right to lower a score, asking for it would fail every container.
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{dir}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "{dir}/registries"
"#
    )
}

/// Every registry of the world is this machine's own, so `image: nginx` is pulled as anywhere, from here.
fn write_registry_mirror(dir: &Path) -> Result<()> {
    let all = dir.join("registries/_default");
    fs::create_dir_all(&all)?;
    let address = crate::registry::ADDRESS;
    fs::write(
        all.join("hosts.toml"),
        format!(
            "server = \"http://{address}\"\n[host.\"http://{address}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
        ),
    )?;
    Ok(())
}

fn kube_proxy_config(kubeconfig: &Path, node: &str, address: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig.display().to_string() },
        "bindAddress": address.to_string(),
        "hostnameOverride": node,
        "clusterCIDR": POD_CIDR,
        "mode": "iptables",
        "oomScoreAdj": 0,
        // Limits on connection tracking are the whole computer's, not a sandbox's to set.
        "conntrack": { "maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
    })
}
