use anyhow::{Result, ensure};
use federlet_e2e::{SOON, fleet::MEMBER1};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{
    objects::{create, pipe, pod, spec, workload},
    stage::on_stage,
};

fn runs(command: &str, policy: &str) -> Value {
    json!({"restartPolicy": policy,
        "containers": [{"name": "app", "image": "busybox", "command": ["sh", "-c", command]}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn how_containers_end_is_told_exactly() -> Result<()> {
    on_stage("endings", async |stage| {
        let start = async |name: &str, extra: Value| stage.create(&pod(name, &spec(MEMBER1, extra))).await;
        start("fails", runs("echo sorry > /dev/termination-log; exit 3", "Never")).await?;
        start("restarts", runs("exit 1", "Always")).await?;
        start("late", {
            let mut late = runs("sleep 1000", "Never");
            late["activeDeadlineSeconds"] = json!(2);
            late
        })
        .await?;
        // It asks for more and more of what it has little of.
        start("hungry", {
            let mut hungry = runs("exec tail /dev/zero", "Never");
            hungry["containers"][0]["resources"] = json!({"limits": {"memory": "16Mi"}});
            hungry
        })
        .await?;
        start("nowhere", json!({"containers": [{"name": "app", "image": "no.such.registry/none:1"}]}))
            .await?;
        start(
            "large",
            json!({"containers": [{"name": "app", "image": "busybox", "command": ["sleep", "9"],
            "resources": {"requests": {"example.com/none": "1"}, "limits": {"example.com/none": "1"}}}]}),
        )
        .await?;
        stage.says("fails", ".status.phase", "Failed").await?;
        stage.says("fails", ".status.containerStatuses[0].state.terminated.exitCode", "3").await?;
        stage.says("fails", ".status.containerStatuses[0].state.terminated.message", "sorry\n").await?;
        stage.says("late", ".status.reason", "DeadlineExceeded").await?;
        stage.says("hungry", ".status.containerStatuses[0].state.terminated.reason", "OOMKilled").await?;
        eventually("it cannot be pulled", SOON, async || {
            let reason = stage.field("nowhere", ".status.containerStatuses[0].state.waiting.reason").await?;
            ensure!(["ErrImagePull", "ImagePullBackOff"].contains(&&*reason), "{reason}");
            Ok(())
        })
        .await?;
        eventually("it restarts", SOON, async || {
            let count: u32 =
                stage.field("restarts", ".status.containerStatuses[0].restartCount").await?.parse()?;
            ensure!(count > 0, "not yet");
            Ok(())
        })
        .await?;
        // The host's own scheduler knows that no node has this; it never gets to the member.
        stage
            .says("large", ".status.conditions[?(@.type==\"PodScheduled\")].reason", "Unschedulable")
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_member_cannot_place_says_so() -> Result<()> {
    on_stage("unplaced", async |stage| {
        // Bound by hand, past the host's scheduler.
        let asks = json!({"nodeName": MEMBER1, "nodeSelector": null, "containers": [{"name": "app", "image": "busybox",
            "resources": {"requests": {"cpu": "500"}}}]});
        stage.create(&pod("huge", &spec(MEMBER1, asks))).await?;
        stage.says("huge", ".status.reason", "Unschedulable").await?;
        let message = stage.field("huge", ".status.message").await?;
        ensure!(message.contains("Insufficient cpu"), "{message}");
        stage.told("huge", "FailedScheduling").await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_in_the_member_is_replaced_on_the_host() -> Result<()> {
    on_stage("replaced", async |stage| {
        let quick = json!({"terminationGracePeriodSeconds": 1});
        let web = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec(MEMBER1, quick)}});
        stage.create(&workload("Deployment", "web", &web)).await?;
        stage.host.run("rollout status deployment/web --timeout=60s").await?;
        for words in [["--wait=false", "--grace-period=1"], ["--force", "--grace-period=0"]] {
            let name = stage.host.run("get pods -l app=web --field-selector=status.phase=Running -o jsonpath={.items[0].metadata.name}").await?;
            stage.member.args(&["delete", "pod", &name, words[0], words[1]]).await?;
            eventually("another pod is Ready", SOON, async || {
                let ready = stage.host.run("get deployment web -o jsonpath={.status.readyReplicas}").await?;
                let pods = stage.host.run("get pods -l app=web --field-selector=status.phase=Running -o name").await?;
                let replaced = !pods.is_empty() && !pods.contains(&name);
                ensure!(ready == "1" && replaced, "{ready} ready: {pods}");
                Ok(())
            })
            .await?;
        }
        // Evicted in the member, as a drain there does it.
        let name = stage.host.run("get pods -l app=web --field-selector=status.phase=Running -o jsonpath={.items[0].metadata.name}").await?;
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": stage.namespace}});
        let path = format!("/api/v1/namespaces/{}/pods/{name}/eviction", stage.namespace);
        pipe(&stage.member, &["create", "--raw", &path, "-f", "-"], &eviction).await?;
        eventually("another pod is Ready", SOON, async || {
            let pods = stage.host.run("get pods -l app=web --field-selector=status.phase=Running -o name").await?;
            ensure!(!pods.is_empty() && !pods.contains(&name), "{pods}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_pod_of_the_same_name_is_left_alone() -> Result<()> {
    on_stage("foreign", async |stage| {
        // The member's namespace comes with the first pod.
        stage.start("first", json!({})).await?;
        create(
            &stage.member,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken"},
            "spec": {"containers": [{"name": "app", "image": "nginx"}], "terminationGracePeriodSeconds": 0}}),
        )
        .await?;
        let uid = stage.member.run("get pod taken -o jsonpath={.metadata.uid}").await?;
        stage.create(&pod("taken", &spec(MEMBER1, json!({})))).await?;
        let said = stage.told("taken", "ProviderNameTaken").await?;
        ensure!(said.contains(&format!("{}/taken", stage.namespace)) && said.contains("not ours"), "{said}");
        stage.says("taken", ".status.phase", "Pending").await?;
        ensure!(stage.member.run("get pod taken -o jsonpath={.metadata.uid}").await? == uid);
        stage.host.run("delete pod taken --timeout=30s").await?;
        ensure!(
            stage.member.run("get pod taken -o jsonpath={.metadata.uid}").await? == uid,
            "it was deleted"
        );
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_owns_our_pods_is_made_again_if_somebody_takes_it_away() -> Result<()> {
    on_stage("anchor", async |stage| {
        // Nothing goes along with the pod that could tell us of it.
        let bare = spec(MEMBER1, json!({"automountServiceAccountToken": false}));
        let deployment = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": bare}});
        stage.create(&workload("Deployment", "web", &deployment)).await?;
        stage.host.run("rollout status deployment/web --timeout=60s").await?;
        let pod = "get pods -l app=web -o jsonpath={.items[*].metadata.uid}";
        let first = stage.member.run(pod).await?;
        stage.member.run("delete configmap -l federlet.io/host --wait=false").await?;
        // The member's garbage collector takes the pods with their owner, and would take each new one, too.
        eventually("another pod runs, and its owner is there", SOON, async || {
            stage.host.run("rollout status deployment/web --timeout=5s").await?;
            let now = stage.member.run(pod).await?;
            ensure!(!now.contains(' ') && !now.is_empty() && now != first, "{first}, then {now}");
            let owner = "jsonpath={.items[0].metadata.ownerReferences[0].uid}";
            let owner = stage.member.args(&["get", "pods", "-l", "app=web", "-o", owner]).await?;
            let there = "get configmaps -l federlet.io/host -o jsonpath={.items[*].metadata.uid}";
            let there = stage.member.run(there).await?;
            ensure!(owner == there, "it belongs to {owner}, and there is {there:?}");
            Ok(())
        })
        .await
    })
    .await
}

/// Its finalizer holds the pod until the Job has counted it, by what the member said of its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_job_that_ends_well_when_it_is_told_to_counts_as_done() -> Result<()> {
    on_stage("told", async |stage| {
        let gentle = "trap 'exit 0' TERM; touch /tmp/begun; while true; do sleep 0.2; done";
        let mut template = spec(MEMBER1, runs(gentle, "Never"));
        template["containers"][0]["readinessProbe"] = json!({
            "exec": {"command": ["test", "-e", "/tmp/begun"]}, "periodSeconds": 1,
        });
        template["terminationGracePeriodSeconds"] = json!(30);
        // By default a Job counts a pod as failed as soon as somebody deletes it.
        let job = json!({
            "backoffLimit": 0, "podReplacementPolicy": "Failed", "template": {"spec": template},
        });
        stage.create(&workload("Job", "gentle", &job)).await?;
        let of_it = ["-l", "job-name=gentle", "--timeout=60s"];
        eventually("its pod is there", SOON, async || {
            let pods = stage.host.args(&["get", "pods", "-l", "job-name=gentle", "-o", "name"]).await?;
            ensure!(!pods.is_empty(), "not yet");
            Ok(())
        })
        .await?;
        stage.host.args(&[&["wait", "pods", "--for=condition=Ready"], &of_it[..]].concat()).await?;
        stage.host.args(&[&["delete", "pods"], &of_it[..]].concat()).await?;
        eventually("the Job has counted it", SOON, async || {
            let path = "jsonpath={.status.succeeded}/{.status.failed}";
            let counted = stage.host.args(&["get", "job", "gentle", "-o", path]).await?;
            ensure!(counted == "1/", "succeeded/failed: {counted}");
            Ok(())
        })
        .await
    })
    .await
}
