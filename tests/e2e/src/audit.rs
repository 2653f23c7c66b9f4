//! What the host's audit log says about us.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use federlet_sandbox::Cluster;
use serde_json::Value;

/// The answered requests about a namespace.
fn requests(host: &Cluster, namespace: &str) -> Result<Vec<Value>> {
    let log = std::fs::read_to_string(host.audit_log())?;
    let about = log.lines().filter(|line| line.contains(namespace));
    let events = about.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let done =
        |event: &Value| event["objectRef"]["namespace"] == namespace && event["stage"] == "ResponseComplete";
    Ok(events.filter(done).collect())
}

/// How often `federlet` wrote each pod of a namespace.
pub fn writes(host: &Cluster, namespace: &str) -> Result<HashMap<String, usize>> {
    let mut written = HashMap::new();
    for event in requests(host, namespace)? {
        let ours = event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"))
            && event["objectRef"]["resource"] == "pods"
            && ["create", "update", "patch", "delete"].contains(&event["verb"].as_str().unwrap_or_default());
        if ours {
            let name = event["objectRef"]["name"].as_str().unwrap_or_default();
            *written.entry(name.to_owned()).or_default() += 1;
        }
    }
    Ok(written)
}

/// How often `federlet` wrote each object of a namespace, whatever its kind, as `configmaps/name`.
pub fn written(cluster: &Cluster, namespace: &str) -> Result<HashMap<String, usize>> {
    let mut written = HashMap::new();
    for event in requests(cluster, namespace)? {
        let ours = event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"))
            && ["create", "update", "patch", "delete"].contains(&event["verb"].as_str().unwrap_or_default());
        if ours {
            let text = |field: &str| event["objectRef"][field].as_str().unwrap_or_default().to_owned();
            *written.entry(format!("{}/{}", text("resource"), text("name"))).or_default() += 1;
        }
    }
    Ok(written)
}

/// How often one part of `federlet` patched each pod of a namespace.
pub fn patches(host: &Cluster, namespace: &str, part: &str) -> Result<HashMap<String, usize>> {
    let mut written = HashMap::new();
    for event in requests(host, namespace)? {
        let theirs = event["userAgent"].as_str().is_some_and(|agent| agent.ends_with(part));
        let pods = event["objectRef"]["resource"] == "pods" && event["objectRef"]["subresource"].is_null();
        if theirs && pods && event["verb"] == "patch" {
            let name = event["objectRef"]["name"].as_str().unwrap_or_default();
            *written.entry(name.to_owned()).or_default() += 1;
        }
    }
    Ok(written)
}

/// Who asked for something in a namespace.
pub fn user_agents(host: &Cluster, namespace: &str) -> Result<HashSet<String>> {
    let requests = requests(host, namespace)?;
    Ok(requests.iter().filter_map(|event| event["userAgent"].as_str().map(str::to_owned)).collect())
}

/// The longest time between two renewals of a node's lease by `federlet`.
pub fn longest_without_heartbeat(host: &Cluster, node: &str) -> Result<jiff::SignedDuration> {
    let renewals = requests(host, "kube-node-lease")?.into_iter().filter(|event| {
        event["objectRef"]["name"] == node
            && event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"))
            && ["create", "update", "patch"].contains(&event["verb"].as_str().unwrap_or_default())
    });
    let mut at: Vec<jiff::Timestamp> =
        renewals.filter_map(|event| event["stageTimestamp"].as_str()?.parse().ok()).collect();
    at.sort();
    let gaps = at.windows(2).map(|pair| pair[1].duration_since(pair[0]));
    gaps.max().context("its lease was not renewed")
}
