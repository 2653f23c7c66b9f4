//! Claims: they hold data, so they outlive pods.

use anyhow::{Context, Result, ensure};
use federlet_e2e::SOON;
use federlet_provider::{
    copy::StorageClasses,
    follow::claims::{PROVISIONER, csi_driver, storage_class},
    settings::MemberSettings,
};
use federlet_sandbox::eventually;
use k8s_openapi::api::{
    core::v1::PersistentVolume,
    storage::v1::{CSIDriver, StorageClass},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    stage::{QUICK, Stage},
    staged,
};

fn claim(stage: &Stage, name: &str, class: Option<&str>) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": stage.host.namespace },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    if let Some(class) = class {
        claim["spec"]["storageClassName"] = class.into();
    }
    claim
}

/// Makes a claim as if the host's scheduler had chosen the node for it.
async fn choose(stage: &Stage, name: &str) -> Result<()> {
    let mut chosen = claim(stage, name, Some(&stage.node));
    chosen["metadata"]["annotations"] = json!({ "volume.kubernetes.io/selected-node": stage.node });
    stage.host.create(&chosen).await.map(drop)
}

/// Waits until a claim of the host is bound; its volume.
async fn bound(stage: &Stage, name: &str) -> Result<String> {
    eventually("the claim is bound", SOON, async || {
        let claim = stage.host.get("PersistentVolumeClaim", name).await?.context("no claim")?;
        ensure!(claim["status"]["phase"] == "Bound", "{}", claim["status"]);
        Ok(claim["spec"]["volumeName"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

fn using(claim: &str) -> Value {
    json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] })
}

async fn member_claim(stage: &Stage, name: &str) -> Result<Value> {
    stage.member.get("PersistentVolumeClaim", name).await?.context("the member has no such claim")
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

async fn gone(stage: &Stage, name: &str) -> Result<()> {
    eventually("the member's claim is gone", SOON, async || {
        ensure!(stage.member.get("PersistentVolumeClaim", name).await?.is_none(), "it is there");
        Ok(())
    })
    .await
}

/// Our class on the host, and the one it leads to in the member. Both are called like the node.
async fn classes(stage: &Stage) -> Result<()> {
    let mut ours = storage_class(&stage.node);
    ours["parameters"] = json!({ "storageClassName": stage.node });
    let theirs = json!({
        "metadata": { "name": stage.node }, "provisioner": "kubernetes.io/no-provisioner",
        "allowVolumeExpansion": true, "volumeBindingMode": "Immediate",
    });
    for (client, class) in [(&stage.host.client, ours), (&stage.member.client, theirs)] {
        Api::<StorageClass>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(class)?)
            .await?;
    }
    let volume = json!({
        "metadata": { "name": stage.node },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": stage.node,
            "hostPath": { "path": "/tmp/nothing" }, "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(stage.member.client.clone());
    volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
    // Every test wants the same one.
    let drivers: Api<CSIDriver> = Api::all(stage.host.client.clone());
    match drivers.create(&PostParams::default(), &serde_json::from_value(csi_driver())?).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_has_its_volumes_in_the_member() -> Result<()> {
    staged("sts", async |stage| {
        let running = stage.start(QUICK).await?;
        classes(stage).await?;
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "db", "namespace": stage.host.namespace },
            "spec": {
                "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
                "template": {
                    "metadata": { "labels": { "app": "db" } },
                    "spec": {
                        "nodeSelector": { "kubernetes.io/hostname": stage.node },
                        "tolerations": [{ "operator": "Exists" }],
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{ "name": "app", "image": "nginx", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
                    },
                },
                "volumeClaimTemplates": [{
                    "metadata": { "name": "data" },
                    "spec": {
                        "accessModes": ["ReadWriteOnce"], "storageClassName": stage.node,
                        "resources": { "requests": { "storage": "1Gi" } },
                    },
                }],
            },
        });
        stage.host.create(&set).await?;
        let bound_pod = async |but: &str| {
            eventually("the host's scheduler lets the pod through", SOON, async || {
                let pod = stage.host.get("Pod", "db-0").await?.context("no pod")?;
                ensure!(uid(&pod) != but, "it is the one before");
                ensure!(pod["spec"]["nodeName"] == stage.node.as_str(), "it is not bound: {}", pod["status"]);
                Ok(federlet_node::contract::Pod::try_from(pod)?)
            })
            .await
        };
        let first = bound_pod("").await?;
        let original = stage.host.get("PersistentVolumeClaim", "data-db-0").await?.context("no claim")?;
        ensure!(original["status"]["phase"] == "Bound", "{}", original["status"]);
        let volumes: Api<PersistentVolume> = Api::all(stage.host.client.clone());
        let volume_name = original["spec"]["volumeName"].as_str().context("no volume")?;
        let volume = serde_json::to_value(volumes.get(volume_name).await?)?;
        ensure!(volume["spec"]["csi"]["driver"] == PROVISIONER);
        let copy = member_claim(stage, "data-db-0").await?;
        ensure!(copy["spec"]["storageClassName"] == stage.node.as_str() && volume["spec"]["csi"]["volumeHandle"] == uid(&copy));
        running.bring(&first).await?;

        // The pod goes and comes back, and the data is where it was.
        stage.host.delete("Pod", "db-0").await?;
        running.follow.release(first.id());
        tokio::time::sleep(QUICK.linger * 2).await;
        let second = bound_pod(first.uid()).await?;
        running.bring(&second).await?;
        ensure!(uid(&member_claim(stage, "data-db-0").await?) == uid(&copy), "it is another claim");

        // It grows there, and then here.
        eventually("the member binds its claim", SOON, async || {
            let claim = member_claim(stage, "data-db-0").await?;
            ensure!(claim["status"]["phase"] == "Bound", "{}", claim["status"]);
            Ok(())
        })
        .await?;
        let more = |size: &str| json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        stage.host.patch("PersistentVolumeClaim", "data-db-0", &more("2Gi")).await?;
        eventually("it grows in the member", SOON, async || {
            let claim = member_claim(stage, "data-db-0").await?;
            ensure!(claim["spec"]["resources"]["requests"]["storage"] == "2Gi", "{}", claim["spec"]);
            Ok(())
        })
        .await?;
        let capacity = json!({ "status": { "capacity": { "storage": "2Gi" } } });
        let claims = stage.member.api("PersistentVolumeClaim");
        claims.patch_status("data-db-0", &PatchParams::default(), &Patch::Merge(&capacity)).await?;
        eventually("the host sees its size", SOON, async || {
            let claim = stage.host.get("PersistentVolumeClaim", "data-db-0").await?.context("no claim")?;
            ensure!(claim["status"]["capacity"]["storage"] == "2Gi", "{}", claim["status"]);
            Ok(())
        })
        .await?;

        stage.host.delete("StatefulSet", "db").await?;
        stage.host.delete("Pod", "db-0").await.ok();
        running.follow.release(second.id());
        stage.host.delete("PersistentVolumeClaim", "data-db-0").await?;
        gone(stage, "data-db-0").await?;
        eventually("and so is the host's volume", SOON, async || {
            ensure!(volumes.get_opt(volume_name).await?.is_none(), "it is there");
            Ok(())
        })
        .await?;
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_is_to_be_kept_is_kept() -> Result<()> {
    staged("retain", async |stage| {
        let running = stage.start(QUICK).await?;
        classes(stage).await?;
        choose(stage, "kept").await?;
        let volume = bound(stage, "kept").await?;
        let there = member_claim(stage, "kept").await?;
        let volumes: Api<PersistentVolume> = Api::all(stage.host.client.clone());
        let keep = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
        volumes.patch(&volume, &PatchParams::default(), &Patch::Merge(&keep)).await?;
        stage.host.delete("PersistentVolumeClaim", "kept").await?;
        eventually("it is the member's own", SOON, async || {
            let now = member_claim(stage, "kept").await?;
            ensure!(now["metadata"].get("ownerReferences").is_none(), "{}", now["metadata"]);
            ensure!(uid(&now) == uid(&there));
            Ok(())
        })
        .await?;
        volumes.delete(&volume, &DeleteParams::default()).await?;
        running.stop().await?;
        let running = stage.start(QUICK).await?;
        tokio::time::sleep(QUICK.linger * 3).await;
        ensure!(uid(&member_claim(stage, "kept").await?) == uid(&there));
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_lives_as_long_as_the_hosts() -> Result<()> {
    staged("claim", async |stage| {
        let running = stage.start(QUICK).await?;
        for name in ["first", "second"] {
            stage.host.create(&claim(stage, name, None)).await?;
            let pod = stage.pod(name, &using(name)).await?;
            running.bring(&pod).await?;
            ensure!(member_claim(stage, name).await?["spec"].get("volumeName").is_none());
            running.follow.release(pod.id());
            stage.host.delete("Pod", name).await?;
        }
        let kept = uid(&member_claim(stage, "first").await?);
        tokio::time::sleep(QUICK.linger * 3).await;
        ensure!(uid(&member_claim(stage, "first").await?) == kept);
        stage.host.delete("PersistentVolumeClaim", "first").await?;
        gone(stage, "first").await?;
        running.stop().await?;

        stage.host.delete("PersistentVolumeClaim", "second").await?;
        stage.host.create(&claim(stage, "third", None)).await?;
        let theirs = stage.member.create(&claim(stage, "third", None)).await?;
        let running = stage.start(QUICK).await?;
        gone(stage, "second").await?;

        let pod = stage.pod("third", &using("third")).await?;
        let refusal = running.bring(&pod).await.expect_err("the name is taken");
        ensure!(refusal.to_string().contains("PersistentVolumeClaim third"), "{refusal}");
        running.follow.release(pod.id());
        stage.host.delete("PersistentVolumeClaim", "third").await?;
        tokio::time::sleep(QUICK.linger * 2).await;
        ensure!(uid(&member_claim(stage, "third").await?) == uid(&theirs));
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_the_host_is_not_shown_as_an_empty_volume() -> Result<()> {
    staged("data", async |stage| {
        let running = stage.start(QUICK).await?;
        let name = format!("{}-volume", stage.node);
        let volume = json!({
            "metadata": { "name": name },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
                "hostPath": { "path": "/tmp/nothing" }, "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": { "namespace": stage.host.namespace, "name": "data" },
            },
        });
        let volumes: Api<PersistentVolume> = Api::all(stage.host.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let tried = async {
            stage.host.create(&claim(stage, "data", Some("by-hand"))).await?;
            bound(stage, "data").await?;
            let pod = stage.pod("web", &using("data")).await?;
            let refusal = running.bring(&pod).await.expect_err("its data is not there");
            ensure!(refusal.reason() == "VolumeOnHost" && refusal.to_string().contains(&name), "{refusal}");
            ensure!(stage.member.get("PersistentVolumeClaim", "data").await?.is_none());

            // Somebody says that it is to be another volume there.
            let mut settings = MemberSettings::clone(&running.site.settings());
            settings.storage_classes = StorageClasses::new([("by-hand".to_owned(), "theirs".to_owned())]);
            running.site.change_settings(settings);
            running.bring(&pod).await?;
            ensure!(member_claim(stage, "data").await?["spec"]["storageClassName"] == "theirs");
            Ok(())
        }
        .await;
        volumes.delete(&name, &DeleteParams::default()).await?;
        tried?;
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_is_gone_or_elsewhere_is_said() -> Result<()> {
    staged("gone", async |stage| {
        let running = stage.start(QUICK).await?;
        classes(stage).await?;
        choose(stage, "lost").await?;
        let volume = bound(stage, "lost").await?;
        // A volume as one of another node looks.
        let volumes: Api<PersistentVolume> = Api::all(stage.host.client.clone());
        let mut other = serde_json::to_value(volumes.get(&volume).await?)?;
        let name = format!("{}-elsewhere", stage.node);
        other["metadata"] = json!({ "name": name });
        other["status"] = Value::Null;
        other["spec"]["claimRef"] = json!({ "namespace": stage.host.namespace, "name": "elsewhere" });
        other["spec"]["csi"]["volumeAttributes"]["node"] = "another".into();
        other["spec"]["persistentVolumeReclaimPolicy"] = "Retain".into();
        volumes.create(&PostParams::default(), &serde_json::from_value(other)?).await?;
        let tried = async {
            let mut elsewhere = claim(stage, "elsewhere", Some(&stage.node));
            elsewhere["spec"]["volumeName"] = name.clone().into();
            stage.host.create(&elsewhere).await?;
            bound(stage, "elsewhere").await?;
            let pod = stage.pod("elsewhere", &using("elsewhere")).await?;
            let refusal = running.bring(&pod).await.expect_err("its data is in another member");
            ensure!(
                refusal.reason() == "VolumeElsewhere" && refusal.to_string().contains("another"),
                "{refusal}"
            );

            stage.member.delete("PersistentVolumeClaim", "lost").await?;
            gone(stage, "lost").await?;
            let pod = stage.pod("lost", &using("lost")).await?;
            let refusal = running.bring(&pod).await.expect_err("its data is gone");
            ensure!(refusal.reason() == "ClaimLost", "{refusal}");
            Ok(())
        }
        .await;
        volumes.delete(&name, &DeleteParams::default()).await?;
        tried?;
        running.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_claim_comes_and_goes_with_its_pod() -> Result<()> {
    staged("ephemeral", async |stage| {
        let running = stage.start(QUICK).await?;
        let template = json!({ "spec": claim(stage, "", None)["spec"] });
        let spec =
            json!({ "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": template } }] });
        let pod = stage.pod("web", &spec).await?;
        eventually("the host's controller makes the claim", SOON, async || {
            Ok::<_, anyhow::Error>(running.bring(&pod).await?)
        })
        .await?;
        member_claim(stage, "web-scratch").await?;
        stage.host.delete("Pod", "web").await?;
        running.follow.release(pod.id());
        gone(stage, "web-scratch").await?;

        // A claim of that name that somebody made is not the pod's.
        stage.host.create(&claim(stage, "other-scratch", None)).await?;
        let other = stage.pod("other", &spec).await?;
        let refusal = running.bring(&other).await.expect_err("it is not its claim");
        ensure!(refusal.reason() == "ClaimNotOfPod", "{refusal}");
        running.stop().await
    })
    .await
}
