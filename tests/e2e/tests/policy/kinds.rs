use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::{MEMBER1, MEMBER2},
    scene::{Scene, beside, deployment, one_to_two, policy, template},
    stage::Stage,
};
use federlet_sandbox::eventually;
use serde_json::json;

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

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_runs_in_each_cluster_of_its_policy() -> Result<()> {
    beside("croncopies", async |stage| {
        let both = json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]}});
        stage.obey(&policy("often", "CronJob", "often", &both)).await?;
        let run = json!({"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "app", "image": "busybox", "command": ["true"]}]}}});
        let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": run}}});
        stage.create(&cron).await?;
        // Each time it is due, one Job stands for the runs in all clusters.
        for name in ["first", "second"] {
            stage.host.run(&format!("create job {name} --from=cronjob/often")).await?;
            stage.host.run(&format!("wait job/{name} --for=condition=Complete --timeout=120s")).await?;
            for member in ["member1", "member2"] {
                let member = Kubectl::new(stage.fleet.sandbox.cluster(member)?, &stage.namespace);
                let words = format!("get pods -l job-name={name} -o jsonpath={{.items[*].status.phase}}");
                let phases = member.run(&words).await?;
                ensure!(phases == "Succeeded", "{phases}");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_custom_resource_obey_its_policy() -> Result<()> {
    beside("operated", async |stage| {
        let group = format!("{}.example.com", stage.namespace);
        let played = operated(stage, &group).await;
        for object in [format!("crd/shops.{group}"), format!("clusterrole/{}-shops", stage.namespace)] {
            stage.host.args(&["delete", &object, "--ignore-not-found", "--wait=false"]).await?;
        }
        played
    })
    .await
}

async fn operated(stage: &Stage, group: &str) -> Result<()> {
    stage
        .apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("shops.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Shop", "plural": "shops", "singular": "shop"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        }))
        .await?;
    // Federlet may look at them.
    stage
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("{}-shops", stage.namespace), "labels": {"federlet.io/objects": "true"}},
            "rules": [{"apiGroups": [group], "resources": ["shops"], "verbs": ["get", "list", "watch"]}],
        }))
        .await?;
    let shop = json!({"apiVersion": format!("{group}/v1"), "kind": "Shop", "metadata": {"name": "corner"}});
    eventually("there are shops", SOON, async || stage.apply(&shop).await).await?;
    let mut wanted = policy("shops", "Shop", "corner", &one_to_two());
    wanted["spec"]["resourceSelectors"][0]["apiVersion"] = json!(format!("{group}/v1"));
    stage.obey(&wanted).await?;
    let uid =
        stage.host.args(&["get", &format!("shops.{group}/corner"), "-o", "jsonpath={.metadata.uid}"]).await?;
    // As its operator would do it.
    let mut made = deployment("till", 3);
    made["metadata"]["ownerReferences"] = json!([{"apiVersion": format!("{group}/v1"), "kind": "Shop", "name": "corner", "uid": uid, "controller": true}]);
    stage.create(&made).await?;
    stage.has("app=till", 1, 2).await?;
    // Pods and copies of one object do not argue about its binding.
    let generation = async || {
        stage.host.run("get rb corner-shop --ignore-not-found -o jsonpath={.metadata.generation}").await
    };
    let before = generation().await?;
    stage.host.run("scale deployment/till --replicas=6").await?;
    stage.has("app=till", 2, 4).await?;
    ensure!(generation().await? == before, "it was written again");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_one_claim_are_not_possible_and_the_pod_says_so() -> Result<()> {
    beside("claimed", async |stage| {
        let class = stage.namespace.clone();
        stage
            .apply(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
                "provisioner": "member.federlet.io", "volumeBindingMode": "WaitForFirstConsumer"}))
            .await?;
        let played = async {
            let both = json!({"clusterAffinity": {"clusterNames": [MEMBER1, MEMBER2]}});
            stage.obey(&policy("db", "StatefulSet", "db", &both)).await?;
            let mut set = deployment("db", 1);
            set["kind"] = json!("StatefulSet");
            set["spec"]["serviceName"] = json!("db");
            set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Mi"}}}}]);
            set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
                json!([{"name": "data", "mountPath": "/data"}]);
            stage.create(&set).await?;
            let told = stage.told("db-0", "ClaimNotBound").await?;
            ensure!(told.contains("\"data-db-0\"") && told.contains("federlet.io/run-by: member"), "{told}");
            Ok(())
        }
        .await;
        stage.host.args(&["delete", "storageclass", &class]).await?;
        played
    })
    .await
}
