//! What the host's audit log says about us.

use std::collections::HashMap;

use anyhow::Result;
use federlet_sandbox::Cluster;
use serde_json::Value;

/// How often `federlet` wrote each pod of a namespace, by the host's audit log.
pub(crate) fn writes(host: &Cluster, namespace: &str) -> Result<HashMap<String, usize>> {
    let mut written = HashMap::new();
    for line in std::fs::read_to_string(host.audit_log())?.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let about = &event["objectRef"];
        let ours = event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("federlet/"))
            && about["namespace"] == namespace
            && about["resource"] == "pods"
            && event["stage"] == "ResponseComplete"
            && ["create", "update", "patch", "delete"].contains(&event["verb"].as_str().unwrap_or_default());
        if ours {
            *written.entry(about["name"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    Ok(written)
}
