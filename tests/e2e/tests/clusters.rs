//! The ground that everything else stands on: each cluster of the sandbox does what a real cluster does.

use std::process::Stdio;

use anyhow::{Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Cluster, Sandbox, eventually, images::FEDERLET_IMAGE};

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_and_answer_in_every_cluster() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    sandbox
        .in_namespace("pods", async |space| {
            for cluster in sandbox.clusters()? {
                let name = cluster.name().to_owned();
                everything_works(&Kubectl::new(cluster, &space.namespace))
                    .await
                    .map_err(|error| error.context(format!("in {name}")))?;
            }
            Ok(())
        })
        .await
}

async fn everything_works(kubectl: &Kubectl) -> Result<()> {
    // `nginx` without a tag means `latest`, which is always pulled: from the registry of the node.
    kubectl.run("create deployment web --image=nginx --replicas=2").await?;
    kubectl.run("expose deployment web --port=80").await?;
    kubectl.run("run tool --image=busybox --restart=Never -- sleep 3600").await?;
    kubectl.run("rollout status deployment/web --timeout=90s").await?;
    kubectl.run("wait pod/tool --for=condition=Ready --timeout=90s").await?;

    let said = kubectl.run("exec tool -- hostname").await?;
    ensure!(said.trim() == "tool", "exec said: {said}");
    let status = kubectl
        .command(&["exec", "tool", "--", "sh", "-c", "exit 7"])?
        .stderr(Stdio::null())
        .status()
        .await?;
    ensure!(status.code() == Some(7), "exec ended with {status}");

    // By name through the cluster's DNS and the Service, not by address.
    let page = eventually("the Service answers by its name", SOON, async || {
        kubectl.run("exec tool -- timeout 5 wget -qO- http://web").await
    })
    .await?;
    ensure!(page.contains("Welcome"), "the Service answered: {page}");

    let forward = kubectl.port_forward("deployment/web", 80).await?;
    let page = forward.get("/seen-by-port-forward").await?;
    ensure!(page.contains("404"), "port-forward answered: {page}");
    eventually("the request is in the log", SOON, async || {
        let log = kubectl.run("logs --selector app=web").await.map_err(|error| error.to_string())?;
        if log.contains("/seen-by-port-forward") { Ok(()) } else { Err(log) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_federlet_runs() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    sandbox
        .in_namespace("federlet", async |space| {
            let kubectl = Kubectl::new(sandbox.cluster("host")?, &space.namespace);
            kubectl
                .run(&format!("run federlet --image={FEDERLET_IMAGE} --restart=Never -- --version"))
                .await?;
            eventually("it says its version", SOON, async || {
                let log = kubectl.run("logs federlet").await.map_err(|error| error.to_string())?;
                if log.starts_with("federlet ") { Ok(()) } else { Err(log) }
            })
            .await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_refused_at_once_and_with_a_reason() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    sandbox
        .in_namespace("image", async |space| {
            let kubectl = Kubectl::new(sandbox.cluster("member1")?, &space.namespace);
            kubectl.run("run lost --image=example.com/no/such:1 --restart=Never").await?;
            eventually("the pod says why", SOON, async || {
                let state = "jsonpath={.status.containerStatuses[0].state.waiting}";
                let said =
                    kubectl.args(&["get", "pod", "lost", "-o", state]).await.map_err(|e| e.to_string())?;
                if said.contains("not found") { Ok(()) } else { Err(said) }
            })
            .await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_in_the_audit_log_with_their_user() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    sandbox
        .in_namespace("audit", async |space| {
            let member = sandbox.cluster("member2")?;
            let kubectl = Kubectl::new(member.clone(), &space.namespace);
            kubectl.run("create configmap found-in-the-log --from-literal=a=b").await?;
            eventually("the request is in the audit log", SOON, async || {
                let log = std::fs::read_to_string(member.audit_log()).map_err(|error| error.to_string())?;
                let wanted = |line: &&str| {
                    line.contains("found-in-the-log")
                        && line.contains(&space.namespace)
                        && line.contains("\"create\"")
                };
                match log.lines().find(wanted) {
                    Some(line) if line.contains("sandbox-admin") => Ok(()),
                    Some(line) => Err(line.to_owned()),
                    None => Err("no such line".to_owned()),
                }
            })
            .await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_and_people_have_only_their_rights() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    // The node authorizer: a kubelet reads no Secret that no pod of its node refers to.
    let asked = as_node(&host, "get secrets --namespace=kube-system").await;
    ensure!(asked.is_err_and(|error| error.to_string().contains("Forbidden")));
    // NodeRestriction: nor may it change another node.
    let changed = as_node(&host, "label node no-such-node a=b").await;
    ensure!(changed.is_err());
    let own = as_node(&host, "get node host-node1 -o name").await?;
    ensure!(own.trim() == "node/host-node1", "{own}");
    // Without an identity nothing is told.
    let anonymous = host
        .kubectl_output(&["get", "pods", "--as=system:anonymous", "--as-group=system:unauthenticated"])
        .await;
    ensure!(anonymous.is_err_and(|error| error.to_string().contains("Forbidden")));
    Ok(())
}

async fn as_node(cluster: &Cluster, words: &str) -> Result<String> {
    let mut all: Vec<&str> = words.split_whitespace().collect();
    all.extend(["--as=system:node:host-node1", "--as-group=system:nodes"]);
    cluster.kubectl_output(&all).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_has_a_node_in_each_of_two_regions() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let edge = sandbox.cluster("edge")?;
    for (location, node) in [("beijing", "node/edge-node1"), ("hangzhou", "node/edge-node2")] {
        let selector = format!("location={location},node-role.kubernetes.io/edge");
        let found = edge.kubectl_output(&["get", "nodes", "-o", "name", "-l", &selector]).await?;
        ensure!(found.trim() == node, "{location}: {found}");
    }
    Ok(())
}
