//! What every cluster gets from its administrator: rights of the API server on kubelets, node labels, DNS.

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    images::COREDNS_IMAGE,
    plan::{ClusterPlan, DNS_SERVICE_IP},
};

const MANAGER: &str = "federlet-sandbox";

/// Applies what needs no node.
pub async fn apply(client: &Client, with_dns: bool) -> Result<()> {
    let mut objects = vec![kubelet_rights()];
    if with_dns {
        objects.extend(dns());
    }
    for object in objects {
        apply_object(client, object).await?;
    }
    Ok(())
}

/// Labels that a kubelet may not give itself.
pub async fn label_nodes(client: &Client, cluster: &ClusterPlan) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for (machine, node) in cluster.nodes().filter(|(_, node)| !node.labels.is_empty()) {
        let patch = json!({ "metadata": { "labels": node.labels } });
        nodes
            .patch(&machine.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("cannot label node {}", machine.name))?;
    }
    Ok(())
}

/// Nodes that are Ready, out of those that there are.
pub async fn ready_nodes(client: &Client) -> Result<(usize, usize)> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
    Ok((nodes.iter().filter(|node| is_ready(node)).count(), nodes.len()))
}

/// Whether names resolve.
pub async fn dns_ready(client: &Client) -> Result<bool> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    let coredns = deployments.get("coredns").await?;
    Ok(coredns.status.and_then(|status| status.available_replicas).unwrap_or(0) > 0)
}

/// Creates or updates one object of any kind.
pub async fn apply_object(client: &Client, object: Value) -> Result<()> {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (name, namespace) = (text(&object["metadata"]["name"]), object["metadata"]["namespace"].as_str());
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object))
        .await
        .with_context(|| format!("cannot apply {kind} {name}"))?;
    Ok(())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn kubelet_rights() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": "kube-apiserver-kubelet-client" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver-kubelet-client" }],
    })
}

fn dns() -> Vec<Value> {
    let labels = json!({ "k8s-app": "kube-dns" });
    let rights = |groups: &[&str], resources: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": ["list", "watch"] });
    let probe =
        |path: &str, port: u16| json!({ "httpGet": { "path": path, "port": port }, "periodSeconds": 2 });
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": "coredns", "namespace": "kube-system" },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "system:coredns" },
            "rules": [
                rights(&[""], &["endpoints", "services", "pods", "namespaces"]),
                rights(&["discovery.k8s.io"], &["endpointslices"]),
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "system:coredns" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns" },
            "subjects": [{ "kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system" }],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "coredns", "namespace": "kube-system" },
            "data": { "Corefile": COREFILE },
        }),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "coredns", "namespace": "kube-system", "labels": labels },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "serviceAccountName": "coredns",
                        "dnsPolicy": "Default",
                        "priorityClassName": "system-cluster-critical",
                        "tolerations": [{ "operator": "Exists" }],
                        // On a virtual node it would serve another cluster's names.
                        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{ "matchExpressions": [
                                { "key": "type", "operator": "NotIn", "values": ["virtual-kubelet"] },
                            ] }],
                        } } },
                        "containers": [{
                            "name": "coredns",
                            "image": COREDNS_IMAGE,
                            "args": ["-conf", "/etc/coredns/Corefile"],
                            "ports": [
                                { "containerPort": 53, "name": "dns", "protocol": "UDP" },
                                { "containerPort": 53, "name": "dns-tcp", "protocol": "TCP" },
                            ],
                            "readinessProbe": probe("/ready", 8181),
                            "livenessProbe": probe("/health", 8080),
                            "volumeMounts": [{ "name": "config", "mountPath": "/etc/coredns" }],
                        }],
                        "volumes": [{ "name": "config", "configMap": { "name": "coredns" } }],
                    },
                },
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "kube-dns", "namespace": "kube-system", "labels": labels },
            "spec": {
                "selector": labels,
                "clusterIP": DNS_SERVICE_IP,
                "ports": [
                    { "name": "dns", "port": 53, "protocol": "UDP" },
                    { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
                ],
            },
        }),
    ]
}

/// Names of this cluster only: there is no outside to forward to.
const COREFILE: &str = "\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
    loadbalance
    reload
}
";
