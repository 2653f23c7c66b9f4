//! Namespaces that we made in a member, and what others have there: data that is to be kept, and things of their own.

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_provider::follow::claims::{csi_driver, storage_class};
use federlet_sandbox::{Cluster, eventually};
use serde_json::{Value, json};

use crate::ground::{Ground, on_ground, pod};

/// The storage class of this test.
const CLASS: &str = "j-sharing";
pub(crate) const NODE: &str = "j-one";

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A claim as the host's scheduler leaves it when it has chosen the node.
pub(crate) fn claim(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"volume.kubernetes.io/selected-node": NODE}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": {"requests": {"storage": "1Gi"}}}})
}

/// Makes a namespace on the host with a pod on the node, so that the member has it, too.
pub(crate) async fn open(ground: &Ground, name: &str) -> Result<Kubectl> {
    ground.apply(&namespace(name)).await?;
    let kubectl = ground.kubectl(name);
    let mut web = pod("web", NODE);
    web["metadata"]["namespace"] = name.into();
    // Admission makes the account a moment after the namespace.
    eventually("the pod is taken", SOON, async || ground.apply(&web).await).await?;
    kubectl.run("wait pod/web --for=condition=Ready --timeout=60s").await?;
    Ok(kubectl)
}

/// Makes a claim whose data is in the member, and says what becomes of it when the claim goes. The host's volume.
pub(crate) async fn bound(ground: &Ground, namespace: &str, name: &str, policy: &str) -> Result<String> {
    ground.apply(&claim(namespace, name)).await?;
    let kubectl = ground.kubectl(namespace);
    let volume = eventually("the claim is bound", SOON, async || {
        let path = "jsonpath={.status.phase} {.spec.volumeName}";
        let found = kubectl.args(&["get", "pvc", name, "-o", path]).await?;
        Ok::<_, anyhow::Error>(found.strip_prefix("Bound ").with_context(|| found.clone())?.to_owned())
    })
    .await?;
    let policy = json!({"spec": {"persistentVolumeReclaimPolicy": policy}}).to_string();
    ground.host.kubectl_output(&["patch", "pv", &volume, "--type=merge", "-p", &policy]).await?;
    Ok(volume)
}

pub(crate) async fn gone(cluster: &Cluster, kind: &str, name: &str) -> Result<()> {
    eventually(&format!("{kind} {name} is gone"), 2 * SOON, async || {
        let found = cluster.kubectl_output(&["get", kind, name, "--ignore-not-found", "-o", "name"]).await?;
        ensure!(found.is_empty(), "it is there");
        Ok(())
    })
    .await
}

/// Waits until a namespace of the member is nobody's, and nothing of ours is in it.
async fn let_go(member: &Cluster, name: &str) -> Result<()> {
    let there = Kubectl::new(member.clone(), name);
    eventually(&format!("{name} is the member's own"), 2 * SOON, async || {
        let labels = there.args(&["get", "namespace", name, "-o", "jsonpath={.metadata.labels}"]).await?;
        ensure!(!labels.contains("federlet.io"), "{labels}");
        let kinds = "get pods,secrets,configmaps,services,pvc -l federlet.io/host -o name";
        let ours = there.run(kinds).await?;
        ensure!(ours.is_empty(), "{ours}");
        Ok(())
    })
    .await
}

pub(crate) async fn storage(ground: &Ground) -> Result<()> {
    ground.apply(&storage_class(CLASS)).await?;
    ground.apply(&csi_driver()).await
}

pub(crate) async fn clean(
    ground: &Ground,
    member: &Cluster,
    namespaces: &[&str],
    volumes: &[&str],
) -> Result<()> {
    for cluster in [&ground.host, member] {
        for name in namespaces {
            let words = ["delete", "namespace", name, "--ignore-not-found", "--wait=false"];
            cluster.kubectl_output(&words).await?;
        }
    }
    for name in volumes {
        ground.host.kubectl_output(&["delete", "pv", name, "--ignore-not-found", "--wait=false"]).await?;
    }
    ground.host.kubectl_output(&["delete", "storageclass", CLASS, "--ignore-not-found"]).await.map(drop)
}

/// Plays a test in namespaces of a member that joined, with claims; then takes them away with the volumes that it made.
async fn in_namespaces(
    name: &str,
    names: &[&str],
    play: impl AsyncFnOnce(&Ground, &Cluster, &mut Vec<String>) -> Result<()>,
) -> Result<()> {
    on_ground(name, async |ground| {
        let member = ground.member("member1")?;
        ground.join(NODE, "member1", &[]).await?;
        storage(ground).await?;
        let mut volumes = vec![];
        let played = async {
            for name in names {
                open(ground, name).await?;
            }
            play(ground, &member, &mut volumes).await
        }
        .await;
        let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
        clean(ground, &member, names, &volumes).await?;
        played
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_of_the_host_takes_along_only_what_is_ours() -> Result<()> {
    let names = ["j-plain", "j-shared", "j-kept"];
    in_namespaces("sharing", &names, async |ground, member, volumes| {
        let theirs = Kubectl::new(member.clone(), "j-shared");
        theirs.run("create configmap theirs --from-literal=a=b").await?;
        volumes.push(bound(ground, "j-kept", "kept", "Retain").await?);
        volumes.push(bound(ground, "j-plain", "scratch", "Delete").await?);
        let kept = Kubectl::new(member.clone(), "j-kept");
        let data = kept.run("get pvc kept -o jsonpath={.metadata.uid}").await?;
        for name in names {
            ground.host.kubectl_output(&["delete", "namespace", name, "--timeout=60s"]).await?;
        }
        gone(member, "namespace", "j-plain").await?;
        gone(&ground.host, "pv", &volumes[1]).await?;
        for name in ["j-shared", "j-kept"] {
            let_go(member, name).await?;
        }
        theirs.run("get configmap theirs").await?;
        ensure!(kept.run("get pvc kept -o jsonpath={.metadata.uid}").await? == data, "the data is gone");
        // A namespace of that name may use it again, and does not take it along either.
        open(ground, "j-shared").await?;
        ground.host.kubectl_output(&["delete", "namespace", "j-shared", "--timeout=60s"]).await?;
        let_go(member, "j-shared").await?;
        theirs.run("get configmap theirs").await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_a_member_takes_along_only_what_is_ours() -> Result<()> {
    let names = ["j-left", "j-theirs", "j-data"];
    in_namespaces("leaving-others", &names, async |ground, member, volumes| {
        let theirs = Kubectl::new(member.clone(), "j-theirs");
        theirs.run("create secret generic theirs --from-literal=a=b").await?;
        volumes.push(bound(ground, "j-data", "kept", "Retain").await?);
        volumes.push(bound(ground, "j-left", "scratch", "Delete").await?);
        let data = Kubectl::new(member.clone(), "j-data");
        let kept = data.run("get pvc kept -o jsonpath={.metadata.uid}").await?;
        ground.federlet(&["unjoin", NODE]).await?;
        gone(member, "namespace", "j-left").await?;
        for name in ["j-theirs", "j-data"] {
            let_go(member, name).await?;
        }
        theirs.run("get secret theirs").await?;
        ensure!(data.run("get pvc kept -o jsonpath={.metadata.uid}").await? == kept, "the data is gone");
        // On the host, the volume whose data is kept stays; the other goes with the claim that it is bound to.
        ground.host.kubectl_output(&["get", "pv", &volumes[0]]).await?;
        ground.kubectl("j-left").run("delete pvc scratch --timeout=30s").await?;
        gone(&ground.host, "pv", &volumes[1]).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_was_kept_is_found_again_when_its_member_is_back() -> Result<()> {
    in_namespaces("back", &["j-back"], async |ground, member, volumes| {
        volumes.push(bound(ground, "j-back", "kept", "Retain").await?);
        let there = Kubectl::new(member.clone(), "j-back");
        let uid = there.run("get pvc kept -o jsonpath={.metadata.uid}").await?;
        ground.federlet(&["unjoin", NODE]).await?;
        let_go(member, "j-back").await?;
        ground.join(NODE, "member1", &[]).await?;
        let mut db = pod("db", NODE);
        db["metadata"]["namespace"] = "j-back".into();
        db["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "kept"}}]);
        ground.apply(&db).await?;
        eventually("the pod is in the member, with its data", SOON, async || {
            there.run("get pod db").await?;
            let now = there
                .args(&[
                    "get",
                    "pvc",
                    "kept",
                    "-o",
                    "jsonpath={.metadata.uid} {.metadata.labels.federlet\\.io/node}",
                ])
                .await?;
            ensure!(now == format!("{uid} {NODE}"), "it was {uid} and is {now:?}");
            Ok(())
        })
        .await
    })
    .await
}
