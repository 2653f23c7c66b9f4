//! The Node object and those who share it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use federlet_e2e::{Kubectl, SOON};
use federlet_sandbox::{Cluster, Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    authority::Authority,
    objects::{create, pod, spec},
    process::Process,
};

async fn node(host: &Cluster, name: &str) -> Result<Value> {
    Ok(serde_json::from_str(&host.kubectl_output(&["get", "node", name, "-o", "json"]).await?)?)
}

fn ready(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

fn names<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().into_iter().flatten().filter_map(|item| item[field].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_what_a_host_expects() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let process = Process::start(&host, "e2e-register").await?;
    let node = node(&host, &process.name).await?;
    for (label, value) in [
        ("type", "virtual-kubelet"),
        ("kubernetes.io/role", "agent"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/hostname", &process.name),
        ("node.kubernetes.io/exclude-from-external-load-balancers", "true"),
    ] {
        ensure!(node["metadata"]["labels"][label] == value, "{label}: {}", node["metadata"]["labels"]);
    }
    ensure!(node["metadata"]["labels"]["kubernetes.io/arch"].is_string());
    ensure!(names(&node["spec"]["taints"], "key").contains(&"virtual-kubelet.io/provider"));
    let conditions = names(&node["status"]["conditions"], "type");
    for condition in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"] {
        ensure!(conditions.contains(&condition), "{condition}");
    }
    ensure!(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == process.port);
    let address = process.address.to_string();
    ensure!(names(&node["status"]["addresses"], "address").contains(&address.as_str()), "{node}");
    ensure!(
        node["status"]["capacity"]["pods"] == "10k" && node["status"]["allocatable"]["cpu"] == "1k",
        "{node}"
    );
    let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default();
    ensure!(version.starts_with("v1.35.4-federlet-"), "{version}");
    let lease = ["get", "lease", &process.name, "-n", "kube-node-lease", "-o", "json"];
    let lease: Value = serde_json::from_str(&host.kubectl_output(&lease).await?)?;
    ensure!(lease["spec"]["leaseDurationSeconds"] == 40, "{lease}");
    eventually("the lease goes with the node", SOON, async || {
        let lease = ["get", "lease", &process.name, "-n", "kube-node-lease", "-o", "json"];
        let lease: Value = serde_json::from_str(&host.kubectl_output(&lease).await?)?;
        ensure!(lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"], "{lease}");
        Ok(())
    })
    .await?;
    // A DaemonSet tolerates much, but not our taint.
    let pods =
        ["get", "pods", "-A", "-o", "name", &format!("--field-selector=spec.nodeName={}", process.name)];
    let pods = host.kubectl_output(&pods).await?;
    ensure!(pods.is_empty(), "{pods}");
    process.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_comes_back_and_others_keep_what_they_wrote() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let mut process = Process::start(&host, "e2e-node").await?;
    let name = process.name.clone();
    let get = async || node(&host, &name).await;
    host.kubectl_output(&["label", "node", &name, "team=a"]).await?;
    host.kubectl_output(&["taint", "node", &name, "theirs=x:NoSchedule"]).await?;
    let foreign = json!({"status": {"conditions": [{"type": "Foreign", "status": "True"}]}}).to_string();
    host.kubectl_output(&["patch", "node", &name, "--subresource=status", "-p", &foreign]).await?;
    let heartbeat = |node: &Value| ready(node).map(|ready| ready["lastHeartbeatTime"].clone());
    process.terminate().await?;
    let holder = ["get", "lease", &name, "-n", "kube-node-lease", "-o", "jsonpath={.spec.holderIdentity}"];
    ensure!(host.kubectl_output(&holder).await?.is_empty(), "it was not released");
    // Heartbeats are told in seconds, and a process may start within the one in which the other stopped.
    let long_ago = "2020-01-01T00:00:00Z";
    let old =
        json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": long_ago}]}}).to_string();
    host.kubectl_output(&["patch", "node", &name, "--subresource=status", "-p", &old]).await?;
    process.restart().await?;
    let after = eventually("the new process has written", SOON, async || {
        let after = get().await?;
        ensure!(heartbeat(&after).is_some_and(|beat| beat != long_ago), "not yet");
        Ok::<_, anyhow::Error>(after)
    })
    .await
    .with_context(|| process.log())?;
    ensure!(after["metadata"]["labels"]["team"] == "a");
    ensure!(names(&after["spec"]["taints"], "key").contains(&"theirs"));
    ensure!(names(&after["status"]["conditions"], "type").contains(&"Foreign"));

    // In the foreground it is there for a moment with a finalizer, and is going.
    for cascade in ["--cascade=background", "--cascade=foreground"] {
        let before = get().await?;
        host.kubectl_output(&["delete", "node", &name, "--wait=false", cascade]).await?;
        eventually("the node is there again and Ready", SOON, async || {
            let node = get().await?;
            ensure!(node["metadata"]["uid"] != before["metadata"]["uid"], "it is the same");
            ensure!(ready(&node).is_some_and(|ready| ready["status"] == "True"), "it is not Ready");
            ensure!(names(&node["spec"]["taints"], "key").contains(&"virtual-kubelet.io/provider"));
            Ok(())
        })
        .await
        .context(cascade)?;
    }

    host.kubectl_output(&["annotate", "node", &name, "federlet.io/leaving=true"]).await?;
    host.kubectl_output(&["delete", "node", &name]).await?;
    eventually("it hears of it", SOON, async || {
        let heard = process.log().contains("is being removed and is left alone");
        heard.then_some(()).context("not yet")
    })
    .await?;
    ensure!(get().await.is_err(), "it came back though it was removed on purpose");
    eventually("its lease goes with it", SOON, async || {
        let lease = ["get", "lease", &name, "-n", "kube-node-lease", "--ignore-not-found", "-o", "name"];
        let lease = host.kubectl_output(&lease).await?;
        ensure!(lease.is_empty(), "{lease}");
        Ok(())
    })
    .await?;
    process.terminate().await
}

/// With the identity of a kubelet, and no other right than every kubelet has.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_needs_no_more_rights_than_a_kubelet() -> Result<()> {
    let sandbox = Sandbox::shared().await?;
    let host = sandbox.cluster("host")?;
    let name = "e2e-kubelet";
    let files = Authority::of(&host)?.node(name)?;
    let ca = host.certificates().certificate("ca").display().to_string();
    let process = Process::new(&host, name).await?.acting_as(&files)?;
    let mut process = process.with(&["--client-ca-file", &ca]);
    process.begin().await?;
    sandbox
        .in_namespace("kubelet", async |space| {
            let kubectl = Kubectl::new(host.clone(), &space.namespace);
            kubectl.run("create secret generic creds --from-literal=a=b").await?;
            let needs =
                json!([{"secretRef": {"name": "creds"}}, {"secretRef": {"name": "none", "optional": true}}]);
            let containers = json!([{"name": "app", "image": "nginx", "envFrom": needs}]);
            create(&kubectl, &pod("p", &spec(name, json!({"containers": containers})))).await?;
            kubectl.run("wait pod/p --for=condition=Ready --timeout=60s").await?;
            let log = kubectl.run("logs p --tail=1").await?;
            ensure!(log.contains("is running"), "{log}");
            eventually("it can write Events", SOON, async || {
                let events = kubectl.run("get events -o jsonpath={.items[*].reason}").await?;
                ensure!(events.contains("OptionalSecretNotFound"), "{events}");
                Ok(())
            })
            .await?;
            kubectl.run("delete pod p --timeout=60s").await?;
            Ok(())
        })
        .await
        .with_context(|| process.log())?;
    every_request_says_which_part_it_is_from(&host, &format!("system:node:{name}"))?;
    process.finish().await
}

fn every_request_says_which_part_it_is_from(host: &Cluster, user: &str) -> Result<()> {
    let log = std::fs::read_to_string(host.audit_log())?;
    let requests = log.lines().filter(|line| line.contains(user));
    let requests = requests.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut parts = BTreeSet::new();
    for request in requests.filter(|request| request["user"]["username"] == user) {
        let agent = request["userAgent"].as_str().unwrap_or_default();
        let part = agent.strip_prefix("federlet/").and_then(|rest| rest.split_once(" ("));
        let part = part.and_then(|(_, part)| part.strip_suffix(')')).with_context(|| request.to_string())?;
        parts.insert(part.to_owned());
    }
    for part in ["heartbeat", "kubelet-api", "pods", "watch"] {
        ensure!(parts.contains(part), "nothing of {part} among {parts:?}");
    }
    Ok(())
}
