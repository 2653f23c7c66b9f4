//! Kubeconfigs of a sandbox's clusters: self-contained, so that any kubectl anywhere on this machine can use them.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    certificates::{Certificates, write_private},
    plan::ClusterPlan,
};

/// A kubeconfig of the cluster for the holder of one of its client certificates. JSON is YAML too, and needs no
/// other library.
pub fn for_client(cluster: &ClusterPlan, certificates: &Certificates, client: &str) -> Result<Value> {
    let data = |path: &Path| -> Result<String> { Ok(base64(&certificates.read(path)?)) };
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster.name,
        "clusters": [{
            "name": cluster.name,
            "cluster": {
                "server": cluster.api_url(),
                "certificate-authority-data": data(&certificates.certificate("ca"))?,
            },
        }],
        "users": [{
            "name": format!("{}-{client}", cluster.name),
            "user": {
                "client-certificate-data": data(&certificates.certificate(client))?,
                "client-key-data": data(&certificates.key(client))?,
            },
        }],
        "contexts": [{
            "name": cluster.name,
            "context": { "cluster": cluster.name, "user": format!("{}-{client}", cluster.name) },
        }],
    }))
}

/// Writes it so that only its owner can read it.
pub fn write(path: &Path, kubeconfig: &Value) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    write_private(path, &serde_json::to_string_pretty(kubeconfig)?)
}

fn base64(bytes: &[u8]) -> String {
    // k8s-openapi writes a ByteString as Kubernetes wants it, which is base64.
    match serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_base64() {
        assert_eq!(base64(b"federlet"), "ZmVkZXJsZXQ=");
        assert_eq!(base64(b""), "");
    }
}
