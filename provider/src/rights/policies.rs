//! What obeying policies takes on the host, beyond serving nodes.

use super::Right;
use crate::join::SYSTEM_NAMESPACE;

/// What whoever serves nodes may do so that overrides are made on pods as they are sent: also those who serve one
/// member alone.
pub const HOST_OVERRIDE_RIGHTS: &[Right] = &[
    Right::new(
        "policy.karmada.io",
        &["propagationpolicies", "clusterpropagationpolicies", "overridepolicies", "clusteroverridepolicies"],
        &["list", "watch"],
        "what people want",
    ),
    Right::new(
        "apps",
        &["deployments", "replicasets", "statefulsets", "daemonsets"],
        &["get", "list", "watch"],
        "where a pod came from",
    ),
    Right::new("batch", &["jobs", "cronjobs"], &["get", "list", "watch"], "likewise"),
    Right::new("", &["pods/eviction"], &["create"], "pods that a policy wants elsewhere, or otherwise"),
    Right::new(
        "events.k8s.io",
        &["events"],
        &["create", "patch"],
        "why a workload or a policy cannot be obeyed",
    ),
];

/// What whoever decides may do: place pods and their copies, answer the host, write down what was decided.
pub const HOST_POLICY_RIGHTS: &[Right] = &[
    Right::new(
        "policy.karmada.io",
        &[
            "propagationpolicies/status",
            "clusterpropagationpolicies/status",
            "overridepolicies/status",
            "clusteroverridepolicies/status",
        ],
        &["patch"],
        "what hinders policies",
    ),
    Right::new(
        "",
        &["pods"],
        &["get", "create", "patch"],
        "pods that wait for a cluster are told which; copies of pods that a policy duplicates",
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
    Right::new("", &["secrets"], &["create"], "the certificate with which we answer")
        .within(SYSTEM_NAMESPACE),
    Right::new("", &["secrets"], &["get", "patch"], "likewise")
        .named(&["federlet-webhook"])
        .within(SYSTEM_NAMESPACE),
    Right::new("", &["namespaces"], &["patch"], "a label says where policies are"),
    Right::new(
        "autoscaling",
        &["horizontalpodautoscalers"],
        &["list", "watch"],
        "an autoscaler must not count copies of pods as pods",
    ),
    Right::new(
        "rbac.authorization.k8s.io",
        &["clusterroles"],
        &["get"],
        "the node that stands for several clusters goes with this very role",
    )
    .named(&["federlet"]),
    Right::new(
        "",
        &["users"],
        &["impersonate"],
        "act as the node whose pods have copies in several clusters",
    )
    .named(&["system:node:fleet"]),
];
