use std::time::Duration;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{
    Kubectl, SOON,
    fleet::MEMBER1,
    objects::{pipe, pod, spec},
    stage::on_stage,
};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{MEMBERS, REGIONS};

/// Pods that are deleted while others are created.
fn doomed() -> Vec<String> {
    (0..200).step_by(4).map(|number| format!("pod-{number}")).collect()
}

async fn delete(kubectl: &Kubectl, pods: &[String]) -> Result<String> {
    let mut words = vec!["delete", "pod", "--wait=false", "--ignore-not-found"];
    words.extend(pods.iter().map(String::as_str));
    kubectl.args(&words).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_leaves_one_pod_for_each_and_no_orphans() -> Result<()> {
    let _members = MEMBERS.lock().await;
    let _regions = REGIONS.lock().await;
    on_stage("killed", async |stage| {
        let serve = &stage.fleet.serve;
        // No machine of the member takes them, so that two hundred cost nothing; all else about them is real.
        let mut object = pod("pod", &spec(MEMBER1, json!({"nodeName": MEMBER1})));
        object["metadata"]["annotations"] =
            json!({"federlet.io/constraints": json!({"nodeSelector": {"no": "where"}}).to_string()});
        stage.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}, "stringData": {"a": "b"}})).await?;
        object["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "own"}}]);
        let list: Vec<Value> = (0..200)
            .map(|number| {
                let mut object = object.clone();
                object["metadata"]["name"] = format!("pod-{number}").into();
                object
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": list});
        let create = pipe(&stage.host, &["create", "-f", "-"], &list);
        let disturb = async {
            for pause in [900, 350, 1700, 120, 2600, 700] {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                serve.kill().await?;
                serve.restart().await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        let remove = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            for some in doomed().chunks(5) {
                let _ = delete(&stage.host, some).await;
            }
            Ok::<_, anyhow::Error>(())
        };
        let (created, disturbed, removed) = tokio::join!(create, disturb, remove);
        created?;
        disturbed?;
        removed?;
        // Some may have been deleted before they were created.
        delete(&stage.host, &doomed()).await?;
        eventually("each host pod has its one pod in the member", 3 * SOON, async || {
            let uids = |text: String| -> Result<Vec<String>> {
                let mut uids: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
                uids.sort();
                Ok(uids)
            };
            let host = uids(stage.host.run("get pods -o jsonpath={.items[*].metadata.uid}").await?)?;
            let path = "get pods -o jsonpath={.items[*].metadata.labels.federlet\\.io/host-uid}";
            let member = uids(stage.member.run(path).await?)?;
            ensure!(host.len() == 150, "the host has {} pods", host.len());
            ensure!(host == member, "{} pods on the host, {} in the member", host.len(), member.len());
            Ok(())
        })
        .await
        .with_context(|| serve.tail())?;
        stage.host.run("delete pods --all --wait=false").await?;
        eventually("nothing of ours is left but the anchor", 2 * SOON, async || {
            let left = stage.member.run("get pods,secrets,configmaps,services -l federlet.io/host -o name").await?;
            let left: Vec<&str> = left.lines().filter(|name| !name.starts_with("configmap/federlet-")).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    })
    .await
}
