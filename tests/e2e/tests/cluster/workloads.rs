use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON, fleet::MEMBER1};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{
    objects::{create, pod, spec, workload},
    stage::on_stage,
};

fn template(app: &str, extra: Value) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": spec(MEMBER1, extra)})
}

fn selector(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_roll_and_scale() -> Result<()> {
    on_stage("rolls", async |stage| {
        let web = json!({"replicas": 3, "selector": selector("web"), "template": template("web", json!({}))});
        stage.create(&workload("Deployment", "web", &web)).await?;
        stage.host.run("rollout status deployment/web --timeout=60s").await?;
        let there = stage.member.run("get pods -l app=web -o name").await?;
        let here = stage.host.run("get pods -l app=web -o name").await?;
        ensure!(there == here, "pods keep their names: {here} and {there}");
        stage.host.run("set env deployment/web MORE=yes").await?;
        stage.host.run("rollout status deployment/web --timeout=90s").await?;
        stage.host.run("scale deployment/web --replicas=1").await?;
        eventually("the member has one pod left", SOON, async || {
            let pods = stage.member.run("get pods -l app=web -o name").await?;
            ensure!(pods.lines().count() == 1, "{pods}");
            Ok(())
        })
        .await?;
        // Everything in the member is owned by the anchor, so that nothing there adopts it and one delete removes it.
        let owners = stage
            .member
            .run("get pods -l app=web -o jsonpath={.items[*].metadata.ownerReferences[*].kind}")
            .await?;
        ensure!(owners == "ConfigMap", "{owners}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_sets_keep_their_names_and_find_each_other() -> Result<()> {
    on_stage("stateful", async |stage| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"},
            "spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 80}]}});
        stage.create(&service).await?;
        let db = json!({"replicas": 2, "serviceName": "db", "selector": selector("db"), "template": template("db", json!({}))});
        stage.create(&workload("StatefulSet", "db", &db)).await?;
        stage.host.run("rollout status statefulset/db --timeout=90s").await?;
        ensure!(stage.exec("db-0", "hostname").await? == "db-0");
        let fqdn = format!("http://db-1.db.{}.svc.cluster.local", stage.namespace);
        eventually("pods reach each other by name", SOON, async || {
            let page = stage.exec("db-0", &format!("timeout 5 wget -qO- {fqdn}")).await?;
            ensure!(page.contains("Welcome"), "{page}");
            Ok(())
        })
        .await?;
        let before = stage.field("db-0", ".metadata.uid").await?;
        stage.host.run("delete pod db-0 --wait=false").await?;
        eventually("another pod has the name", SOON, async || {
            let after = stage.field("db-0", ".metadata.uid").await?;
            ensure!(before != after, "db-0 is still the same pod");
            Ok(())
        })
        .await?;
        stage.host.run("rollout status statefulset/db --timeout=90s").await?;
        let there = stage.member.run("get pod db-0 -o jsonpath={.metadata.labels.federlet\\.io/host-uid}").await?;
        ensure!(there == stage.field("db-0", ".metadata.uid").await?, "the member has the pod of the host");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_complete_once() -> Result<()> {
    on_stage("jobs", async |stage| {
        let once = json!({"restartPolicy": "Never",
            "containers": [{"name": "app", "image": "busybox", "command": ["sh", "-c", "echo done > /dev/termination-log"]}]});
        let job = json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed",
            "template": {"spec": spec(MEMBER1, once)}});
        stage.create(&workload("Job", "once", &job)).await?;
        stage.host.run("wait job/once --for=condition=Complete --timeout=90s").await?;
        let said = stage
            .host
            .run("get pods -l job-name=once -o jsonpath={.items[*].status.containerStatuses[0].state.terminated.message}")
            .await?;
        ensure!(said.split_whitespace().count() == 3, "{said}");
        // A finished pod whose twin is cleared away in the member stays finished and is not run again.
        let first = stage.host.run("get pods -l job-name=once -o jsonpath={.items[0].metadata.name}").await?;
        stage.member.args(&["delete", "pod", &first, "--wait=true"]).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        ensure!(stage.field(&first, ".status.phase").await? == "Succeeded");
        ensure!(stage.member.args(&["get", "pod", &first]).await.is_err(), "it runs again");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_of_the_member_go_with_the_hosts() -> Result<()> {
    on_stage("passing", async |stage| {
        let name = format!("{}-more", stage.namespace);
        stage.fleet.host.kubectl_output(&["create", "namespace", &name]).await?;
        let host = Kubectl::new(stage.fleet.host.clone(), &name);
        create(&host, &pod("one", &spec(MEMBER1, json!({})))).await?;
        host.run("wait pod/one --for=condition=Ready --timeout=60s").await?;
        let there = stage.fleet.sandbox.cluster("member1")?;
        there.kubectl_output(&["get", "namespace", &name]).await?;
        stage.fleet.host.kubectl_output(&["delete", "namespace", &name]).await?;
        eventually("the member's namespace is gone", 2 * SOON, async || {
            ensure!(there.kubectl_output(&["get", "namespace", &name]).await.is_err(), "still there");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_sets_that_tolerate_everything_stay_healthy_and_run_nowhere() -> Result<()> {
    on_stage("daemons", async |stage| {
        let daemon = json!({"selector": selector("agent"), "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/hostname": MEMBER1},
            "containers": [{"name": "app", "image": "nginx"}]}}});
        stage.create(&workload("DaemonSet", "agent", &daemon)).await?;
        stage.host.run("rollout status daemonset/agent --timeout=60s").await?;
        ensure!(stage.member.run("get pods -l app=agent -o name").await?.is_empty(), "it runs in the member");
        let run = r#"{"spec":{"template":{"metadata":{"annotations":{"federlet.io/run-daemonset":"true"}}}}}"#;
        stage.host.args(&["patch", "daemonset", "agent", "-p", run]).await?;
        eventually("it runs in the member when asked to", SOON, async || {
            let pods = stage.member.run("get pods -l app=agent -o name").await?;
            ensure!(pods.lines().count() == 1, "{pods}");
            Ok(())
        })
        .await?;
        stage.host.run("rollout status daemonset/agent --timeout=60s").await?;
        Ok(())
    })
    .await
}
