//! What tests create.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use federlet_sandbox::Cluster;
use serde_json::{Value, json};

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

/// kubectl with an object in place of the `-` among its words; what it printed.
pub async fn pipe(kubectl: &Kubectl, words: &[&str], object: &Value) -> Result<String> {
    let draft = Draft::of(&object.to_string())?;
    kubectl.args(&draft.among(words)?).await
}

/// The same with objects as text, in no namespace but their own.
pub async fn pipe_to(cluster: &Cluster, words: &[&str], objects: &str) -> Result<String> {
    let draft = Draft::of(objects)?;
    cluster.kubectl_output(&draft.among(words)?).await
}

/// A file with objects, for as long as this lives.
struct Draft(PathBuf);

impl Draft {
    fn of(objects: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("federlet-object-{}-{number}", std::process::id()));
        let draft = Self(path);
        std::fs::write(&draft.0, objects)?;
        Ok(draft)
    }

    fn among<'a>(&'a self, words: &[&'a str]) -> Result<Vec<&'a str>> {
        let path = self.0.to_str().context("the path is no text")?;
        Ok(words.iter().map(|word| if *word == "-" { path } else { word }).collect())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
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
