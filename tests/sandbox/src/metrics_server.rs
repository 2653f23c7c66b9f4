//! The host's metrics-server: `kubectl top` and autoscalers on a real one, which asks virtual nodes like any others.

use anyhow::Result;
use kube::Client;
use serde_json::json;

use crate::{
    addons, builds::Binaries, certificates::Certificates, component::Component, kubeconfig, machine::Machine,
    plan::ClusterPlan,
};

/// Where it listens on the control plane's machine.
const PORT: u16 = 4443;

/// Whether the API server reaches it.
pub async fn answers(client: &Client) -> Result<bool> {
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
    let found: serde_json::Value = client.request(http::Request::get(path).body(vec![])?).await?;
    let conditions = found["status"]["conditions"].as_array();
    Ok(conditions.into_iter().flatten().any(|c| c["type"] == "Available" && c["status"] == "True"))
}

/// Starts it, and tells the API server where it is.
pub async fn start(
    cluster: &ClusterPlan,
    machine: &Machine,
    certificates: &Certificates,
    binaries: &Binaries,
    client: &Client,
) -> Result<()> {
    let path = machine.dir().join("metrics-server.kubeconfig");
    kubeconfig::write(&path, &kubeconfig::for_client(cluster, certificates, "admin")?)?;
    let path = path.display();
    let component = Component {
        id: "metrics-server".to_owned(),
        machine: machine.name().to_owned(),
        program: binaries.metrics_server()?,
        args: vec![
            format!("--kubeconfig={path}"),
            format!("--authentication-kubeconfig={path}"),
            format!("--authorization-kubeconfig={path}"),
            format!("--secure-port={PORT}"),
            format!("--cert-dir={}", machine.dir().join("metrics-server").display()),
            format!("--kubelet-certificate-authority={}", certificates.certificate("ca").display()),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            // Virtual nodes share an address and differ by their port.
            "--kubelet-use-node-status-port".to_owned(),
            // It insists that one is shorter than the other.
            "--kubelet-request-timeout=5s".to_owned(),
            "--metric-resolution=10s".to_owned(),
        ],
    };
    component.start(machine, &cluster.name).await?;
    let metadata = json!({ "name": "metrics-server", "namespace": "kube-system" });
    for object in [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "ports": [{ "name": "https", "port": 443, "targetPort": PORT }] },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "metrics-server", "namespace": "kube-system",
                "labels": { "kubernetes.io/service-name": "metrics-server" },
            },
            "addressType": "IPv4",
            "ports": [{ "name": "https", "port": PORT, "protocol": "TCP" }],
            "endpoints": [{ "addresses": [cluster.control_plane().address.to_string()] }],
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": "v1beta1.metrics.k8s.io" },
            "spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                // Its certificate is its own; the way there is inside one machine.
                "insecureSkipTLSVerify": true,
                "service": { "name": "metrics-server", "namespace": "kube-system", "port": 443 },
            },
        }),
    ] {
        addons::apply_object(client, object).await?;
    }
    Ok(())
}
