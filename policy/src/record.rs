//! How a decision is sent to the host: one shape for bindings of workloads and of everything else.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    api::{ResourceBinding, ResourceBindingSpec},
    object::Identity,
    store::only_onto,
};

/// Lists that are said even when they are empty: what is left out is not taken away if somebody else wrote it, too.
const SAID: [&str; 3] = ["clusters", "gracefulEvictionTasks", "leftClusters"];

/// What is sent. It changes exactly the binding that was seen: what people wrote into it since is not ours to undo.
pub(crate) fn applied(
    name: &str,
    (object, uid): (&Identity, &str),
    spec: &ResourceBindingSpec,
    (labels, annotations): (&BTreeMap<String, String>, &BTreeMap<String, String>),
    seen: Option<&ResourceBinding>,
) -> Value {
    let kind = if object.namespace.is_empty() { "ClusterResourceBinding" } else { "ResourceBinding" };
    let mut applied = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": kind,
        "metadata": {
            "name": name, "labels": labels, "annotations": annotations,
            // It goes with its object.
            "ownerReferences": [{
                "apiVersion": object.api_version, "kind": object.kind, "name": object.name,
                "uid": uid, "controller": true,
            }],
        },
        "spec": spec,
    });
    if !object.namespace.is_empty() {
        applied["metadata"]["namespace"] = json!(object.namespace);
    }
    for list in SAID {
        if applied["spec"].get(list).is_none() {
            applied["spec"][list] = json!([]);
        }
    }
    only_onto(&mut applied, seen);
    applied
}

/// Whether all that is wanted is there. There may be more, of others.
pub(crate) fn has(there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| there.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_wrote_since_is_not_undone() {
        let none = BTreeMap::new();
        let mut before = ResourceBinding::new("web", ResourceBindingSpec::default());
        before.metadata.resource_version = Some("7".into());
        for (namespace, kind) in [("n", "ResourceBinding"), ("", "ClusterResourceBinding")] {
            let object = Identity { namespace: namespace.into(), name: "web".into(), ..Identity::default() };
            let spec = ResourceBindingSpec::default();
            let sent = |seen| applied("web", (&object, "u"), &spec, (&none, &none), seen);
            assert_eq!(sent(Some(&before))["metadata"]["resourceVersion"], "7");
            assert!(sent(None)["metadata"].get("resourceVersion").is_none(), "else nobody could make it");
            assert_eq!(sent(None)["kind"], kind);
            assert_eq!(sent(None)["metadata"].get("namespace").is_some(), !namespace.is_empty());
            assert_eq!(sent(None)["spec"]["leftClusters"], json!([]));
        }
    }
}
