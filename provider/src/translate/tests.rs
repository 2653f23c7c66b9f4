mod constraints;
mod documented;
mod identity;
mod policy;
mod properties;

use serde_json::{Value, json};

use super::*;
use crate::{
    names::{HostId, MemberName, NamespaceMap},
    target::{Offers, Region},
    version::Version,
};

pub(crate) fn anchor() -> Anchor {
    Anchor { name: "federlet-anchor".to_owned(), uid: "anchor-uid".to_owned() }
}

/// A whole cluster of the newest version, with everything at its default.
pub(crate) fn cluster() -> Target {
    let api = ApiAccess::Host { name: "api.host.example".to_owned(), port: 6443, address: None };
    let host = HostId::new("host-1").unwrap();
    let offers = Offers { priority_classes: Some([].into()), runtime_classes: Some([].into()) };
    Target { offers, ..Target::new(host, MemberName::new("member1").unwrap(), Version::v1(36), api) }
}

/// A region of a KubeEdge cluster.
pub(crate) fn region() -> Target {
    let node = MemberName::new("ke-beijing-cluster").unwrap();
    let namespaces = NamespaceMap::for_region(&node);
    let region = Region { selector: "location=beijing".parse().unwrap(), tolerations: Some(vec![]) };
    Target { node, namespaces, region: Some(region), ..cluster() }
}

/// A pod as an API server and its admission leave it, bound to a virtual node.
pub(crate) fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0", "namespace": "edge", "uid": "8a6e0804-2bd0-4672-b79d-d97027f9071a",
            "generateName": "web-", "resourceVersion": "4711", "generation": 3, "creationTimestamp": "2026-11-16T00:00:00Z",
            "labels": { "app": "web" }, "annotations": { "note": "hello" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "x", "controller": true }],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "managedFields": [{ "manager": "kubectl" }],
        },
        "spec": {
            "nodeName": "member1", "schedulerName": "default-scheduler", "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "serviceAccountName": "robot", "serviceAccount": "robot", "enableServiceLinks": true,
            "hostname": "web-0", "subdomain": "web", "restartPolicy": "Always", "futureField": { "deep": [1] },
            "containers": [{
                "name": "app", "image": "nginx:1", "futureContainerField": true,
                "env": [
                    { "name": "FIRST", "value": "1" },
                    { "name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST)/$(FIRST)" },
                    { "name": "CPU", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } },
                ],
                "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                "volumeMounts": [{ "name": "kube-api-access-x7", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true }],
            }],
            "tolerations": [
                { "key": "virtual-kubelet.io/provider", "operator": "Exists", "effect": "NoSchedule" },
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "gpu", "operator": "Exists" },
            ],
            "volumes": [{
                "name": "kube-api-access-x7",
                "projected": { "defaultMode": 420, "sources": [
                    { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                    { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                    { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
                ] },
            }],
        },
        "status": { "phase": "Pending" },
    })
}

/// The pod with its spec changed: each member replaces the one of the same name.
pub(crate) fn pod_with(spec: &Value) -> Value {
    let mut pod = pod();
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

pub(crate) fn sent(pod: &Value, target: &Target) -> MemberPod {
    translate(pod, target, &Request { anchor: &anchor(), member_name: None, service_env: &[] }).unwrap()
}

pub(crate) fn refused(pod: &Value, target: &Target) -> Vec<Refusal> {
    match translate(pod, target, &Request { anchor: &anchor(), member_name: None, service_env: &[] }) {
        Err(TranslateError::Refused(refusals)) => refusals.iter().cloned().collect(),
        other => panic!("not refused: {other:?}"),
    }
}
