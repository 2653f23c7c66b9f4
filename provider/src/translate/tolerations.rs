use serde_json::{Value, json};

use crate::{
    json::{Object, list_mut, push_new, text},
    target::Target,
};

/// Taints that a node gets when it cannot be reached.
const OFFLINE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Keeps the tolerations of the pod but those for our own taint. In a region adds what lets pods stay: offline is
/// normal at the edge, and a pod that is deleted for it is killed when the node comes back.
pub(super) fn rewrite(spec: &mut Object, target: &Target) {
    if target.region.is_none() && !spec.contains_key("tolerations") {
        return;
    }
    let tolerations = list_mut(spec, "tolerations");
    tolerations.retain(|toleration| text(toleration, "key").is_none_or(|key| !target.taints.contains(key)));
    let Some(region) = &target.region else { return };
    // The host's admission gave each pod 300 seconds; with both, the shorter one would win.
    tolerations.retain(|toleration| !is_offline(toleration));
    for key in OFFLINE {
        push_new(tolerations, json!({ "key": key, "operator": "Exists", "effect": "NoExecute" }));
    }
    for toleration in &region.tolerations {
        push_new(tolerations, toleration.clone());
    }
}

fn is_offline(toleration: &Value) -> bool {
    text(toleration, "key").is_some_and(|key| OFFLINE.contains(&key))
        && text(toleration, "effect").is_none_or(|effect| effect == "NoExecute")
}
