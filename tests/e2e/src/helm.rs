//! Helm, as a person uses it against one cluster of the sandbox.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use federlet_sandbox::{Cluster, builds::Binaries};
use tokio::process::Command;

/// Helm and the charts of this checkout.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    cluster: Cluster,
}

impl Helm {
    /// For this cluster.
    pub fn new(cluster: &Cluster) -> Result<Self> {
        Ok(Self { program: Binaries::new()?.helm()?, cluster: cluster.clone() })
    }

    /// Its words one by one; what it printed. An error is what it said.
    pub async fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .arg("--kubeconfig")
            .arg(self.cluster.admin_kubeconfig())
            // What a person has for their own clusters must not leak in.
            .env_remove("KUBECONFIG")
            .env_remove("HELM_NAMESPACE")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(400), command.output())
            .await
            .with_context(|| format!("`helm {}` does not end", words.join(" ")))??;
        if !output.status.success() {
            bail!("helm {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// The folder of a chart.
pub fn chart(name: &str) -> String {
    format!("{}/../../charts/{name}", env!("CARGO_MANIFEST_DIR"))
}
