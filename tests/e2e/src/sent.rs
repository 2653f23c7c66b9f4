//! Objects that policies send to members, and how they are there.

use anyhow::{Result, ensure};
use federlet_sandbox::eventually;
use serde_json::{Value, json};

use crate::{Kubectl, SOON, stage::Stage};

/// A policy for objects of these kinds, on these clusters.
pub fn sends(name: &str, kinds: &[(&str, &str)], clusters: &[&str]) -> Value {
    let selectors: Vec<_> =
        kinds.iter().map(|(version, kind)| json!({"apiVersion": version, "kind": kind})).collect();
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": name},
        "spec": {
            "resourceSelectors": selectors, "placement": {"clusterAffinity": {"clusterNames": clusters}},
        },
    })
}

/// One object alone, so that `kube-root-ca.crt` and others stay where they are.
pub fn sends_one(name: &str, version: &str, kind: &str, object: &str, clusters: &[&str]) -> Value {
    let mut policy = sends(name, &[(version, kind)], clusters);
    policy["spec"]["resourceSelectors"][0]["name"] = json!(object);
    policy
}

/// A ConfigMap with one value.
pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": name}}, "data": {"key": value}})
}

/// kubectl in a member, in the namespace of the test.
pub fn member(stage: &Stage, name: &str) -> Result<Kubectl> {
    Ok(Kubectl::new(stage.fleet.sandbox.cluster(name)?, &stage.namespace))
}

/// Waits until a field of an object in a member is this; `<none>` if the object is not there.
pub async fn has_there(member: &Kubectl, object: &str, path: &str, expected: &str) -> Result<()> {
    eventually(&format!("{object} has {path} = {expected}"), SOON, async || {
        let words = ["get", object, "--ignore-not-found", "-o", &format!("jsonpath=x{{{path}}}")];
        let found = member.args(&words).await?;
        let found = found.strip_prefix('x').unwrap_or("<none>");
        ensure!(found == expected, "it is {found:?}");
        Ok(())
    })
    .await
}

/// Waits until an object is not in a member.
pub async fn is_gone(member: &Kubectl, object: &str) -> Result<()> {
    has_there(member, object, ".metadata.name", "<none>").await
}

/// Waits until a binding says that all copies are as they should be.
pub async fn applied(stage: &Stage, binding: &str) -> Result<Value> {
    eventually(&format!("{binding} is applied"), SOON, async || {
        let found: Value = serde_json::from_str(&stage.host.args(&["get", binding, "-o", "json"]).await?)?;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let good = conditions.iter().any(|one| one["type"] == "FullyApplied" && one["status"] == "True");
        ensure!(good, "it says {}", found["status"]);
        Ok(found)
    })
    .await
}
