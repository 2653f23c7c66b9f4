use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{MEMBER1, MEMBER2},
};
use federlet_sandbox::eventually;
use serde_json::json;

use crate::scene::{Scene, beside, deployment, one_to_two, policy, template};

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
async fn workloads_keep_apart_and_wait_for_a_cluster_that_is_not_there() -> Result<()> {
    beside("apart", async |stage| {
        let mut apart = json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]},
            "workloadAffinity": {"antiAffinity": {"groupByLabelKey": "group"}},
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
        for name in ["one", "two"] {
            stage.obey(&policy(name, "Deployment", name, &apart)).await?;
            let mut workload = deployment(name, 2);
            workload["metadata"]["labels"]["group"] = "g".into();
            stage.create(&workload).await?;
            // The first of a group is free to choose.
            stage.host.run(&format!("rollout status deployment/{name} --timeout=60s")).await?;
        }
        let (one, two) = (stage.counts("app=one").await?, stage.counts("app=two").await?);
        ensure!(one.len() == 1 && two.len() == 1 && one != two, "{one:?} and {two:?}");
        // A cluster that is not there yet: nothing is moved to and fro, and people are told.
        apart = json!({"clusterAffinity": {"clusterNames": ["no-such-cluster"]}});
        stage.obey(&policy("three", "Deployment", "three", &apart)).await?;
        stage.create(&deployment("three", 1)).await?;
        stage.told("three", "NoClusterFit").await?;
        let uid = "get pods -l app=three -o jsonpath={.items[*].metadata.uid}";
        let before = stage.host.run(uid).await?;
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        ensure!(stage.host.run(uid).await? == before);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_runs_in_the_clusters_of_its_policy() -> Result<()> {
    beside("daemon", async |stage| {
        let only = json!({"clusterAffinity": {"clusterNames": [MEMBER1]}});
        stage.obey(&policy("agent", "DaemonSet", "agent", &only)).await?;
        let mut pods = template("agent");
        pods["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "template": pods}});
        stage.create(&set).await?;
        eventually("it runs in that member", SOON, async || {
            let there = stage.member.run("get pods -l app=agent -o name").await?;
            ensure!(there.lines().count() == 1, "{there}");
            Ok(())
        })
        .await?;
        stage.host.run("rollout status daemonset/agent --timeout=60s").await?;
        let second = Kubectl::new(stage.fleet.sandbox.cluster("member2")?, &stage.namespace);
        ensure!(second.run("get pods -l app=agent -o name").await?.is_empty(), "and in no other");
        Ok(())
    })
    .await
}
