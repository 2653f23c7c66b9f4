//! What tests create.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::Kubectl;

/// A pod spec for the node of a test.
pub fn spec(node: &str, extra: Value) -> Value {
    let mut spec = json!({
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "app", "image": "nginx"}],
    });
    if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
        spec.extend(extra);
    }
    spec
}

/// Creates an object.
pub async fn create(kubectl: &Kubectl, object: &Value) -> Result<()> {
    pipe(kubectl, &["create", "-f", "-"], object).await?;
    Ok(())
}

/// kubectl with an object on its standard input; what it printed.
pub async fn pipe(kubectl: &Kubectl, words: &[&str], object: &Value) -> Result<String> {
    let mut command = kubectl.command(words)?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(object.to_string().as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "kubectl {} ended with {}", words.join(" "), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// A workload of this kind.
pub fn workload(kind: &str, name: &str, spec: &Value) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A pod.
pub fn pod(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}
