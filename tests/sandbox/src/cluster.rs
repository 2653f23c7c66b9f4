//! A running cluster of a sandbox, as tests and commands use it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::process::Command;

use crate::{
    Instance,
    builds::Binaries,
    certificates::Certificates,
    component, kubeconfig, network,
    plan::{ClusterPlan, Plan},
    resident,
    state::State,
};

/// One cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    instance: Instance,
    sandbox: Plan,
    plan: ClusterPlan,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// The cluster of that name in a running sandbox.
    pub fn open(instance: &Instance, state: &State, name: &str) -> Result<Self> {
        Ok(Self {
            instance: instance.clone(),
            sandbox: state.plan.clone(),
            plan: state.plan.cluster(name)?.clone(),
            kubeconfig: state.kubeconfig(instance, name),
        })
    }

    /// `host`, `member1`, …
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Its machines and versions.
    pub fn plan(&self) -> &ClusterPlan {
        &self.plan
    }

    /// A client that may do everything.
    pub async fn client(&self) -> Result<Client> {
        client_for(&self.instance, &self.plan).await
    }

    /// A kubeconfig of someone who may do everything.
    pub fn admin_kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// One line of JSON per request that its API server answered.
    pub fn audit_log(&self) -> PathBuf {
        self.instance.cluster_dir(&self.plan.name).join("audit.log")
    }

    /// The folder with its certificates and keys.
    pub fn certificates(&self) -> Certificates {
        certificates(&self.instance, &self.plan)
    }

    /// kubectl of the cluster's own version, as its administrator.
    pub fn kubectl(&self) -> Result<Command> {
        let program = Binaries::new()?.kubernetes(&self.plan.kubernetes, "kubectl")?;
        let mut command = Command::new(program);
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        // What a person set for their own clusters must not leak in.
        command.env_remove("KUBECONFIG");
        // It lives for a moment and leaves its garbage behind: half of its time would go into tidying up. Tests start
        // thousands.
        command.env("GOGC", "off").env("GOMEMLIMIT", "256MiB").env("GOMAXPROCS", "1");
        Ok(command)
    }

    /// Runs kubectl with these words and returns what it printed. One that waits for ever is ended with an error.
    pub async fn kubectl_output(&self, words: &[&str]) -> Result<String> {
        let patience = std::time::Duration::from_secs(300);
        tokio::time::timeout(patience, self.run_kubectl(words))
            .await
            .with_context(|| format!("`kubectl {}` does not end", words.join(" ")))?
    }

    async fn run_kubectl(&self, words: &[&str]) -> Result<String> {
        if resident::takes(&self.plan.kubernetes, words)
            && let Ok(program) = Binaries::new()?.resident_kubectl()
        {
            let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
            return resident::output(&program, &[&[kubeconfig.as_str()], words].concat()).await;
        }
        crate::shell::output(self.kubectl()?.args(words)).await
    }

    /// Cuts it off from every other cluster and from this machine.
    pub async fn partition(&self) -> Result<()> {
        network::partition(&self.instance, &self.sandbox, &self.plan.name).await
    }

    /// Connects it again.
    pub async fn heal(&self) -> Result<()> {
        network::heal(&self.instance, &self.sandbox, &self.plan.name).await
    }

    /// Cuts one of its machines off from all others.
    pub async fn partition_machine(&self, machine: &str) -> Result<()> {
        network::partition(&self.instance, &self.sandbox, machine).await
    }

    /// Connects it again.
    pub async fn heal_machine(&self, machine: &str) -> Result<()> {
        network::heal(&self.instance, &self.sandbox, machine).await
    }

    /// Stops one of its daemons.
    pub async fn stop(&self, component: &str) -> Result<()> {
        component::stop(&self.instance, &self.plan.name, component).await
    }

    /// Starts it again.
    pub async fn start(&self, component: &str) -> Result<()> {
        component::start_again(&self.instance, &self.plan.name, component).await
    }
}

/// The certificates of a cluster that was started before.
pub fn certificates(instance: &Instance, plan: &ClusterPlan) -> Certificates {
    Certificates::open(&instance.cluster_dir(&plan.name).join("pki"))
}

/// A client with the administrator's certificate.
pub async fn client_for(instance: &Instance, plan: &ClusterPlan) -> Result<Client> {
    let written = kubeconfig::for_client(plan, &certificates(instance, plan), "admin")?;
    let parsed: Kubeconfig = serde_json::from_value(written)?;
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("the kubeconfig of {} is unusable", plan.name))?;
    // A cluster that was cut off should be noticed, not waited for.
    config.connect_timeout = Some(std::time::Duration::from_secs(5));
    Ok(Client::try_from(config)?)
}
