//! One member in a process of its own: `federlet node --provider cluster`.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    SOON,
    here::{address_towards, program},
};
use federlet_sandbox::eventually;
use serde_json::json;
use tokio::process::Command;

use crate::ground::{on_ground, pod};

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_a_file_describes_is_a_node() -> Result<()> {
    on_ground("alone", async |ground| {
        let folder = std::env::temp_dir().join(format!("federlet-e2e-alone-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("credentials"))?;
        std::fs::copy(ground.member("member1")?.admin_kubeconfig(), folder.join("credentials/kubeconfig"))?;
        let described = json!({
            "credentials": folder.join("credentials"), "labels": {"env": "prod"},
            "spec": {"region": "north", "taints": [{"key": "team", "effect": "NoSchedule"}]},
        });
        std::fs::write(folder.join("member.yaml"), described.to_string())?;
        let address = address_towards(&ground.host).await?.to_string();
        let log = std::fs::File::create(folder.join("log"))?;
        let mut child = Command::new(program().await?)
            .args(["node", "--nodename", "j-alone", "--provider", "cluster", "--tls-self-signed"])
            .args(["--provider-config".as_ref(), folder.join("member.yaml").as_os_str()])
            .args(["--kubeconfig".as_ref(), ground.host.admin_kubeconfig().as_os_str()])
            .args(["--address", &address, "--port", "10399", "--metrics-addr", ""])
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let played = async {
            eventually("the node is Ready and has its labels and taints", SOON, async || {
                ground.is_ready("j-alone").await?;
                let labels = ground.field("node/j-alone", ".metadata.labels").await?;
                ensure!(labels.contains("\"env\":\"prod\"") && labels.contains("north"), "{labels}");
                let taints = ground.field("node/j-alone", ".spec.taints[*].key").await?;
                ensure!(taints == "virtual-kubelet.io/provider team", "{taints}");
                Ok(())
            })
            .await?;
            ground
                .sandbox
                .in_namespace("alone", async |space| {
                    let kubectl = ground.kubectl(&space.namespace);
                    let mut web = pod("web", "j-alone");
                    web["metadata"]["namespace"] = space.namespace.clone().into();
                    ground.apply(&web).await?;
                    kubectl.run("wait pod/web --for=condition=Ready --timeout=60s").await?;
                    kubectl.run("delete pod web --timeout=60s").await?;
                    Ok(())
                })
                .await
        }
        .await
        .with_context(|| std::fs::read_to_string(folder.join("log")).unwrap_or_default());
        ground.host.kubectl_output(&["annotate", "node", "j-alone", "federlet.io/leaving=true"]).await?;
        child.kill().await?;
        ground.host.kubectl_output(&["delete", "node", "j-alone"]).await?;
        std::fs::remove_dir_all(&folder)?;
        played
    })
    .await
}
