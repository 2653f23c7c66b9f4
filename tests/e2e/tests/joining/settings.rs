//! What a Cluster says about the pods that are sent there.

use anyhow::{Result, ensure};
use federlet_e2e::{SOON, fleet::Serve};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::ground::{Ground, on_ground, pod};

async fn set(ground: &Ground, settings: &Value) -> Result<()> {
    let patch = json!({"spec": {"federlet": settings}}).to_string();
    ground.host.kubectl_output(&["patch", "cluster", "j-one", "--type=merge", "-p", &patch]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_says_about_pods_holds_for_the_next_one() -> Result<()> {
    on_ground("settings", async |ground| {
        ground.join("j-one", "member1", &[]).await?;
        ground
            .sandbox
            .in_namespace("settings", async |space| {
                let kubectl = ground.kubectl(&space.namespace);
                let start = async |name: &str, change: &dyn Fn(&mut Value)| {
                    let mut object = pod(name, "j-one");
                    object["metadata"]["namespace"] = space.namespace.clone().into();
                    change(&mut object["spec"]);
                    ground.apply(&object).await
                };
                let told = async |name: &str, reason: &str| {
                    eventually(&format!("{name} says {reason}"), SOON, async || {
                        let found =
                            kubectl.args(&["get", "pod", name, "-o", "jsonpath={.status.reason}"]).await?;
                        ensure!(found == reason, "it says {found:?}");
                        Ok(())
                    })
                    .await
                };
                // Settings apply at once, but a pod can be quicker than the news of them.
                let api = async |name: &str, expected: &dyn Fn(&str) -> bool| {
                    eventually("a new pod has another API server", SOON, async || {
                        kubectl.args(&["delete", "pod", name, "--ignore-not-found", "--timeout=30s"]).await?;
                        start(name, &|_| {}).await?;
                        kubectl
                            .args(&["wait", &format!("pod/{name}"), "--for=condition=Ready", "--timeout=60s"])
                            .await?;
                        let token =
                            "test -e /var/run/secrets/kubernetes.io/serviceaccount/token && echo token";
                        let script = format!("echo \"[$KUBERNETES_SERVICE_HOST]\" $({token})");
                        let said = kubectl.args(&["exec", name, "--", "sh", "-c", &script]).await?;
                        ensure!(expected(said.trim()), "{said}");
                        Ok(())
                    })
                    .await
                };
                api("host", &|said| said == "[kubernetes.default.svc] token").await?;
                set(ground, &json!({"podApi": "None"})).await?;
                api("none", &|said| said == "[]").await?;
                set(ground, &json!({"podApi": "Member"})).await?;
                api("member", &|said| said.starts_with("[1") && said.ends_with("] token")).await?;

                set(
                    ground,
                    &json!({"podApi": null, "registries": ["registry.example.com", "docker.io/library"]}),
                )
                .await?;
                eventually("images from elsewhere are refused", SOON, async || {
                    kubectl.run("delete pod elsewhere --ignore-not-found --timeout=30s").await?;
                    start("elsewhere", &|spec| spec["containers"][0]["image"] = "quay.io/team/app:1".into())
                        .await?;
                    told("elsewhere", "ImageNotAllowed").await
                })
                .await?;
                start("allowed", &|_| {}).await?;
                kubectl.run("wait pod/allowed --for=condition=Ready --timeout=60s").await?;

                // What is allowed is allowed also to those that wait for it.
                set(ground, &json!({"registries": null})).await?;
                start("files", &|spec| {
                    spec["volumes"] = json!([{"name": "tmp", "hostPath": {"path": "/tmp"}}]);
                })
                .await?;
                start("strong", &|spec| {
                    spec["containers"][0]["securityContext"] = json!({"privileged": true});
                })
                .await?;
                told("files", "HostPathNotAllowed").await?;
                told("strong", "PrivilegedNotAllowed").await?;
                set(
                    ground,
                    &json!({"allow": {"hostPath": true, "privileged": true}, "podAddresses": "Keep"}),
                )
                .await?;
                let there = federlet_e2e::Kubectl::new(ground.member("member1")?, &space.namespace);
                eventually("both are in the member", SOON, async || there.run("get pod files strong").await)
                    .await?;
                kubectl.run("wait pod/files --for=condition=Ready --timeout=60s").await?;
                // Its address is the member's, since somebody said that the host's network leads there.
                let address = "get pod files -o jsonpath={.status.podIP}";
                eventually("its address is shown", SOON, async || {
                    let (shown, own) = (kubectl.run(address).await?, there.run(address).await?);
                    ensure!(shown == own && !own.is_empty(), "{shown:?} for {own:?}");
                    Ok(())
                })
                .await?;

                // A class of the host stands for another one in the member.
                set(ground, &json!({"registries": null, "storageClasses": {"fast": "local"}})).await?;
                let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "data", "namespace": space.namespace},
                    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                        "resources": {"requests": {"storage": "1Gi"}}}});
                ground.apply(&claim).await?;
                start("stored", &|spec| {
                    // Bound by hand: the host's scheduler would wait for a volume.
                    spec["nodeName"] = "j-one".into();
                    spec["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
                })
                .await?;
                eventually("the claim has the member's class", SOON, async || {
                    let class = there.run("get pvc data -o jsonpath={.spec.storageClassName}").await?;
                    ensure!(class == "local", "it has {class}");
                    Ok(())
                })
                .await
            })
            .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_has_no_taint_if_nobody_wants_one() -> Result<()> {
    on_ground("untainted", async |ground| {
        ground.serve.terminate().await?;
        let serve =
            Serve::start(&ground.host, "untainted-serve", &["--identity", "first", "--disable-taint"])
                .await?;
        ground.join("j-one", "member1", &[]).await?;
        eventually("the node has no taint", SOON, async || {
            let taints = ground.field("node/j-one", ".spec.taints[*].key").await?;
            ensure!(taints.is_empty(), "{taints}");
            Ok(())
        })
        .await?;
        ground.federlet(&["unjoin", "j-one"]).await?;
        serve.terminate().await?;
        ground.serve.restart().await
    })
    .await
}
