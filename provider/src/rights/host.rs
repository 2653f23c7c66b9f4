use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::{Value, json};

use super::{HOST_OBJECT_RIGHTS, Right};
use crate::{join::SYSTEM_NAMESPACE, marks::OBJECTS_ROLE, names::MemberName};

/// What `federlet serve` may do on the host as itself.
///
/// Whatever concerns the pods of one node it does as that node, which the host's Node authorizer keeps to the objects
/// that those pods refer to. For that, each node has a role of its own, see [`node_role`].
pub const HOST_RIGHTS: &[Right] = &[
    Right::new(
        "cluster.karmada.io",
        &["clusters"],
        &["list", "watch", "patch"],
        "which members there are; their id, and a finalizer",
    ),
    Right::new("cluster.karmada.io", &["clusters/status"], &["patch"], "how they are"),
    Right::new(
        "",
        &["secrets"],
        &["get", "list", "watch", "create", "patch"],
        "credentials of members; the certificate of the webhook",
    )
    .within(SYSTEM_NAMESPACE),
    Right::new(
        "coordination.k8s.io",
        &["leases"],
        &["get", "list", "watch", "create", "update", "delete"],
        "replicas know of each other",
    )
    .within(SYSTEM_NAMESPACE),
    Right::new(
        "coordination.k8s.io",
        &["leases"],
        &["get"],
        "whether anybody still serves a node that leaves",
    )
    .within("kube-node-lease"),
    Right::new(
        "",
        &["nodes"],
        &["get", "list", "watch", "patch", "delete"],
        "labels and taints of the nodes",
    ),
    Right::new(
        "",
        &["pods"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "one watch for all nodes; pods of a node that left; pods that wait for a cluster are told which; copies of pods that a policy duplicates",
    ),
    Right::new("", &["pods/eviction"], &["create"], "pods that a policy wants elsewhere"),
    Right::new(
        "events.k8s.io",
        &["events"],
        &["create", "patch"],
        "why a workload or a policy cannot be obeyed",
    ),
    Right::new(
        "apps",
        &["deployments", "replicasets", "statefulsets", "daemonsets"],
        &["get", "list", "watch"],
        "where a pod came from",
    ),
    Right::new("batch", &["jobs", "cronjobs"], &["get", "list", "watch"], "likewise"),
    Right::new(
        "policy.karmada.io",
        &["propagationpolicies", "clusterpropagationpolicies", "overridepolicies", "clusteroverridepolicies"],
        &["list", "watch"],
        "what people want",
    ),
    Right::new(
        "work.karmada.io",
        &["resourcebindings", "clusterresourcebindings"],
        &["list", "watch", "create", "patch", "delete"],
        "what was decided for each workload and object",
    ),
    Right::new(
        "work.karmada.io",
        &["resourcebindings/status", "clusterresourcebindings/status"],
        &["patch"],
        "and what became of it",
    ),
    Right::new(
        "admissionregistration.k8s.io",
        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        &["create"],
        "the host asks us about pods and policies",
    ),
    Right::new(
        "admissionregistration.k8s.io",
        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        &["get", "patch"],
        "in this registration and in no other",
    )
    .named(&["federlet"]),
    Right::new(
        "",
        &["namespaces"],
        &["get", "list", "watch", "patch"],
        "know the host by the UID of `kube-system`; namespaces of members go with those of the host; a label says where policies are",
    ),
    Right::new("", &["services"], &["list", "watch"], "which Services select pods of a node"),
    Right::new(
        "",
        &["persistentvolumeclaims"],
        &["get", "list", "watch"],
        "claims that wait for a volume in a member; their data goes when they do",
    ),
    Right::new("", &["persistentvolumeclaims/status"], &["patch"], "the size that a claim has grown to"),
    Right::new(
        "",
        &["persistentvolumes"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "volumes that stand for claims of members",
    ),
    Right::new("storage.k8s.io", &["storageclasses"], &["get"], "whether a claim is for us"),
    Right::new("discovery.k8s.io", &["endpointslices"], &["list"], "where pods find the host's API server")
        .within("default"),
    Right::new("", &["configmaps"], &["get", "list", "watch"], "the authority of client certificates")
        .named(&["extension-apiserver-authentication"])
        .within("kube-system"),
    Right::new("authentication.k8s.io", &["tokenreviews"], &["create"], "who calls the kubelet API"),
    Right::new("authorization.k8s.io", &["subjectaccessreviews"], &["create"], "and whether they may"),
    Right::new(
        "rbac.authorization.k8s.io",
        &["clusterroles"],
        &["get"],
        "the node that stands for several clusters goes with this very role",
    )
    .named(&["federlet"]),
    Right::new("", &["groups"], &["impersonate"], "act as a node").named(&["system:nodes"]),
    Right::new(
        "",
        &["users"],
        &["impersonate"],
        "act as the node whose pods have copies in several clusters",
    )
    .named(&["system:node:fleet"]),
    Right::new(
        "certificates.k8s.io",
        &["certificatesigningrequests"],
        &["list", "watch"],
        "requests of our nodes for serving certificates",
    ),
    Right::new(
        "certificates.k8s.io",
        &["certificatesigningrequests/approval"],
        &["patch"],
        "approve exactly those",
    ),
    Right::new("certificates.k8s.io", &["signers"], &["approve"], "likewise")
        .named(&["kubernetes.io/kubelet-serving"]),
];

/// The service account of `federlet serve`.
const ACCOUNT: &str = "federlet";

/// Whoever serves nodes is bound to a role that collects all roles with this label.
pub const NODE_ROLE_LABEL: &str = "federlet.io/node-role";

/// The name of a node's role.
pub fn node_role_name(node: &MemberName) -> String {
    format!("federlet:node:{node}")
}

/// The right to act as one node and as nobody else, and to call that node: logs and usage of copies come through it. Kubernetes has no pattern for the names of users, so each node needs
/// its own; it goes with the Cluster that owns it.
pub fn node_role(node: &MemberName, owner: OwnerReference) -> ClusterRole {
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(node_role_name(node)),
            labels: Some([(NODE_ROLE_LABEL.to_owned(), "true".to_owned())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        rules: Some(vec![
            PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec!["users".into()]),
                resource_names: Some(vec![format!("system:node:{node}")]),
                verbs: vec!["impersonate".into()],
                non_resource_urls: None,
            },
            PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec!["nodes/proxy".into()]),
                resource_names: Some(vec![node.to_string()]),
                verbs: vec!["get".into(), "create".into()],
                non_resource_urls: None,
            },
        ]),
        aggregation_rule: None,
    }
}

/// The roles of `federlet serve` on the host, bound to the service account `federlet` in our own namespace.
pub fn host_manifests() -> Vec<Value> {
    let rules = |namespace: Option<&str>| -> Vec<PolicyRule> {
        HOST_RIGHTS.iter().filter(|right| right.namespace == namespace).map(Right::rule).collect()
    };
    let subjects = json!([{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE }]);
    let rbac = "rbac.authorization.k8s.io";
    let version = format!("{rbac}/v1");
    let cluster = |name: &str, body: Value| {
        let mut role = json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": name } });
        if let (Some(role), Value::Object(body)) = (role.as_object_mut(), body) {
            role.extend(body);
        }
        let binding = json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name }, "subjects": subjects,
        });
        [role, binding]
    };
    let nodes = json!({
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { NODE_ROLE_LABEL: "true" } }] }, "rules": [],
    });
    let mut all = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE },
    })];
    all.extend(cluster("federlet", json!({ "rules": rules(None) })));
    all.extend(cluster("federlet:nodes", nodes));
    let objects: Vec<PolicyRule> = HOST_OBJECT_RIGHTS.iter().map(Right::rule).collect();
    all.extend(cluster("federlet:objects", json!({ "rules": objects })));
    let more = json!({
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { OBJECTS_ROLE: "true" } }] }, "rules": [],
    });
    all.extend(cluster("federlet:more-objects", more));
    let by_namespace: BTreeMap<&str, ()> =
        HOST_RIGHTS.iter().filter_map(|right| Some((right.namespace?, ()))).collect();
    for namespace in by_namespace.into_keys() {
        let metadata = json!({ "name": "federlet", "namespace": namespace });
        all.push(json!({
            "apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules(Some(namespace)),
        }));
        all.push(json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata, "subjects": subjects,
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "federlet" },
        }));
    }
    all
}
