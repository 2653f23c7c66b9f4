use anyhow::{Result, ensure};
use federlet_e2e::{
    SOON,
    fleet::{MEMBER1, MEMBER2},
};
use federlet_sandbox::eventually;
use serde_json::json;

use crate::scene::{Scene, beside, one_to_two, policy, template};

#[tokio::test(flavor = "multi_thread")]
async fn stateful_sets_keep_each_name_in_its_cluster() -> Result<()> {
    beside("stateful", async |stage| {
        stage.obey(&policy("db", "StatefulSet", "db", &one_to_two())).await?;
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
            "replicas": 3, "serviceName": "db", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}}, "template": template("db")}});
        stage.create(&set).await?;
        stage.has("app=db", 1, 2).await?;
        let before = stage.field("db-1", ".spec.nodeName").await?;
        stage.host.run("delete pod db-1 --timeout=60s").await?;
        stage.has("app=db", 1, 2).await?;
        ensure!(stage.field("db-1", ".spec.nodeName").await? == before);
        stage.host.run("scale statefulset/db --replicas=6").await?;
        stage.has("app=db", 2, 4).await?;
        stage.host.run("scale statefulset/db --replicas=3").await?;
        stage.has("app=db", 1, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_cron_jobs_run_where_their_policy_says() -> Result<()> {
    beside("jobs", async |stage| {
        stage.obey(&policy("once", "Job", "once", &one_to_two())).await?;
        stage.obey(&policy("often", "CronJob", "often", &one_to_two())).await?;
        let once = |parallelism: u32| {
            json!({"completions": 3, "parallelism": parallelism, "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "app", "image": "busybox", "command": ["true"]}]}}})
        };
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": once(3)});
        stage.create(&job).await?;
        let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": once(3)}}});
        stage.create(&cron).await?;
        stage.host.run("create job manual --from=cronjob/often").await?;
        for name in ["once", "manual"] {
            stage.host.run(&format!("wait job/{name} --for=condition=Complete --timeout=120s")).await?;
            let words = ["get", "pods", "-l", &format!("job-name={name}"), "-o", "jsonpath={.items[*].spec.nodeName}"];
            let nodes = stage.host.args(&words).await?;
            let count = |node: &str| nodes.split_whitespace().filter(|one| *one == node).count();
            ensure!((count(MEMBER1), count(MEMBER2)) == (1, 2), "{name}: {nodes}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_by_itself_obeys_too_and_others_are_left_alone() -> Result<()> {
    beside("itself", async |stage| {
        let only = json!({"clusterAffinity": {"clusterNames": [MEMBER2]}});
        stage.obey(&policy("alone", "Pod", "alone", &only)).await?;
        let selected = json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]},
            "replicaScheduling": {"replicaSchedulingType": "Divided"}});
        stage.obey(&policy("gated", "Pod", "gated", &selected)).await?;
        stage.host.run("run alone --image=nginx").await?;
        stage.host.run("run gated --image=nginx").await?;
        stage.host.run("run other --image=nginx").await?;
        for name in ["alone", "gated", "other"] {
            stage.ready(name).await?;
        }
        ensure!(stage.field("alone", ".spec.nodeName").await? == MEMBER2);
        let gated = stage.field("gated", ".spec.nodeName").await?;
        ensure!([MEMBER1, MEMBER2].contains(&gated.as_str()), "{gated}");
        ensure!(stage.field("other", ".spec.nodeName").await?.starts_with("host-"), "it is no policy's");
        // A pod that is only asked about is not counted.
        stage.host.run("run asked --image=nginx --dry-run=server").await?;
        ensure!(stage.host.run("get pod asked").await.is_err());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_in_several_clusters_wait_and_say_for_what() -> Result<()> {
    beside("copies", async |stage| {
        let both = json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]}});
        stage.obey(&policy("both", "Pod", "both", &both)).await?;
        stage.host.run("run both --image=nginx").await?;
        let told = stage.told("both", "NoFleetNode").await?;
        ensure!(told.contains(MEMBER1) && told.contains(MEMBER2), "{told}");
        // When only one is left, that one it is.
        stage
            .obey(&policy("both", "Pod", "both", &json!({"clusterAffinity": {"clusterNames": [MEMBER1]}})))
            .await?;
        stage.ready("both").await?;
        eventually("it is in the first member", SOON, async || {
            ensure!(stage.field("both", ".spec.nodeName").await? == MEMBER1);
            Ok(())
        })
        .await
    })
    .await
}
