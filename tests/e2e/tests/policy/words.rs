//! Fields of policies that change neither where pods go nor how many.

use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
    objects::pipe,
    scene::{Scene, beside, deployment, one_to_two, policy},
};
use federlet_sandbox::eventually;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn pods_have_the_priority_that_their_policy_names() -> Result<()> {
    beside("priority", async |stage| {
        let class = stage.namespace.clone();
        let made = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": class}, "value": 1234});
        pipe(&stage.host, &["create", "-f", "-"], &made).await?;
        let mut wanted = policy("web", "Deployment", "web", &one_to_two());
        wanted["spec"]["schedulePriority"] =
            json!({"priorityClassSource": "KubePriorityClass", "priorityClassName": class});
        let played = async {
            stage.obey(&wanted).await?;
            stage.create(&deployment("web", 3)).await?;
            stage.has("app=web", 1, 2).await?;
            let words = ["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.priority}"];
            let found = stage.host.args(&words).await?;
            ensure!(found == "1234 1234 1234", "{found}");
            // Pods that come after the policy went are like those before.
            stage.host.run("delete pp web").await?;
            stage.host.run("scale deployment/web --replicas=6").await?;
            stage.has("app=web", 2, 4).await?;
            let found = stage.host.args(&words).await?;
            ensure!(found.split(' ').filter(|value| *value == "1234").count() == 6, "{found}");
            Ok(())
        }
        .await;
        stage.fleet.host.kubectl_output(&["delete", "priorityclass", &class]).await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_effect_is_said_at_once_and_later() -> Result<()> {
    beside("noted", async |stage| {
        let mut noted = policy("web", "Deployment", "web", &json!({}));
        noted["spec"]["association"] = json!(true);
        noted["spec"]["schedulePriority"] = json!({"priorityClassSource": "FederatedPriorityClass"});
        let mut command = stage.host.command(&["create", "-f", "-"])?;
        command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or_else(|| anyhow::anyhow!("no standard input"))?;
        tokio::io::AsyncWriteExt::write_all(&mut stdin, noted.to_string().as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "it is taken all the same: {said}");
        for field in ["association", "schedulePriority"] {
            ensure!(said.contains(&format!("Warning: spec.{field} has no effect")), "{said}");
        }
        let told = stage.told("web", "NoEffect").await?;
        ensure!(told.contains("spec.association") && told.contains("spec.schedulePriority"), "{told}");
        let path = "jsonpath={.status.conditions[?(@.type==\"FieldsEffective\")]['status', 'message']}";
        let says = async |wanted: &str| {
            eventually("the policy says so itself", SOON, async || {
                let found = stage.host.args(&["get", "pp", "web", "-o", path]).await?;
                ensure!(found.contains(wanted), "{found:?}");
                Ok::<_, anyhow::Error>(())
            })
            .await
        };
        says("False spec.association has no effect: use propagateDeps").await?;
        stage.host.run("patch pp web --type=json -p [{\"op\":\"remove\",\"path\":\"/spec/association\"},{\"op\":\"remove\",\"path\":\"/spec/schedulePriority\"}]").await?;
        says("True").await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_to_which_nothing_is_dispatched_keeps_what_it_has() -> Result<()> {
    beside("held-cluster", async |stage| {
        let placements = [
            ("divided", one_to_two()),
            ("copied", json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]}})),
        ];
        for (name, placement) in &placements {
            let mut held = policy(name, "Deployment", name, placement);
            held["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": [MEMBER2]}});
            stage.obey(&held).await?;
            stage.create(&deployment(name, 3)).await?;
        }
        eventually("only the first member has pods", SOON, async || {
            let divided = stage.counts("app=divided").await?;
            ensure!(divided == [(MEMBER1.to_owned(), 1), ("not ready".to_owned(), 2)].into(), "{divided:?}");
            let copied = stage.counts("app=copied").await?;
            ensure!(copied == [(MEMBER1.to_owned(), 3), ("not ready".to_owned(), 3)].into(), "{copied:?}");
            Ok(())
        })
        .await?;
        let told = stage.told("divided", "Held").await?;
        ensure!(told.contains(&format!("suspends dispatching to {MEMBER2}")), "{told}");
        for (name, placement) in &placements {
            stage.obey(&policy(name, "Deployment", name, placement)).await?;
        }
        stage.has("app=divided", 1, 2).await?;
        eventually("all have copies", SOON, async || {
            let copied = stage.counts("app=copied").await?;
            let wanted = [("fleet".to_owned(), 3), (MEMBER1.to_owned(), 3), (MEMBER2.to_owned(), 3)].into();
            ensure!(copied == wanted, "{copied:?}");
            Ok(())
        })
        .await
    })
    .await
}
