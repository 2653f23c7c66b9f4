//! `federlet get clusters`, `describe`, `top`, `version`, `cordon`, `uncordon` and `drain`.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::ground::{on_ground, pod};

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
        let version = ground.federlet(&["version"]).await?;
        ensure!(version.starts_with("federlet ") && version.contains("host v1."), "{version}");
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
