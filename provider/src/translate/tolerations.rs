use serde_json::{Value, json};

use crate::{
    json::{Object, items, list_mut, push_new, text},
    marks,
    target::Target,
};

/// Taints that a node gets when it cannot be reached.
const OFFLINE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Keeps the tolerations of the pod but those for our own taint. In a region adds what lets pods stay: offline is
/// normal at the edge, and a pod that is deleted for it is killed when the node comes back.
///
/// Admission may have put the tolerations of the pod into an annotation, so that the host does not drive it out; here they
/// are what they were.
pub(super) fn rewrite(spec: &mut Object, host: &Value, target: &Target) {
    let own = marks::annotation(host, marks::TOLERATIONS).and_then(|text| serde_json::from_str(text).ok());
    if let Some(Value::Array(own)) = own {
        spec.insert("tolerations".into(), Value::Array(own));
    }
    if target.region.is_none() && !spec.contains_key("tolerations") {
        return;
    }
    let tolerations = list_mut(spec, "tolerations");
    tolerations.retain(|toleration| text(toleration, "key").is_none_or(|key| !target.taints.contains(key)));
    let Some(region) = &target.region else { return };
    // The host's admission gave each pod 300 seconds; with both, the shorter one would win. One without a key is about
    // these taints, too.
    tolerations.retain(|toleration| !is_offline(toleration));
    for key in OFFLINE {
        push_new(tolerations, json!({ "key": key, "operator": "Exists", "effect": "NoExecute" }));
    }
    for toleration in region.tolerations.iter().flatten() {
        push_new(tolerations, toleration.clone());
    }
}

fn is_offline(toleration: &Value) -> bool {
    let for_a_time = toleration.get("tolerationSeconds").is_some_and(|seconds| !seconds.is_null());
    let about = match text(toleration, "key").unwrap_or_default() {
        "" => for_a_time,
        key => OFFLINE.contains(&key),
    };
    about && text(toleration, "effect").is_none_or(|effect| effect.is_empty() || effect == "NoExecute")
}

/// Whether the pod tolerates every taint that keeps pods off, those of virtual nodes among them.
pub(super) fn tolerates_all(spec: &Object) -> bool {
    items(spec.get("tolerations")).any(|toleration| {
        let empty = |field: &str| text(toleration, field).is_none_or(str::is_empty);
        empty("key") && (empty("effect") || text(toleration, "effect") == Some("NoSchedule"))
    })
}
