//! What people do to workloads with copies, and what happens to the clusters under them.

use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_e2e::{
    Kubectl, SOON, audit,
    fleet::{MEMBER1, MEMBER2, federlet},
    objects::pipe,
    scene::{Scene, alone, beside, deployment, policy, weights},
    sent::has_there,
};
use federlet_sandbox::{Cluster, eventually};
use serde_json::{Value, json};

use crate::usual::{both, copied, there};

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_of_all_copies_and_exec_goes_into_one() -> Result<()> {
    beside("copystreams", async |stage| {
        stage.obey(&policy("talk", "Pod", "talk", &both())).await?;
        let command = "echo I am here; echo over there >&2; sleep 3600";
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talk", "labels": {"app": "talk"}},
            "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "app", "image": "busybox", "command": ["sh", "-c", command]}]}});
        stage.create(&pod).await?;
        stage.ready("talk").await?;
        copied(stage, "app=talk", 1, 1, 1).await?;
        let logs = stage.host.run("logs talk").await?;
        for node in [MEMBER1, MEMBER2] {
            for said in ["I am here", "over there"] {
                let line = format!("[{node}] {said}");
                ensure!(logs.lines().any(|one| one == line), "{line} is not in {logs}");
            }
            let copy = format!("talk-{node}");
            let logs = stage.host.run(&format!("logs {copy} --tail=1")).await?;
            ensure!(logs.lines().count() == 1 && !logs.contains('['), "{logs}");
            ensure!(stage.exec(&copy, "hostname").await? == "talk");
        }
        let followed = stage.host.run("logs talk --follow --limit-bytes=20").await?;
        ensure!(followed.len() == 20, "{followed:?}");
        // The first by name.
        stage.exec("talk", "touch /tmp/mark").await?;
        ensure!(stage.member.run("exec talk -- ls /tmp/mark").await?.contains("/tmp/mark"));
        let other = stage.host.run(&format!("exec talk-{MEMBER2} -- ls /tmp/mark")).await;
        ensure!(other.is_err(), "the other copy has a disk of its own");
        // Usage is the mean of copies, under the name of their pod.
        eventually("the fleet's node says what the pod uses", 2 * SOON, async || {
            for path in ["metrics/resource", "stats/summary"] {
                let path = format!("/api/v1/nodes/fleet/proxy/{path}");
                let said = stage.fleet.host.kubectl_output(&["get", "--raw", &path]).await?;
                let named = [r#"pod="talk""#, r#""name":"talk""#].iter().any(|name| said.contains(name));
                ensure!(named && !said.contains("talk-"), "{said}");
            }
            Ok(())
        })
        .await?;
        // A copy that somebody takes away comes back, and nobody else notices.
        let uid = stage.field("talk", ".metadata.uid").await?;
        stage.host.run(&format!("delete pod talk-{MEMBER2}")).await?;
        copied(stage, "app=talk", 1, 1, 1).await?;
        ensure!(stage.field("talk", ".metadata.uid").await? == uid);
        stage.host.run("delete pod talk --timeout=60s").await?;
        copied(stage, "app=talk", 0, 0, 0).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_in_percent_counts_copies_and_services_list_only_them() -> Result<()> {
    beside("copybudget", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &both())).await?;
        stage
            .create(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}))
            .await?;
        stage
            .create(
                &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}}),
            )
            .await?;
        stage.create(&deployment("web", 2)).await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        eventually("the budget counts pods and copies", SOON, async || {
            let path = "jsonpath={.status.expectedPods} {.status.currentHealthy} {.status.desiredHealthy}";
            let said = stage.host.args(&["get", "pdb", "web", "-o", path]).await?;
            ensure!(said == "6 6 3", "it says {said:?}");
            Ok(())
        })
        .await?;
        // One copy is evicted by its budget's leave, and comes back.
        let copy =
            stage.host.run("get pods -l federlet.io/copy-of -o jsonpath={.items[0].metadata.name}").await?;
        let path = format!("/api/v1/namespaces/{}/pods/{copy}/eviction", stage.namespace);
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": copy}});
        pipe(&stage.host, &["create", "--raw", &path, "-f", "-"], &eviction).await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        let slices = stage.host.run("get endpointslices -l kubernetes.io/service-name=web -o json").await?;
        let slices: Value = serde_json::from_str(&slices)?;
        let endpoints = slices["items"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        for endpoint in endpoints {
            let name = endpoint["targetRef"]["name"].as_str().unwrap_or_default();
            ensure!(name.ends_with(MEMBER1) || name.ends_with(MEMBER2), "{name} is no copy");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_come_and_go_with_clusters_and_no_deployment_rolls() -> Result<()> {
    beside("copyjoin", async |stage| {
        let label = &stage.namespace;
        let host = &stage.fleet.host;
        let chosen = format!("copies={label}");
        host.kubectl_output(&["label", "cluster", MEMBER1, &chosen, "--overwrite"]).await?;
        let labelled = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"copies": label}}}});
        stage.obey(&policy("web", "Deployment", "web", &labelled)).await?;
        stage.create(&deployment("web", 2)).await?;
        copied(stage, "app=web", 2, 2, 0).await?;
        let uids = "get pods -l app=web,!federlet.io/copy-of -o jsonpath={.items[*].metadata.uid}";
        let before = stage.host.run(uids).await?;
        host.kubectl_output(&["label", "cluster", MEMBER2, &chosen, "--overwrite"]).await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        // A region that joins, and leaves again.
        let edge = stage.fleet.sandbox.cluster("edge")?;
        let words = ["--region-selector", "location=beijing", "--labels", &chosen];
        stage.fleet.join("copies-late", &edge, &words).await?;
        eventually("the region that joined has its copies", 2 * SOON, async || {
            let found = stage.counts("app=web").await?;
            ensure!(found.get("copies-late") == Some(&2) && found.get("fleet") == Some(&2), "{found:?}");
            Ok(())
        })
        .await?;
        let kubeconfig = host.admin_kubeconfig().to_string_lossy();
        federlet(&["unjoin", "copies-late", "--kubeconfig", &kubeconfig]).await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        host.kubectl_output(&["label", "cluster", MEMBER1, "copies-"]).await?;
        copied(stage, "app=web", 2, 0, 2).await?;
        ensure!(stage.host.run(uids).await? == before, "pods were replaced");
        host.kubectl_output(&["label", "cluster", MEMBER2, "copies-"]).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_for_the_copies_of_one_cluster() -> Result<()> {
    beside("copyover", async |stage| {
        let image = |value: &str| {
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "image"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
                "overrideRules": [{"targetCluster": {"clusterNames": [MEMBER2]}, "overriders": {
                    "imageOverrider": [{"component": "Repository", "operator": "replace", "value": value}],
                    "commandOverrider": [{"containerName": "app", "operator": "add", "value": ["sleep", "3600"]}]}}]}})
        };
        stage.apply(&image("busybox")).await?;
        stage.obey(&policy("web", "Deployment", "web", &both())).await?;
        stage.create(&deployment("web", 2)).await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        for (member, image) in [("member1", "nginx"), ("member2", "busybox")] {
            for pod in there(stage, member, "app=web").await?.values() {
                ensure!(pod["spec"]["containers"][0]["image"] == image, "{member} has {}", pod["spec"]["containers"]);
            }
        }
        // What cannot change in a pod that runs replaces copies, not their pods.
        let uids = "get pods -l app=web,!federlet.io/copy-of -o jsonpath={.items[*].metadata.uid}";
        let before = stage.host.run(uids).await?;
        stage.host.run("delete op image").await?;
        eventually("the copies of that cluster are as the others", 2 * SOON, async || {
            let found = there(stage, "member2", "app=web").await?;
            let plain = |pod: &Value| pod["spec"]["containers"][0]["image"] == "nginx";
            ensure!(found.len() == 2 && found.values().all(plain), "{:?}", found.keys());
            Ok(())
        })
        .await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        ensure!(stage.host.run(uids).await? == before, "pods were replaced");
        Ok(())
    })
    .await
}

/// The override `fewer`: one replica in the second member.
fn one_in_member2(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "fewer"}, "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": kind, "name": name}],
        "overrideRules": [{"targetCluster": {"clusterNames": [MEMBER2]}, "overriders": {
            "plaintext": [{"path": "/spec/replicas", "operator": "replace", "value": 1}]}}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_of_replicas_says_how_many_copies_a_cluster_has() -> Result<()> {
    beside("copyfewer", async |stage| {
        let fewer = one_in_member2("Deployment", "web");
        stage.apply(&fewer).await?;
        stage.obey(&policy("web", "Deployment", "web", &both())).await?;
        stage.create(&deployment("web", 3)).await?;
        copied(stage, "app=web", 3, 3, 1).await?;
        stage.host.run("scale deployment/web --replicas=2").await?;
        copied(stage, "app=web", 2, 2, 1).await?;
        stage.host.run("delete op fewer").await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        stage.apply(&fewer).await?;
        copied(stage, "app=web", 2, 2, 1).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_numbered_pods_has_copies_where_there_are_fewer() -> Result<()> {
    beside("copynumbered", async |stage| {
        let fewer = one_in_member2("StatefulSet", "db");
        stage.apply(&fewer).await?;
        stage.obey(&policy("db", "StatefulSet", "db", &both())).await?;
        let mut set = deployment("db", 2);
        set["kind"] = "StatefulSet".into();
        set["spec"]["serviceName"] = "db".into();
        set["spec"]["ordinals"] = json!({"start": 7});
        stage.create(&set).await?;
        stage.host.run("rollout status statefulset/db --timeout=120s").await?;
        copied(stage, "app=db", 2, 2, 1).await?;
        let names: Vec<String> = there(stage, "member2", "app=db").await?.into_keys().collect();
        ensure!(names == ["db-7"], "member2 has {names:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_move_when_a_policy_divides_instead_and_back() -> Result<()> {
    beside("copymove", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &both())).await?;
        stage.create(&deployment("web", 2)).await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        stage.obey(&policy("web", "Deployment", "web", &weights(1, 1))).await?;
        stage.has("app=web", 1, 1).await?;
        let path = "jsonpath={.spec.copies} {.spec.clusters[*].replicas}";
        eventually("the binding says so", SOON, async || {
            let said = stage.host.args(&["get", "rb", "web-deployment", "-o", path]).await?;
            ensure!(said.trim() == "1 1", "it says {said:?}");
            Ok(())
        })
        .await?;
        stage.obey(&policy("web", "Deployment", "web", &both())).await?;
        copied(stage, "app=web", 2, 2, 2).await?;
        // One cluster needs no copies.
        let only = json!({"clusterAffinity": {"clusterNames": [MEMBER2]}});
        stage.obey(&policy("web", "Deployment", "web", &only)).await?;
        stage.has("app=web", 0, 2).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_story_runs_in_both_regions() -> Result<()> {
    beside("copyedge", async |stage| {
        // The file as it is, with the namespace that it names.
        let host = Kubectl::new(stage.fleet.host.clone(), "edge");
        let played = edge_story(&host, stage.fleet.sandbox.cluster("edge")?).await;
        if let Err(error) = &played {
            let pods = host.run("get pods,deployments,services,rb -o wide").await.unwrap_or_default();
            eprintln!("{error:#}\n{pods}");
        }
        host.run("delete namespace edge --timeout=120s").await?;
        played
    })
    .await
}

async fn edge_story(host: &Kubectl, edge: Cluster) -> Result<()> {
    host.args(&["apply", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/edge.yaml")]).await?;
    let regions = [
        ("edge-ke-beijing-cluster", "nginx:1.27"),
        ("edge-ke-hangzhou-cluster", "registry.hangzhou.example.com/nginx:1.27"),
    ];
    for replicas in [1, 2] {
        host.run(&format!("scale deployment/nginx --replicas={replicas}")).await?;
        for (namespace, image) in regions {
            let region = Kubectl::new(edge.clone(), namespace);
            eventually(&format!("{namespace} runs {replicas} of {image}"), 2 * SOON, async || {
                let path = "jsonpath={.items[*].spec.containers[0].image} {.items[*].status.phase}";
                let found = region.args(&["get", "pods", "-l", "app=nginx", "-o", path]).await?;
                let wanted = [vec![image; replicas], vec!["Running"; replicas]].concat().join(" ");
                ensure!(found == wanted, "it has {found:?}");
                Ok(())
            })
            .await?;
            has_there(&region, "service/nginx-service", ".spec.ports[0].port", "80").await?;
            eventually("the Service leads to the pods of the region", SOON, async || {
                let path = "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].targetRef.kind}";
                let words =
                    ["get", "endpointslices", "-l", "kubernetes.io/service-name=nginx-service", "-o", path];
                let found = region.args(&words).await?;
                ensure!(found.split_whitespace().count() == replicas, "it leads to {found:?}");
                Ok(())
            })
            .await?;
        }
        // A replica is Ready when it is so in every region.
        eventually(&format!("the Deployment is {replicas}/{replicas}"), SOON, async || {
            let shown = host.run("get deployment nginx --no-headers").await?;
            let ready = shown.split_whitespace().nth(1).unwrap_or_default();
            ensure!(ready == format!("{replicas}/{replicas}"), "{shown}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_down_holds_up_nobody_else() -> Result<()> {
    alone("copydown", async |stage| {
        for (name, kind) in [("web", "Deployment"), ("db", "StatefulSet")] {
            stage.obey(&policy(name, kind, name, &both())).await?;
        }
        stage.create(&deployment("web", 2)).await?;
        let mut set = deployment("db", 2);
        set["kind"] = "StatefulSet".into();
        set["spec"]["serviceName"] = "db".into();
        stage.create(&set).await?;
        for app in ["web", "db"] {
            copied(stage, &format!("app={app}"), 2, 2, 2).await?;
        }
        let second = stage.fleet.sandbox.cluster("member2")?;
        second.partition().await?;
        let played = async {
            let down = "jsonpath={.status.conditions[?(@.type==\"MemberReachable\")].status}";
            eventually("the member is known to be away", 2 * SOON, async || {
                let said = stage.fleet.host.kubectl_output(&["get", "cluster", MEMBER2, "-o", down]).await?;
                ensure!(said == "False", "{said}");
                Ok(())
            })
            .await?;
            for workload in ["deployment/web", "statefulset/db"] {
                stage.host.run(&format!("set env {workload} MORE=yes")).await?;
                stage.host.run(&format!("rollout status {workload} --timeout=120s")).await?;
            }
            for app in ["web", "db"] {
                for pod in there(stage, "member1", &format!("app={app}")).await?.values() {
                    ensure!(pod["spec"]["containers"][0]["env"].to_string().contains("MORE"));
                }
            }
            Ok(())
        }
        .await;
        second.heal().await?;
        played?;
        stage.fleet.answers(MEMBER2).await?;
        for app in ["web", "db"] {
            copied(stage, &format!("app={app}"), 2, 2, 2).await?;
            for pod in there(stage, "member2", &format!("app={app}")).await?.values() {
                ensure!(
                    pod["spec"]["containers"][0]["env"].to_string().contains("MORE"),
                    "it has an old copy"
                );
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_time_there_is_one_copy_in_each_cluster() -> Result<()> {
    alone("copykill", async |stage| {
        stage.obey(&policy("web", "Deployment", "web", &both())).await?;
        stage.create(&deployment("web", 4)).await?;
        for replicas in [6, 2, 5, 3] {
            tokio::time::sleep(Duration::from_millis(700)).await;
            stage.fleet.serve.kill().await?;
            stage.host.run(&format!("scale deployment/web --replicas={replicas}")).await?;
            stage.fleet.serve.restart().await?;
        }
        copied(stage, "app=web", 3, 3, 3).await?;
        // Nothing changes, so nothing is written.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = audit::writes(&stage.fleet.host, &stage.namespace)?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let after = audit::writes(&stage.fleet.host, &stage.namespace)?;
        ensure!(before == after, "before {before:?}, after {after:?}");
        Ok(())
    })
    .await
}
