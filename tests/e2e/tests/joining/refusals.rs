//! What `federlet join` refuses, in one line each, and before anything is touched.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::Cluster;
use serde_json::Value;

use crate::{
    conditions::{Written, kubeconfig as kubeconfig_of, server},
    ground::{Ground, on_ground, pod},
};

/// A kubeconfig of a member, changed as a test likes.
fn kubeconfig(member: &Cluster, name: &str, change: impl Fn(&mut Value)) -> Result<PathBuf> {
    let text = std::fs::read_to_string(member.admin_kubeconfig())?;
    let mut config: Value = serde_json::from_str(&text).context("the sandbox writes JSON")?;
    change(&mut config);
    let file = std::env::temp_dir().join(format!("federlet-e2e-{name}-{}.kubeconfig", std::process::id()));
    std::fs::write(&file, config.to_string())?;
    Ok(file)
}

async fn refused(ground: &Ground, name: &str, file: &Path, words: &[&str], why: &str) -> Result<()> {
    let answer = ground.join_with(name, file, words).await;
    let said = answer.err().with_context(|| format!("{name} should have been refused: {why}"))?.to_string();
    ensure!(said.contains(why), "{why:?} is not in: {said}");
    let errors = said.lines().filter(|line| line.starts_with("error:")).count();
    ensure!(errors == 1, "one line says it: {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_flags_and_wrong_clusters_are_refused() -> Result<()> {
    on_ground("refusals", async |ground| {
        let (one, two) = (ground.member("member1")?, ground.member("member2")?);
        ground.join("j-one", "member1", &[]).await?;
        let roles = ["get", "clusterroles", "-o", "name"];
        let before = two.kubectl_output(&roles).await?;
        let good = two.admin_kubeconfig().to_path_buf();
        let cases: [(&str, &[&str], &str); 4] = [
            ("j-bad", &["--region-selector", "a in"], "spec.federlet.regionSelector"),
            ("j-bad", &["--namespace-suffix", "-X"], "cannot be added to namespaces"),
            ("j-one", &[], "the name j-one belongs to another cluster"),
            ("host-node1", &[], "the host has a node host-node1 already"),
        ];
        for (name, words, why) in cases {
            refused(ground, name, &good, words, why).await?;
        }
        refused(ground, "Bad_Name", &good, &[], "cannot be the name of a member").await.or_else(|error| {
            // The command line itself refuses it, in its own words.
            if error.to_string().contains("one line says it") { Ok(()) } else { Err(error) }
        })?;
        refused(ground, "j-self", ground.host.admin_kubeconfig(), &[], "is the host itself").await?;
        refused(ground, "j-again", one.admin_kubeconfig(), &[], "is joined already, as j-one").await?;
        let lost = kubeconfig(&two, "lost", |config| {
            let server = &mut config["clusters"][0]["cluster"]["server"];
            *server = server.as_str().unwrap_or_default().replace(":6443", ":1").into();
        })?;
        refused(ground, "j-lost", &lost, &[], "does not answer").await?;
        let foreign = kubeconfig(&two, "foreign", |config| {
            let text = std::fs::read_to_string(one.admin_kubeconfig()).unwrap_or_default();
            let other: Value = serde_json::from_str(&text).unwrap_or_default();
            config["clusters"][0]["cluster"]["certificate-authority-data"] =
                other["clusters"][0]["cluster"]["certificate-authority-data"].clone();
        })?;
        refused(ground, "j-foreign", &foreign, &[], "invalid peer certificate").await?;
        let nobody = kubeconfig(&two, "nobody", |config| {
            config["users"][0]["user"] = serde_json::json!({"token": "nonsense"});
        })?;
        refused(ground, "j-nobody", &nobody, &[], "Unauthorized").await?;
        refused(ground, "j-none", Path::new("/no/such/file"), &[], "cannot read the kubeconfig").await?;

        // And nothing of it is left.
        let clusters = ground.host.kubectl_output(&["get", "clusters", "-o", "name"]).await?;
        ensure!(clusters.trim() == "cluster.cluster.karmada.io/j-one", "{clusters}");
        ensure!(two.kubectl_output(&roles).await? == before, "an account was made");
        for file in [lost, foreign, nobody] {
            std::fs::remove_file(file)?;
        }
        Ok(())
    })
    .await
}

/// `join` asks first. Whoever writes a Cluster by hand does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_named_like_a_machine_of_the_host_does_not_touch_the_machine() -> Result<()> {
    on_ground("machine", async |ground| {
        let default = ground.kubectl("default");
        ground.apply(&pod("stays", "host-node1")).await?;
        default.run("wait pod/stays --for=condition=Ready --timeout=60s").await?;
        let seen = async || {
            let node = ground.field("node/host-node1", ".metadata.uid}{.spec.unschedulable").await?;
            let pod = ground.field("pod/stays", ".metadata.uid}{.metadata.deletionTimestamp").await?;
            anyhow::Ok((node, pod))
        };
        let before = seen().await?;
        let member = kubeconfig_of(&ground.member("member2")?)?;
        let endpoint = server(&member)?;
        let keys = serde_json::json!({"kubeconfig": member.to_string()});
        let written = Written { name: "host-node1", endpoint: &endpoint, keys, more: serde_json::json!({}) };
        ground.write(written).await?;
        let said = ground.says("host-node1", "Ready", "NameTaken").await?;
        ensure!(said.contains("host-node1"), "{said}");
        ground.host.kubectl_output(&["delete", "cluster", "host-node1", "--timeout=60s"]).await?;
        let after = seen().await?;
        ensure!(after == before, "{after:?}, and before: {before:?}");
        default.run("delete pod stays --wait=false").await?;
        ground.is_ready("host-node1").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn unjoining_what_never_joined_is_an_error() -> Result<()> {
    on_ground("never", async |ground| {
        let said = ground.federlet(&["unjoin", "j-never"]).await.err().map(|error| error.to_string());
        ensure!(said.as_ref().is_some_and(|said| said.contains("there is no Cluster j-never")), "{said:?}");
        Ok(())
    })
    .await
}
