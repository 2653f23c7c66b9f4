use anyhow::{Result, ensure};
use federlet_e2e::{SOON, fleet::MEMBER1};
use federlet_sandbox::{eventually, images::FEDERLET_IMAGE};
use serde_json::{Value, json};

use crate::{
    objects::{pipe, pod, spec},
    stage::on_stage,
};

fn busybox(command: &str, extra: Value) -> Value {
    let mut container = json!({"name": "app", "image": "busybox", "command": ["sh", "-c", command]});
    if let (Some(container), Value::Object(extra)) = (container.as_object_mut(), extra) {
        container.extend(extra);
    }
    json!([container])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_hears_of_itself_what_the_host_says() -> Result<()> {
    on_stage("downward", async |stage| {
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let env = json!([
            field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("POD_UID", "metadata.uid"),
            field("NODE", "spec.nodeName"), field("ACCOUNT", "spec.serviceAccountName"),
            {"name": "BASE", "value": "b"}, {"name": "DERIVED", "value": "$(BASE)-$(NAME)"},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        ]);
        let containers = busybox("sleep 1000", json!({"env": env, "resources": {"limits": {"cpu": "250m"}}}));
        stage.start("self", json!({"containers": containers, "hostname": "myself", "subdomain": "here"})).await?;
        let said = stage
            .exec("self", "echo $NAME $NS $POD_UID $NODE $ACCOUNT $DERIVED $CPU $(hostname)")
            .await?;
        let uid = stage.field("self", ".metadata.uid").await?;
        let expected = format!("self {} {uid} {MEMBER1} default b-self 250 myself", stage.namespace);
        ensure!(said == expected, "{said}\n{expected}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_talks_to_the_hosts_api_as_its_account() -> Result<()> {
    on_stage("identity", async |stage| {
        let script = "while true; do sleep 1; done";
        stage.start("client", json!({"containers": busybox(script, json!({}))})).await?;
        let here = "/var/run/secrets/kubernetes.io/serviceaccount";
        ensure!(stage.exec("client", &format!("cat {here}/namespace")).await? == stage.namespace);
        // The token is the host's, bound to the host's pod: the host itself says whose it is.
        let token = stage.exec("client", &format!("cat {here}/token")).await?;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let review = pipe(&stage.host, &["create", "-o", "json", "-f", "-"], &review).await?;
        let review: Value = serde_json::from_str(&review)?;
        let user = review["status"]["user"]["username"].as_str().unwrap_or_default().to_owned();
        ensure!(user == format!("system:serviceaccount:{}:default", stage.namespace), "{review}");
        let bound = &review["status"]["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
        ensure!(bound == "client", "{review}");
        // And its API server is the host's, by a name in its certificate.
        let there = stage.exec("client", "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT").await?;
        ensure!(there.starts_with("kubernetes.default.svc:"), "{there}");
        // A client that checks certificates finds its way with what is in the pod, and nothing else.
        let (name, account) = (&stage.namespace, format!("--serviceaccount={}:default", stage.namespace));
        let bind = ["create", "clusterrolebinding", name, "--clusterrole=cluster-admin", &account];
        stage.host.args(&bind).await?;
        let played = async {
            let client = json!({"restartPolicy": "Never",
                "containers": [{"name": "app", "image": FEDERLET_IMAGE, "args": ["get", "clusters"]}]});
            stage.create(&pod("federlet", &spec(MEMBER1, client))).await?;
            eventually("it ended", SOON, async || {
                let phase = stage.field("federlet", ".status.phase").await?;
                ensure!(["Succeeded", "Failed"].contains(&&*phase), "{phase}");
                Ok(())
            })
            .await?;
            let said = stage.host.run("logs federlet").await?;
            ensure!(said.contains(MEMBER1), "{said}");
            Ok(())
        }
        .await;
        stage.host.args(&["delete", "clusterrolebinding", name]).await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_downward_api_follow_the_hosts_labels() -> Result<()> {
    on_stage("files", async |stage| {
        let item = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
        let volume = json!([{"name": "self", "downwardAPI": {"items": [
            item("labels", "metadata.labels"), item("notes", "metadata.annotations"), item("uid", "metadata.uid"),
            item("team", "metadata.labels['team']")]}}]);
        let mount = json!({"volumeMounts": [{"name": "self", "mountPath": "/self"}]});
        let mut object =
            pod("files", &spec(MEMBER1, json!({"volumes": volume, "containers": busybox("sleep 1000", mount)})));
        object["metadata"]["labels"] = json!({"team": "a", "tier": "web"});
        object["metadata"]["annotations"] = json!({"note": "hello"});
        stage.create(&object).await?;
        stage.ready("files").await?;
        let uid = stage.field("files", ".metadata.uid").await?;
        ensure!(stage.exec("files", "cat /self/uid").await? == uid);
        let labels = stage.exec("files", "cat /self/labels").await?;
        ensure!(labels == "team=\"a\"\ntier=\"web\"", "the host's, and no others: {labels}");
        ensure!(stage.exec("files", "grep -c '^note=\"hello\"$' /self/notes").await? == "1");
        stage.host.run("label pod files team=b --overwrite").await?;
        // The member's kubelet looks at volumes about once a minute.
        eventually("the file says so", 3 * SOON, async || {
            let team = stage.exec("files", "cat /self/team").await?;
            ensure!(team == "b", "it says {team}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_starts_late_and_says_goodbye() -> Result<()> {
    on_stage("hooks", async |stage| {
        let hooks = json!({
            "startupProbe": {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 300},
            "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo goodbye > /proc/1/fd/1"]}}},
        });
        stage.create(&pod("late", &spec(MEMBER1, json!({"containers": busybox("sleep 1000", hooks)})))).await?;
        stage.says("late", ".status.containerStatuses[0].started", "false").await?;
        stage.says("late", ".status.phase", "Running").await?;
        ensure!(stage.field("late", ".status.containerStatuses[0].ready").await? == "false");
        stage.exec("late", "touch /tmp/up").await?;
        stage.ready("late").await?;
        let mut follow = stage.host.command(&["logs", "-f", "late"])?;
        let follow = follow.stdout(std::process::Stdio::piped()).spawn()?;
        stage.host.run("delete pod late --timeout=60s").await?;
        let said = tokio::time::timeout(SOON, follow.wait_with_output()).await??;
        let said = String::from_utf8(said.stdout)?;
        ensure!(said.contains("goodbye"), "{said:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn init_sidecar_and_ephemeral_containers_and_hooks_work() -> Result<()> {
    on_stage("containers", async |stage| {
        let mount = json!([{"name": "work", "mountPath": "/notes"}]);
        let init = json!([
            {"name": "first", "image": "busybox", "command": ["sh", "-c", "echo first > /notes/order"], "volumeMounts": mount},
            {"name": "side", "image": "busybox", "restartPolicy": "Always", "command": ["sleep", "1000"], "volumeMounts": mount},
        ]);
        let hooks = json!({"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo hook >> /notes/order"]}}},
            "readinessProbe": {"exec": {"command": ["test", "-e", "/notes/ready"]}, "periodSeconds": 1},
            "volumeMounts": mount});
        let many = json!({"initContainers": init, "volumes": [{"name": "work", "emptyDir": {}}],
            "containers": busybox("sleep 1000", hooks)});
        stage.create(&pod("many", &spec(MEMBER1, many))).await?;
        stage.says("many", ".status.containerStatuses[0].started", "true").await?;
        ensure!(stage.field("many", ".status.containerStatuses[0].ready").await? == "false", "its probe fails");
        stage.exec("many", "touch /notes/ready").await?;
        stage.ready("many").await?;
        ensure!(stage.exec("many", "cat /notes/order").await? == "first\nhook");
        ensure!(stage.field("many", ".status.initContainerStatuses[1].started").await? == "true");
        stage.host.run("debug many --image=busybox --container=look --profile=general -- sleep 500").await?;
        eventually("the ephemeral container runs", SOON, async || {
            let since = stage.field("many", ".status.ephemeralContainerStatuses[0].state.running.startedAt").await?;
            ensure!(!since.is_empty(), "not yet");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_images_change_in_place() -> Result<()> {
    on_stage("changes", async |stage| {
        stage.start("app", json!({"containers": busybox("sleep 1000", json!({}))})).await?;
        let uid = stage.member.run("get pod app -o jsonpath={.metadata.uid}").await?;
        let there = async |path: &str, value: &str| {
            eventually(&format!("the member says {path} = {value}"), SOON, async || {
                let found =
                    stage.member.args(&["get", "pod", "app", "-o", &format!("jsonpath={{{path}}}")]).await?;
                ensure!(found == value, "it says {found}");
                Ok(())
            })
            .await
        };
        stage.host.run("label pod app team=a").await?;
        there(".metadata.labels.team", "a").await?;
        stage.host.run("label pod app team-").await?;
        there(".metadata.labels.team", "").await?;
        stage.host.run("annotate pod app note=b").await?;
        there(".metadata.annotations.note", "b").await?;
        stage.host.run("set image pod/app app=nginx").await?;
        there(".spec.containers[0].image", "nginx").await?;
        ensure!(
            stage.member.run("get pod app -o jsonpath={.metadata.uid}").await? == uid,
            "it is the same pod"
        );
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_resized_in_place() -> Result<()> {
    on_stage("resized", async |stage| {
        let resources = json!({"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]});
        stage.start("sized", json!({"containers": busybox("sleep 1000", resources)})).await?;
        // What its container may use, as the kernel has it, with either version of cgroups.
        let quota = async || {
            let files =
                "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max";
            stage.exec("sized", files).await
        };
        ensure!(quota().await? == "10000", "it begins with {}", quota().await?);
        let container = ".status.containerStatuses[0]";
        let (id, limit) = (format!("{container}.containerID"), format!("{container}.resources.limits.cpu"));
        let (began, before) =
            (stage.field("sized", &id).await?, stage.field("sized", ".metadata.generation").await?);
        let resize = async |request: &str, limit: &str| {
            let size = json!({"spec": {"containers": [{"name": "app",
                "resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}}}]}});
            stage.host.args(&["patch", "pod", "sized", "--subresource=resize", "-p", &size.to_string()]).await
        };
        resize("70m", "140m").await?;
        stage.says("sized", &limit, "140m").await?;
        stage.says("sized", &format!("{container}.allocatedResources.cpu"), "70m").await?;
        eventually("the kernel has its new size", SOON, async || {
            let found = quota().await?;
            ensure!(found == "14000", "it has {found}");
            Ok(())
        })
        .await?;
        let after = stage.field("sized", ".metadata.generation").await?;
        ensure!(after != before, "a resize is a new generation");
        stage.says("sized", ".status.observedGeneration", &after).await?;
        // No machine of the member has so much, its kubelet says so, and the host does not take it for done.
        resize("1000", "1000").await?;
        stage
            .says("sized", ".status.conditions[?(@.type==\"PodResizePending\")].reason", "Infeasible")
            .await?;
        stage.says("sized", &limit, "140m").await?;
        resize("60m", "120m").await?;
        stage.says("sized", &limit, "120m").await?;
        stage.says("sized", ".status.conditions[?(@.type==\"PodResizePending\")].reason", "").await?;
        ensure!(stage.field("sized", &id).await? == began, "it is the same container");
        ensure!(stage.field("sized", &format!("{container}.restartCount")).await? == "0");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_gates_are_the_hosts() -> Result<()> {
    on_stage("gates", async |stage| {
        let gated = json!({"readinessGates": [{"conditionType": "example.com/open"}]});
        stage.create(&pod("gated", &spec(MEMBER1, gated))).await?;
        stage.says("gated", ".status.conditions[?(@.type==\"ContainersReady\")].status", "True").await?;
        stage.says("gated", ".status.conditions[?(@.type==\"Ready\")].status", "False").await?;
        let open = r#"{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}"#;
        stage.host.args(&["patch", "pod", "gated", "--subresource=status", "-p", open]).await?;
        stage.ready("gated").await
    })
    .await
}
