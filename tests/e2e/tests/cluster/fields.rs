use anyhow::{Result, ensure};
use federlet_e2e::{SOON, fleet::MEMBER1};
use federlet_sandbox::eventually;
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
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn init_sidecar_and_ephemeral_containers_and_hooks_work() -> Result<()> {
    on_stage("containers", async |stage| {
        let mount = json!([{"name": "work", "mountPath": "/work"}]);
        let init = json!([
            {"name": "first", "image": "busybox", "command": ["sh", "-c", "echo first > /work/order"], "volumeMounts": mount},
            {"name": "side", "image": "busybox", "restartPolicy": "Always", "command": ["sleep", "1000"], "volumeMounts": mount},
        ]);
        let hooks = json!({"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo hook >> /work/order"]}}},
            "readinessProbe": {"exec": {"command": ["test", "-e", "/work/ready"]}, "periodSeconds": 1},
            "volumeMounts": mount});
        let many = json!({"initContainers": init, "volumes": [{"name": "work", "emptyDir": {}}],
            "containers": busybox("sleep 1000", hooks)});
        stage.create(&pod("many", &spec(MEMBER1, many))).await?;
        stage.says("many", ".status.containerStatuses[0].started", "true").await?;
        ensure!(stage.field("many", ".status.containerStatuses[0].ready").await? == "false", "its probe fails");
        stage.exec("many", "touch /work/ready").await?;
        stage.ready("many").await?;
        ensure!(stage.exec("many", "cat /work/order").await? == "first\nhook");
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
        let sized = json!({"nodeName": MEMBER1, "containers": busybox("sleep 1000", resources)});
        let mut object = pod("sized", &spec(MEMBER1, sized));
        // Kept off the member's machines: a kubelet without cgroups per pod, as the sandbox's, crashes when it resizes.
        object["metadata"]["annotations"] =
            json!({"federlet.io/constraints": json!({"nodeSelector": {"no": "where"}}).to_string()});
        stage.create(&object).await?;
        let limit = async || {
            stage.member.run("get pod sized -o jsonpath={.spec.containers[0].resources.limits.cpu}").await
        };
        eventually("it is in the member", SOON, async || {
            ensure!(limit().await? == "100m", "not yet");
            Ok(())
        })
        .await?;
        let uid = stage.member.run("get pod sized -o jsonpath={.metadata.uid}").await?;
        let resize = json!({"spec": {"containers": [{"name": "app",
            "resources": {"requests": {"cpu": "70m"}, "limits": {"cpu": "140m"}}}]}});
        stage
            .host
            .args(&["patch", "pod", "sized", "--subresource=resize", "-p", &resize.to_string()])
            .await?;
        eventually("it has its new size in the member", SOON, async || {
            ensure!(limit().await? == "140m", "it has {}", limit().await?);
            Ok(())
        })
        .await?;
        ensure!(
            stage.member.run("get pod sized -o jsonpath={.metadata.uid}").await? == uid,
            "it is the same pod"
        );
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
