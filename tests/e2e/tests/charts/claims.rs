//! A claim whose data is in a member that is uninstalled.

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON, objects};
use federlet_provider::follow::claims::storage_class;
use federlet_sandbox::eventually;
use serde_json::json;

use crate::installed::Installed;

/// A claim of the host, and the volume that stands for it.
pub(crate) struct Claim {
    kubectl: Kubectl,
    class: String,
    volume: String,
}

/// Its name, and that of its copy in the member.
pub(crate) const NAME: &str = "data";

impl Claim {
    /// One as the host's scheduler leaves it when it has chosen the node, bound to its volume.
    pub(crate) async fn make(kubectl: &Kubectl, node: &str) -> Result<Self> {
        let class = format!("{node}-claims");
        objects::pipe(kubectl, &["apply", "-f", "-"], &storage_class(&class)).await?;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": NAME, "annotations": {"volume.kubernetes.io/selected-node": node}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        objects::create(kubectl, &claim).await?;
        let volume = eventually("the claim is bound", SOON, async || {
            let path = "jsonpath={.status.phase} {.spec.volumeName}";
            let found = kubectl.args(&["get", "pvc", NAME, "-o", path]).await?;
            Ok::<_, anyhow::Error>(found.strip_prefix("Bound ").with_context(|| found.clone())?.to_owned())
        })
        .await?;
        Ok(Self { kubectl: kubectl.clone(), class, volume })
    }

    /// The volume goes with its member: at once if nothing holds it, else with its claim. Nothing of it stays.
    pub(crate) async fn goes_with_its_member(self, installed: &Installed) -> Result<()> {
        let words = ["get", "pv", &self.volume, "--ignore-not-found", "-o"];
        let path = "jsonpath={.metadata.name} {.metadata.deletionTimestamp}";
        let found = installed.host.kubectl_output(&[&words[..], &[path]].concat()).await?;
        ensure!(found.trim() != self.volume, "volume {} stays", self.volume);
        self.kubectl.run(&format!("delete pvc {NAME} --timeout=60s")).await?;
        eventually("the volume is gone", 2 * SOON, async || {
            let found = installed.host.kubectl_output(&[&words[..], &["name"]].concat()).await?;
            ensure!(found.is_empty(), "{found}");
            Ok(())
        })
        .await?;
        installed.host.kubectl_output(&["delete", "storageclass", &self.class]).await.map(drop)
    }
}
