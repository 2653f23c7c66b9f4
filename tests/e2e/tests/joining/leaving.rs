//! What joining makes, and that leaving takes all of it away.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Cluster, eventually};
use serde_json::json;

use crate::ground::{on_ground, pod};

/// Everything of the kinds that we make, in all namespaces.
async fn everything(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let kinds = "namespaces,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,pods,configmaps,\
                 secrets,services,persistentvolumeclaims";
    let columns = "custom-columns=K:.kind,NS:.metadata.namespace,N:.metadata.name";
    let words = ["get", kinds, "--all-namespaces", "--no-headers", "-o", columns];
    let found = cluster.kubectl_output(&words).await?;
    Ok(found.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_and_leaves_and_nothing_remains() -> Result<()> {
    on_ground("leaving", async |ground| {
        let member = ground.member("member1")?;
        let (before, host_before) = (everything(&member).await?, everything(&ground.host).await?);
        // A host that never heard of Clusters learns of them.
        let definition = "customresourcedefinition/clusters.cluster.karmada.io";
        ground.host.kubectl_output(&["delete", definition, "--ignore-not-found"]).await?;
        let flags = [
            "--labels",
            "env=prod,team=a",
            "--taints",
            "team=a:NoSchedule",
            "--provider",
            "acme",
            "--region",
            "north",
            "--zone",
            "n1",
        ];
        let said = ground.join("j-one", "member1", &flags).await?;
        ensure!(said.contains("cluster j-one (v") && said.contains("node j-one is Ready"), "{said}");
        ensure!(said.contains("kubectl get node j-one"), "it says what to do next: {said}");

        let labels = ground.field("node/j-one", ".metadata.labels").await?;
        for label in [
            r#""env":"prod""#,
            r#""team":"a""#,
            r#""topology.kubernetes.io/region":"north""#,
            r#""topology.kubernetes.io/zone":"n1""#,
            r#""node-role.kubernetes.io/cluster":"""#,
        ] {
            ensure!(labels.contains(label), "{label} is not in {labels}");
        }
        // The host takes off its own, of a node that is not Ready, a moment later.
        eventually("the node has the taints of its Cluster", SOON, async || {
            let taints = ground.field("node/j-one", ".spec.taints[*].key").await?;
            let ours = ["virtual-kubelet.io/provider team", "team virtual-kubelet.io/provider"];
            ensure!(ours.contains(&&*taints), "{taints}");
            Ok(())
        })
        .await?;
        let id = ground.field("cluster/j-one", ".spec.id").await?;
        let uid = member
            .kubectl_output(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"])
            .await?;
        ensure!(id == uid);
        let table = ground.host.kubectl_output(&["get", "clusters", "-o", "wide"]).await?;
        let header: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
        ensure!(
            header == ["NAME", "VERSION", "MODE", "READY", "AGE", "REGION", "ZONES", "PROVIDER", "ENDPOINT"],
            "{table}"
        );

        // The same again changes nothing.
        let version = ground.field("cluster/j-one", ".metadata.generation").await?;
        let said = ground.join("j-one", "member1", &flags).await?;
        ensure!(said.contains("joined before"), "{said}");
        ensure!(ground.field("cluster/j-one", ".metadata.generation").await? == version);

        ground
            .sandbox
            .in_namespace("leaving", async |space| {
                let kubectl = ground.kubectl(&space.namespace);
                kubectl.run("create configmap settings --from-literal=a=b").await?;
                let mut web = pod("web", "j-one");
                web["metadata"]["namespace"] = space.namespace.clone().into();
                web["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
                ground.apply(&web).await?;
                kubectl.run("wait pod/web --for=condition=Ready --timeout=60s").await?;
                // Right after joining, without anybody approving anything.
                ensure!(kubectl.run("exec web -- hostname").await?.trim() == "web");
                let there = Kubectl::new(member.clone(), &space.namespace);
                there.run("get pod web").await?;

                let said = ground.federlet(&["unjoin", "j-one"]).await?;
                ensure!(said.contains("cluster j-one left"), "{said}");
                ensure!(there.run("get pod web").await.is_err(), "its pod is gone in the member");
                ensure!(kubectl.run("get pod web").await.is_err(), "and on the host");
                ensure!(ground.host.kubectl_output(&["get", "node", "j-one"]).await.is_err());
                Ok(())
            })
            .await?;
        nothing_is_left(&member, &before).await?;
        nothing_is_left(&ground.host, &host_before).await
    })
    .await
}

async fn nothing_is_left(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    eventually("nothing of ours is left", SOON, async || {
        let after = everything(cluster).await?;
        let new: Vec<&String> =
            after.difference(before).filter(|line| !line.contains("federlet-system")).collect();
        ensure!(new.is_empty(), "{}: {new:?}", cluster.name());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn regions_share_an_account_until_the_last_one_leaves() -> Result<()> {
    on_ground("regions", async |ground| {
        let edge = ground.member("edge")?;
        let before = everything(&edge).await?;
        for region in ["beijing", "hangzhou"] {
            let selector = format!("location={region}");
            ground.join(&format!("j-{region}"), "edge", &["--region-selector", &selector]).await?;
        }
        let role = ground.field("node/j-beijing", ".metadata.labels.kubernetes\\.io/role").await?;
        ensure!(role == "region", "{role}");
        let secrets =
            ground.host.kubectl_output(&["get", "secrets", "-n", "federlet-system", "-o", "name"]).await?;
        ensure!(secrets.lines().count() == 1, "they share one: {secrets}");
        // The whole of it would meet both of them.
        let refused = ground.join("j-edge", "edge", &[]).await;
        ensure!(refused.is_err_and(|error| error.to_string().contains("is joined already, as j-")));

        ground.host.kubectl_output(&["delete", "cluster", "j-beijing", "--timeout=60s"]).await?;
        ground.is_ready("j-hangzhou").await?;
        ensure!(edge.kubectl_output(&["get", "clusterroles"]).await?.contains("federlet-host-"));
        ground.federlet(&["unjoin", "j-hangzhou"]).await?;
        nothing_is_left(&edge, &before).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_is_left_by_force() -> Result<()> {
    on_ground("force", async |ground| {
        ground.join("j-one", "member1", &[]).await?;
        let there = ground.field("cluster/j-one", ".spec.apiEndpoint").await?;
        let nowhere = json!({"spec": {"apiEndpoint": there.replace(":6443", ":1")}}).to_string();
        ground.host.kubectl_output(&["patch", "cluster", "j-one", "--type=merge", "-p", &nowhere]).await?;
        ground.says("j-one", "MemberReachable", "NotReachable").await?;
        let late = ground.federlet(&["unjoin", "j-one", "--wait", "8s"]).await;
        let late = late.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(late.contains("does not answer") && late.contains("--force"), "{late}");
        let said = ground.federlet(&["unjoin", "j-one", "--force"]).await?;
        ensure!(said.contains("left on the host") && said.contains("federlet.io/node=j-one"), "{said}");
        for object in ["node/j-one", "cluster/j-one"] {
            ensure!(ground.host.kubectl_output(&["get", object]).await.is_err(), "{object} is still there");
        }
        // It can come back as if nothing had been.
        ground.join("j-one", "member1", &[]).await?;
        ground.federlet(&["unjoin", "j-one"]).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_left_where_nobody_serves() -> Result<()> {
    on_ground("unserved", async |ground| {
        let member = ground.member("member1")?;
        let before = everything(&member).await?;
        ground.join("j-one", "member1", &[]).await?;
        ground.serve.terminate().await?;
        let said = ground.join("j-one", "member1", &[]).await?;
        ensure!(said.contains("no `federlet serve` runs"), "{said}");
        ground.federlet(&["unjoin", "j-one"]).await?;
        nothing_is_left(&member, &before).await
    })
    .await
}
