//! Which kinds of objects are in namespaces.
//!
//! A cluster is asked for this; without one, Kubernetes' own kinds are known, and definitions tell about the rest.

use std::collections::BTreeMap;

use serde_json::Value;

/// Kinds of Kubernetes and Karmada that are in no namespace.
const CLUSTER_WIDE: [&str; 33] = [
    "APIService",
    "CSIDriver",
    "CSINode",
    "CertificateSigningRequest",
    "Cluster",
    "ClusterOverridePolicy",
    "ClusterPropagationPolicy",
    "ClusterResourceBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTaintPolicy",
    "ClusterTrustBundle",
    "CustomResourceDefinition",
    "DeviceClass",
    "FlowSchema",
    "IPAddress",
    "IngressClass",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ResourceSlice",
    "RuntimeClass",
    "ServiceCIDR",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
];

/// Whether objects of a kind are in namespaces; `None` for kinds that are not known.
pub(super) fn namespaced(api_version: &str, kind: &str) -> Option<bool> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let known = matches!(group, "" | "apps" | "batch" | "autoscaling" | "policy")
        || ["policy.karmada.io", "cluster.karmada.io", "work.karmada.io"].contains(&group)
        || (group.ends_with(".k8s.io") && BUILT_IN.contains(&group));
    known.then(|| !CLUSTER_WIDE.contains(&kind))
}

/// Groups below `k8s.io` that every cluster has; others there are custom resources.
const BUILT_IN: [&str; 15] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Whether custom resources are in namespaces, by group and kind, as their definitions among the objects say.
pub(super) fn custom(objects: &[Value]) -> BTreeMap<(String, String), bool> {
    let defined = objects
        .iter()
        .filter(|object| object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition"));
    let text = |object: &Value, pointer: &str| Some(object.pointer(pointer)?.as_str()?.to_owned());
    let each = defined.filter_map(|definition| {
        let key = (text(definition, "/spec/group")?, text(definition, "/spec/names/kind")?);
        Some((key, text(definition, "/spec/scope")? == "Namespaced"))
    });
    each.collect()
}
