//! The marks by which a pod that a policy steers is known, from admission to its end.

use federlet_provider::marks::MADE_BY;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{claim::PolicyKey, owners::Owner};

/// The scheduling gate of a pod that waits to be told its cluster.
pub const GATE: &str = "federlet.io/placement";

/// As a label: the UID of the workload, or [`ITSELF`]. As an annotation: which workload that is, a [`Workload`] in JSON.
pub const WORKLOAD: &str = federlet_provider::marks::WORKLOAD;

/// The label of a pod that nobody made but a person: it is its own workload, and has no UID yet when it is admitted.
pub const ITSELF: &str = "itself";

/// Annotation: the policy that steered the pod, as `namespace/name` or `name`.
pub const POLICY: &str = federlet_provider::marks::POLICY;

/// Label of copies, which nobody steers.
pub const COPY_OF: &str = federlet_provider::marks::COPY_OF;

/// Label of a namespace in which no pod is created without asking us.
pub const COVERED: (&str, &str) = ("federlet.io/policies", "cover");

/// By this label of a node a pod is pinned to a cluster.
pub const NODE_LABEL: &str = "kubernetes.io/hostname";

/// Which of its siblings a ReplicaSet takes away first: the one that says the least.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The object that a policy selected, and that a pod came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID; empty for a pod that is its own workload.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl Workload {
    /// Reads it from a pod; none if no policy steers the pod.
    #[must_use]
    pub fn of(pod: &Value) -> Option<Self> {
        let text = pod.pointer("/metadata/annotations")?.get(WORKLOAD)?.as_str()?;
        serde_json::from_str(text).ok()
    }

    /// The value of the label.
    #[must_use]
    pub fn label(&self) -> &str {
        if self.uid.is_empty() { ITSELF } else { &self.uid }
    }
}

/// The position that a deletion cost stands for, from one. The cost that a person wrote is none.
#[must_use]
pub fn position(cost: i64) -> Option<u32> {
    u32::try_from(cost.checked_neg()?).ok().filter(|position| *position > 0)
}

/// The number in the name of a pod of a stateful set.
#[must_use]
pub fn ordinal(owner: Option<&Owner>, name: &str) -> Option<u32> {
    owner.filter(|owner| owner.kind == "StatefulSet")?;
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok())
}

/// Who made a pod. Of a copy, that is who made the pod that it is a copy of.
#[must_use]
pub fn maker(pod: &Value) -> Option<Owner> {
    if !is_copy(pod) {
        return Owner::of(pod);
    }
    let said = federlet_provider::marks::annotation(pod, MADE_BY)?;
    let reference: Value = serde_json::from_str(said).ok()?;
    Owner::of(&json!({ "metadata": { "ownerReferences": [reference] } }))
}

/// Whether a pod is a copy of another one, for one cluster.
#[must_use]
pub fn is_copy(pod: &Value) -> bool {
    let made_for_binding = Owner::of(pod).is_some_and(|owner| owner.kind == "ResourceBinding");
    made_for_binding && federlet_provider::marks::label(pod, COPY_OF).is_some()
}

/// Reads which policy steered a pod.
#[must_use]
pub fn policy_of(pod: &Value) -> Option<PolicyKey> {
    let text = pod.pointer("/metadata/annotations")?.get(POLICY)?.as_str()?;
    Some(match text.split_once('/') {
        Some((namespace, name)) => PolicyKey { namespace: Some(namespace.into()), name: name.into() },
        None => PolicyKey { namespace: None, name: text.into() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_was_made_by_who_made_its_pod() {
        let owner = |kind: &str| json!({"apiVersion": "v", "kind": kind, "name": "x", "uid": kind, "controller": true});
        let pod = |of: &str, labels: Value| {
            json!({"metadata": {"labels": labels, "ownerReferences": [owner(of)],
                "annotations": {MADE_BY: owner("ReplicaSet").to_string()}}})
        };
        let kind = |pod: Value| maker(&pod).map(|owner| owner.kind);
        assert_eq!(kind(pod("ResourceBinding", json!({COPY_OF: "p1"}))).as_deref(), Some("ReplicaSet"));
        assert_eq!(
            kind(pod("Job", json!({COPY_OF: "p1"}))).as_deref(),
            Some("Job"),
            "anybody can write an annotation"
        );
        assert_eq!(kind(pod("ResourceBinding", json!({}))).as_deref(), Some("ResourceBinding"));
    }

    #[test]
    fn a_position_is_a_cost_with_a_minus() {
        for (cost, expected) in [(-1, Some(1)), (-40, Some(40)), (0, None), (5, None), (i64::MIN, None)] {
            assert_eq!(position(cost), expected, "{cost}");
        }
    }
}
