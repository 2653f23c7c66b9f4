//! `federlet get clusters`, `describe`, `top`, `version`, `cordon`, `uncordon` and `drain`.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use federlet_e2e::here::program;
use federlet_sandbox::Cluster;
use serde_json::json;
use tokio::process::Command;

use crate::ground::{on_ground, pod};

/// `kubectl federlet`: the same program under another name, which it knows itself by.
async fn as_a_plugin(host: &Cluster) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("federlet-e2e-plugin-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::os::unix::fs::symlink(program().await?, folder.join("kubectl-federlet"))?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let run = async |words: &[&str]| {
        // kubectl takes no flag before the name of a plugin, so the environment says which host.
        let mut command = Command::new(host.kubectl()?.as_std().get_program());
        command.env("PATH", &path).env("KUBECONFIG", host.admin_kubeconfig()).args(words).kill_on_drop(true);
        Ok::<_, anyhow::Error>(command.output().await?)
    };
    let table = run(&["federlet", "get", "clusters"]).await?;
    // As docs/commands.md says it.
    let complete = folder.join("kubectl_complete-federlet");
    std::fs::write(&complete, run(&["federlet", "completion", "kubectl"]).await?.stdout)?;
    std::fs::set_permissions(&complete, std::fs::Permissions::from_mode(0o755))?;
    let completed = run(&["__complete", "federlet", "un"]).await?;
    let deeper = run(&["__complete", "federlet", "get", ""]).await?;
    let help = run(&["federlet", "top", "--help"]).await?;
    let wrong = run(&["federlet", "get", "nonsense"]).await?;
    std::fs::remove_dir_all(&folder)?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(said(&table.stdout).contains("j-one"), "{table:?}");
    let words = said(&completed.stdout);
    ensure!(words.lines().take(2).eq(["unjoin", "uncordon"]), "{words}");
    ensure!(said(&deeper.stdout).contains("clusters"), "{deeper:?}");
    ensure!(said(&help.stdout).contains("Usage: kubectl federlet top"), "{help:?}");
    ensure!(wrong.status.code() == Some(2), "{wrong:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_shown_cordoned_and_drained() -> Result<()> {
    on_ground("commands", async |ground| {
        let said = ground.federlet(&["get", "clusters"]).await?;
        ensure!(said.trim().is_empty(), "{said}");
        ground.join("j-one", "member1", &["--region", "north"]).await?;
        let table = ground.federlet(&["get", "clusters", "-o", "wide"]).await?;
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        ensure!(
            rows[0] == ["NAME", "VERSION", "MODE", "READY", "AGE", "REGION", "ZONES", "PROVIDER", "ENDPOINT"],
            "{table}"
        );
        ensure!(rows[1][0] == "j-one" && rows[1][2] == "Push" && rows[1][5] == "north", "{table}");
        let json = ground.federlet(&["get", "clusters", "j-one", "-o", "json"]).await?;
        let cluster: serde_json::Value = serde_json::from_str(&json)?;
        ensure!(cluster["kind"] == "Cluster" && cluster["metadata"]["name"] == "j-one");
        ensure!(ground.federlet(&["get", "cluster", "-o", "yaml"]).await?.contains("kind: Cluster"));
        ensure!(
            ground.federlet(&["get", "clusters", "-o", "name"]).await?.trim()
                == "cluster.cluster.karmada.io/j-one"
        );
        ensure!(ground.federlet(&["get", "clusters", "j-no"]).await.is_err());
        let page = ground.federlet(&["describe", "cluster", "j-one"]).await?;
        for part in [
            "Region:       north",
            "1 of 1 are Ready",
            "Ready, its kubelet API is at ",
            "ClusterReady",
            "allocatable",
        ] {
            ensure!(page.to_lowercase().contains(&part.to_lowercase()), "{part:?} is not in:\n{page}");
        }
        let top = ground.federlet(&["top", "clusters"]).await?;
        ensure!(top.starts_with("NAME") && top.contains("j-one  1/1") && top.contains('░'), "{top}");
        ensure!(ground.federlet(&["top", "clusters", "-o", "yaml"]).await?.contains("name: j-one"));
        let top = ground.federlet(&["top", "clusters", "-o", "json"]).await?;
        let top: serde_json::Value = serde_json::from_str(&top)?;
        ensure!(top[0]["name"] == "j-one" && top[0]["cpu"]["allocatable"].is_string(), "{top}");
        let top = ground.federlet(&["top", "clusters", "-o", "wide"]).await?;
        ensure!(top.starts_with("NAME") && top.contains('/') && top.contains("Ki"), "{top}");
        let names = ground.federlet(&["top", "clusters", "-o", "name"]).await?;
        ensure!(names.trim() == "cluster.cluster.karmada.io/j-one", "{names}");
        as_a_plugin(&ground.host).await?;
        let version = ground.federlet(&["version"]).await?;
        ensure!(version.starts_with("federlet ") && version.contains("host v1."), "{version}");
        for format in ["json", "yaml"] {
            let version = ground.federlet(&["version", "-o", format]).await?;
            ensure!(version.contains("federlet") && version.contains("v1."), "{version}");
        }
        let page = ground.federlet(&["describe", "cluster", "j-one", "-o", "json"]).await?;
        let page: serde_json::Value = serde_json::from_str(&page)?;
        for part in ["cluster", "node"] {
            ensure!(page[part]["metadata"]["name"] == "j-one", "{page}");
        }
        ensure!(page["events"].is_array(), "{page}");
        let page = ground.federlet(&["describe", "cluster", "j-one", "-o", "yaml"]).await?;
        ensure!(page.contains("region: north"), "{page}");
        for command in [&["describe", "cluster", "j-no"], &["top", "clusters", "j-no"]] {
            let said = ground.federlet(command).await.err().context("it knows j-no")?.to_string();
            ensure!(said.contains("there is no Cluster j-no"), "{said}");
        }

        ensure!(ground.federlet(&["cordon", "j-one"]).await?.trim() == "node/j-one cordoned");
        ensure!(ground.federlet(&["cordon", "j-one"]).await?.trim() == "node/j-one already cordoned");
        ensure!(ground.field("node/j-one", ".spec.unschedulable").await? == "true");
        ensure!(ground.federlet(&["uncordon", "j-one"]).await?.trim() == "node/j-one uncordoned");
        ensure!(ground.federlet(&["cordon", "j-no"]).await.is_err());

        ground
            .sandbox
            .in_namespace("drain", async |space| {
                let kubectl = ground.kubectl(&space.namespace);
                let mut bare = pod("bare", "j-one");
                bare["metadata"]["namespace"] = space.namespace.clone().into();
                bare["metadata"]["labels"] = json!({"app": "bare"});
                ground.apply(&bare).await?;
                kubectl.run("wait pod/bare --for=condition=Ready --timeout=60s").await?;
                let refused = ground.federlet(&["drain", "j-one", "--ignore-daemonsets"]).await;
                let said = refused.err().context("a pod that nobody starts again was evicted")?.to_string();
                ensure!(said.contains("bare: nobody starts it again elsewhere"), "{said}");
                kubectl.run("create poddisruptionbudget bare --selector=app=bare --min-available=1").await?;
                let words = ["drain", "j-one", "--ignore-daemonsets", "--force", "--timeout"];
                let late = ground.federlet(&[&words[..], &["8s"]].concat()).await;
                let said = late.err().context("the budget was not respected")?.to_string();
                ensure!(said.contains("bare still there") && said.contains("disruption budget"), "{said}");
                kubectl.run("delete poddisruptionbudget bare").await?;
                let said = ground.federlet(&[&words[..], &["60s"]].concat()).await?;
                ensure!(said.contains("pod/bare evicted") && said.contains("node/j-one drained"), "{said}");
                ensure!(kubectl.run("get pod bare").await.is_err());
                Ok(())
            })
            .await
    })
    .await
}
