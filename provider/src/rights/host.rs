use std::collections::BTreeSet;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::{Value, json};

use super::{HOST_OBJECT_RIGHTS, HOST_OVERRIDE_RIGHTS, HOST_POLICY_RIGHTS, HOST_SECRET_RIGHTS, Right};
use crate::{join::SYSTEM_NAMESPACE, marks::OBJECTS_ROLE, names::MemberName};

/// What whoever serves nodes may do on the host as itself.
///
/// Whatever concerns the pods of one node it does as that node, which the host's Node authorizer keeps to the objects
/// that those pods refer to. For that, each node has a role of its own, see [`node_role`].
pub const HOST_RIGHTS: &[Right] = &[
    Right::new("cluster.karmada.io", &["clusters"], &["list", "watch"], "which members there are"),
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
    Right::new("", &["nodes"], &["get", "list", "watch"], "how the nodes are"),
    Right::new("", &["pods"], &["list", "watch"], "one watch for all nodes"),
    Right::new(
        "",
        &["namespaces"],
        &["get", "list", "watch"],
        "know the host by the UID of `kube-system`; namespaces of members go with those of the host",
    ),
    Right::new("", &["services"], &["list", "watch"], "which Services select pods of a node"),
    Right::new(
        "",
        &["persistentvolumeclaims"],
        &["get", "list", "watch", "patch"],
        "claims that wait for a volume in a member, and go back to the scheduler if that will not have them; their data \
         goes when they do",
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
    Right::new("", &["groups"], &["impersonate"], "act as a node").named(&["system:nodes"]),
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

/// What those may do who serve all members that have no process of their own. Whoever serves one member alone may do the same
/// to its own Cluster and node, by name, and ends pods as that node.
pub const HOST_MEMBER_RIGHTS: &[Right] = &[
    Right::new("cluster.karmada.io", &["clusters"], &["patch"], "the id of a member, and a finalizer"),
    Right::new("cluster.karmada.io", &["clusters/status"], &["patch"], "how members are"),
    Right::new(
        "",
        &["nodes"],
        &["patch", "delete"],
        "labels and taints of nodes; nodes of members that left",
    ),
    Right::new("", &["pods"], &["delete"], "pods of a node that left; copies of pods"),
];

/// How the members are reached. Whoever serves one member alone needs that of this one.
pub const HOST_CREDENTIAL_RIGHTS: &[Right] = &[Right::new(
    "",
    &["secrets"],
    &["list", "watch", "patch"],
    "credentials of members, and new tokens before they expire",
)
.within(SYSTEM_NAMESPACE)];

/// The service account of `federlet serve`.
const ACCOUNT: &str = "federlet";

/// The group of roles.
const RBAC: &str = "rbac.authorization.k8s.io";

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

/// The roles of `federlet serve` on the host, bound to the service account `federlet` in our own namespace: one for each
/// thing that it does, so that whoever does less needs less.
pub fn host_manifests() -> Vec<Value> {
    let collected = |label: &str| json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { label: "true" } }] }, "rules": [] });
    let mut all = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE },
    })];
    all.extend(roles("federlet", HOST_RIGHTS));
    all.extend(roles("federlet:members", HOST_MEMBER_RIGHTS));
    all.extend(cluster("federlet:nodes", collected(NODE_ROLE_LABEL)));
    all.extend(roles("federlet:credentials", HOST_CREDENTIAL_RIGHTS));
    all.extend(roles("federlet:overrides", HOST_OVERRIDE_RIGHTS));
    all.extend(roles("federlet:policies", HOST_POLICY_RIGHTS));
    all.extend(roles("federlet:objects", HOST_OBJECT_RIGHTS));
    all.extend(cluster("federlet:more-objects", collected(OBJECTS_ROLE)));
    all
}

/// What a table grants, under one name: in all namespaces, and in each that it names.
fn roles(name: &str, table: &[Right]) -> Vec<Value> {
    let rules = |namespace: Option<&str>| -> Vec<PolicyRule> {
        table.iter().filter(|right| right.namespace == namespace).map(Right::rule).collect()
    };
    let mut all = vec![];
    let everywhere = rules(None);
    if !everywhere.is_empty() {
        all.extend(cluster(name, json!({ "rules": everywhere })));
    }
    let (subjects, version) = (subjects(), format!("{RBAC}/v1"));
    let namespaces: BTreeSet<&str> = table.iter().filter_map(|right| right.namespace).collect();
    for namespace in namespaces {
        let metadata = json!({ "name": name, "namespace": namespace });
        all.push(json!({
            "apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules(Some(namespace)),
        }));
        all.push(json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata, "subjects": subjects,
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": name },
        }));
    }
    all
}

/// The right to read Secrets of all namespaces, for policies that select some: only where somebody decided so.
pub fn host_secret_manifests() -> Vec<Value> {
    roles("federlet:secrets", HOST_SECRET_RIGHTS)
}

fn subjects() -> Value {
    json!([{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE }])
}

/// A role in all namespaces, bound to our account.
fn cluster(name: &str, body: Value) -> [Value; 2] {
    let version = format!("{RBAC}/v1");
    let mut role = json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": name } });
    if let (Some(role), Value::Object(body)) = (role.as_object_mut(), body) {
        role.extend(body);
    }
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": name }, "subjects": subjects(),
    });
    [role, binding]
}
