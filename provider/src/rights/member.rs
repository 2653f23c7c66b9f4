use serde_json::{Value, json};

use super::{MEMBER_OBJECT_RIGHTS, Right};
use crate::marks::OBJECTS_ROLE;

/// What our account may do in a member, in every namespace, since namespaces come and go with those of the host.
///
/// Beyond it, the account may ask for new tokens of its own, and take itself away when the member is unjoined.
pub const MEMBER_RIGHTS: &[Right] = &[
    Right::new("", &["nodes"], &["list", "watch"], "capacity, labels and taints of the machines"),
    Right::new(
        "",
        &["nodes/proxy"],
        &["get"],
        "what pods use, for `kubectl top` and autoscaling: `/stats/summary` and `/metrics/resource` of each machine",
    ),
    Right::new(
        "",
        &["pods"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "run pods, see how they are, count what others use",
    ),
    Right::new(
        "",
        &["pods/ephemeralcontainers", "pods/resize"],
        &["patch"],
        "`kubectl debug`, and resize in place",
    ),
    Right::new("", &["pods/log"], &["get"], "`kubectl logs`"),
    Right::new(
        "",
        &["pods/exec", "pods/attach", "pods/portforward"],
        &["get", "create"],
        "`kubectl exec`, `attach` and `port-forward`; websockets need both verbs",
    ),
    Right::new(
        "",
        &["namespaces"],
        &["get", "list", "create", "delete"],
        "know the cluster by the UID of `kube-system`; make namespaces, and take ours away again",
    ),
    Right::new(
        "",
        &["configmaps", "secrets", "persistentvolumeclaims", "services"],
        &["get", "list", "watch", "create", "update", "patch", "delete"],
        "what pods refer to goes along with them, and what policies select; only what carries our labels is changed",
    ),
    Right::new("", &["events"], &["list", "watch"], "why a pod does not start"),
    Right::new(
        "apps",
        &["deployments", "statefulsets", "daemonsets"],
        &["list"],
        "a namespace that we made is not taken away while somebody else uses it",
    ),
    Right::new("batch", &["jobs", "cronjobs"], &["list"], "likewise"),
    Right::new(
        "scheduling.k8s.io",
        &["priorityclasses"],
        &["list", "watch"],
        "a class that is not there cannot be asked for",
    ),
    Right::new("node.k8s.io", &["runtimeclasses"], &["list", "watch"], "likewise"),
];

/// An account with these rights that a person makes in a member, for a kubeconfig to install with. `federlet join` makes
/// one by itself, whose token it also renews.
pub fn member_manifests() -> Vec<Value> {
    let (name, rbac) = ("federlet", "rbac.authorization.k8s.io");
    let (version, within) = (format!("{rbac}/v1"), json!({ "name": name, "namespace": name }));
    let rules: Vec<_> = MEMBER_RIGHTS.iter().chain(MEMBER_OBJECT_RIGHTS).map(Right::rule).collect();
    let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": name }]);
    let more = "federlet:more-objects";
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": within, "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": name, "namespace": name, "annotations": { "kubernetes.io/service-account.name": name },
            },
        }),
        json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name },
            "subjects": subjects,
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": more }, "rules": [],
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { OBJECTS_ROLE: "true" } }] },
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": more },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": more }, "subjects": subjects,
        }),
    ]
}
