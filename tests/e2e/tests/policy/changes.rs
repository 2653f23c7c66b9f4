use anyhow::{Result, ensure};
use federlet_e2e::{
    fleet::{MEMBER1, MEMBER2},
    scene::{Scene, beside, deployment, one_to_two, policy, weights},
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_policy_moves_pods_within_their_budget() -> Result<()> {
    beside("changed", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await?;
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
        stage.create(&budget).await?;
        stage.obey(&policy("web", "Deployment", "web", &weights(2, 1))).await?;
        stage.has("app=web", 2, 1).await?;
        let only = json!({"clusterAffinity": {"clusterNames": [MEMBER1]}});
        stage.obey(&policy("web", "Deployment", "web", &only)).await?;
        stage.has("app=web", 3, 0).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_of_a_cluster_that_changes_moves_pods() -> Result<()> {
    beside("labelled", async |stage| {
        let label = format!("test-{}", stage.namespace);
        let host = &stage.fleet.host;
        let set = async |cluster: &str, value: &str| {
            host.kubectl_output(&["label", "cluster", cluster, &format!("{label}{value}"), "--overwrite"])
                .await
        };
        set(MEMBER1, "=yes").await?;
        let here = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {&label: "yes"}}},
            "replicaScheduling": {"replicaSchedulingType": "Divided"}});
        stage.obey(&policy("web", "Deployment", "web", &here)).await?;
        stage.create(&deployment("web", 2)).await?;
        let played = async {
            stage.has("app=web", 2, 0).await?;
            set(MEMBER2, "=yes").await?;
            set(MEMBER1, "-").await?;
            stage.has("app=web", 0, 2).await
        }
        .await;
        set(MEMBER1, "-").await?;
        set(MEMBER2, "-").await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_comes_later_or_goes_leaves_nothing_behind() -> Result<()> {
    beside("order", async |stage| {
        // First the workload, then its policy.
        stage.create(&deployment("web", 3)).await?;
        stage.host.run("rollout status deployment/web --timeout=60s").await?;
        stage.obey(&policy("web", "Deployment", "web", &one_to_two())).await?;
        stage.has("app=web", 1, 2).await?;
        // What runs stays when the policy goes, and what comes goes where it went.
        stage.host.run("delete pp web").await?;
        stage.host.run("scale deployment/web --replicas=6").await?;
        stage.has("app=web", 2, 4).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_policy_waits_for_its_workload() -> Result<()> {
    beside("lazy", async |stage| {
        let lazy = |placement| {
            let mut policy = policy("web", "Deployment", "web", &placement);
            policy["spec"]["activationPreference"] = "Lazy".into();
            policy
        };
        stage.obey(&lazy(weights(1, 2))).await?;
        stage.create(&deployment("web", 3)).await?;
        stage.has("app=web", 1, 2).await?;
        stage.obey(&lazy(weights(2, 1))).await?;
        tokio::time::sleep(std::time::Duration::from_secs(8)).await;
        let counts = stage.counts("app=web").await?;
        ensure!(counts.get(MEMBER2) == Some(&2), "{counts:?}");
        stage.host.run("scale deployment/web --replicas=6").await?;
        stage.has("app=web", 4, 2).await
    })
    .await
}
