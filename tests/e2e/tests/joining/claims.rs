//! Claims that wait for a volume in a member that will not have them: the host's scheduler chooses again.

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::eventually;

use crate::{
    ground::{Ground, on_ground},
    sharing::{NODE, claim, clean, namespace, open, storage},
};

/// The scheduler's choice, as it writes it on a claim.
const CHOICE: &str = "volume.kubernetes.io/selected-node";

/// Which node a claim waits for, and who is to make its volume.
async fn waits_for(kubectl: &Kubectl, name: &str) -> Result<String> {
    let path = "jsonpath={.metadata.annotations.volume\\.kubernetes\\.io/selected-node} \
                {.metadata.annotations.volume\\.kubernetes\\.io/storage-provisioner}";
    kubectl.args(&["get", "pvc", name, "-o", path]).await
}

async fn goes_back(ground: &Ground, name: &str, claim: &str) -> Result<()> {
    let kubectl = ground.kubectl(name);
    eventually("the claim waits for no node", SOON, async || {
        let waits = waits_for(&kubectl, claim).await?;
        ensure!(waits == " member.federlet.io", "{waits}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_the_member_refuses_goes_back_to_the_scheduler() -> Result<()> {
    on_ground("refuses", async |ground| {
        let member = ground.member("member1")?;
        let name = "j-refuses";
        ground.join(NODE, "member1", &[]).await?;
        storage(ground).await?;
        let played = async {
            let kubectl = open(ground, name).await?;
            let there = Kubectl::new(member.clone(), name);
            there.run("create quota none --hard=persistentvolumeclaims=0").await?;
            ground.apply(&claim(name, "data")).await?;
            goes_back(ground, name, "data").await?;
            eventually("the claim says why", SOON, async || {
                let fields = "involvedObject.name=data,reason=ProvisioningFailed";
                let path = "jsonpath={.items[*].message}";
                let said = kubectl.args(&["get", "events", "--field-selector", fields, "-o", path]).await?;
                ensure!(said.contains("quota"), "{said}");
                Ok(())
            })
            .await?;
            // As a scheduler does that knows no other node.
            let choose = format!("{CHOICE}={NODE}");
            let choose = ["annotate", "pvc", "data", "--overwrite", &*choose];
            kubectl.args(&choose).await?;
            goes_back(ground, name, "data").await?;
            there.run("delete quota none").await?;
            kubectl.args(&choose).await?;
            kubectl.run("wait pvc/data --for=jsonpath={.status.phase}=Bound --timeout=60s").await?;
            Ok(())
        }
        .await;
        let volume = ground.kubectl(name).run("get pvc data -o jsonpath={.spec.volumeName}").await;
        clean(ground, &member, &[name], &[volume.as_deref().unwrap_or("none")]).await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_for_a_member_that_leaves_goes_back() -> Result<()> {
    on_ground("waits", async |ground| {
        let member = ground.member("member1")?;
        let name = "j-waits";
        ground.join(NODE, "member1", &[]).await?;
        storage(ground).await?;
        let played = async {
            // Nobody makes the volume.
            ground.serve.terminate().await?;
            ground.apply(&namespace(name)).await?;
            ground.apply(&claim(name, "data")).await?;
            let kubectl = ground.kubectl(name);
            eventually("the claim waits for the node", SOON, async || {
                let waits = waits_for(&kubectl, "data").await?;
                ensure!(waits == format!("{NODE} member.federlet.io"), "{waits}");
                Ok(())
            })
            .await?;
            ground.federlet(&["unjoin", NODE]).await?;
            goes_back(ground, name, "data").await
        }
        .await;
        ground.serve.restart().await?;
        clean(ground, &member, &[name], &[]).await?;
        played
    })
    .await
}
