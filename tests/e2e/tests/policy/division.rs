use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON, audit,
    scene::{Scene, beside, deployment, one_to_two, policy, weights},
};
use federlet_sandbox::eventually;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_divided_by_weight_and_stay_so() -> Result<()> {
    beside("weighted", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await?;
        for (replicas, first, second) in [(6, 2, 4), (9, 3, 6), (3, 1, 2), (1, 0, 1)] {
            stage.host.run(&format!("scale deployment/web --replicas={replicas}")).await?;
            stage.has("app=web", first, second).await?;
        }
        stage.host.run("scale deployment/web --replicas=6").await?;
        stage.has("app=web", 2, 4).await?;
        // What was decided is beside the workload.
        let path = "jsonpath={.spec.replicas} {.spec.clusters[*].replicas} {.status.conditions[?(@.type==\"Scheduled\")].reason}";
        eventually("the binding says so", SOON, async || {
            let said = stage.host.args(&["get", "rb", "web-deployment", "-o", path]).await?;
            ensure!(said == "6 2 4 Success", "it says {said:?}");
            Ok(())
        })
        .await?;
        // The object that the user wrote is as they wrote it.
        let written = stage.host.run("get deployment web -o jsonpath={.spec.template.spec}").await?;
        ensure!(!written.contains("federlet"), "{written}");
        // A rollout divides the new revision as the old one.
        stage.host.run("set env deployment/web MORE=yes").await?;
        stage.host.run("rollout status deployment/web --timeout=120s").await?;
        stage.has("app=web", 2, 4).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_written_once_to_be_placed() -> Result<()> {
    beside("writes", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await?;
        let placed = audit::patches(&stage.fleet.host, &stage.namespace, "(serve)")?;
        ensure!(placed.len() == 3 && placed.values().all(|count| *count == 1), "{placed:?}");
        // Nothing changes, so nothing is written.
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        ensure!(audit::patches(&stage.fleet.host, &stage.namespace, "(serve)")? == placed);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_at_random_ends_exact() -> Result<()> {
    beside("random", async |stage| {
        for name in ["one", "two"] {
            stage.obey(&policy(name, "Deployment", name, &one_to_two())).await?;
            stage.create(&deployment(name, 3)).await?;
        }
        // Pods that are not ready yet are taken away first, whatever order was meant.
        for replicas in [9, 2, 12, 4, 1, 10, 5, 8] {
            for name in ["one", "two"] {
                stage.host.run(&format!("scale deployment/{name} --replicas={replicas}")).await?;
            }
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        }
        for name in ["one", "two"] {
            stage.host.run(&format!("scale deployment/{name} --replicas=9")).await?;
        }
        stage.has("app=one", 3, 6).await?;
        stage.has("app=two", 3, 6).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_about_machines_hold_in_the_member() -> Result<()> {
    beside("machines", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &weights(1, 1))).await?;
        let mut web = deployment("web", 2);
        web["spec"]["template"]["spec"]["affinity"] = json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
        web["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
        stage.create(&web).await?;
        stage.has("app=web", 1, 1).await?;
        let there = stage.member.run("get pods -l app=web -o jsonpath={.items[0].spec}").await?;
        ensure!(there.contains("podAntiAffinity") && there.contains("kubernetes.io/os"), "{there}");
        // The second on the same machine must wait there, and says so here.
        stage.host.run("scale deployment/web --replicas=4").await?;
        eventually("those that do not fit wait in the member", SOON, async || {
            let waiting = stage.member.run("get pods -l app=web --field-selector=status.phase=Pending -o name").await?;
            ensure!(waiting.lines().count() == 1, "{waiting}");
            Ok(())
        })
        .await
    })
    .await
}
