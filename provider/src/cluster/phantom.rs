//! Pods of DaemonSets, which exist on the host and run nowhere.
//!
//! A DaemonSet that tolerates every taint (a network plugin, a log shipper) puts a pod on each virtual node. It is meant
//! for the machine under the node, and there is none; the member's machines have their own. So it does not run, and so
//! that nothing waits for it, it counts as ready.

use federlet_node::contract::Pod;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    json::{items, text},
    marks::RUN_DAEMONSET,
};

/// What such a pod says of itself.
const REASON: &str = "NotRunOnVirtualNode";

/// Whether this pod is of a DaemonSet and not meant for the member.
pub(crate) fn is_phantom(pod: &Pod) -> bool {
    let owners = pod.metadata().get("ownerReferences");
    let daemon = items(owners).any(|owner| {
        text(owner, "kind") == Some("DaemonSet")
            && text(owner, "apiVersion").is_some_and(|version| version.starts_with("apps/"))
    });
    daemon && pod.annotation(RUN_DAEMONSET) != Some("true")
}

/// The pod as the host shows it: ready, and honest about why.
pub(crate) fn shown(pod: &Pod) -> Pod {
    let since = pod.metadata().get("creationTimestamp").cloned();
    let since = since.unwrap_or_else(|| Timestamp::UNIX_EPOCH.to_string().into());
    let message = format!(
        "pods of DaemonSets do not run on virtual nodes; to change that, annotate the template with {RUN_DAEMONSET}=true"
    );
    let statuses: Vec<Value> = items(pod.spec().get("containers"))
        .map(|container| {
            json!({
                "name": container.get("name"), "image": container.get("image"), "imageID": "",
                "ready": false, "started": false, "restartCount": 0,
                "state": { "waiting": { "reason": REASON, "message": message } },
            })
        })
        .collect();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": REASON, "message": message, "lastTransitionTime": since });
    let conditions = ["Initialized", "Ready", "ContainersReady"].map(condition);
    let status = json!({
        "phase": "Running", "startTime": since, "containerStatuses": statuses, "conditions": conditions,
    });
    pod.clone().with_status(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(owner: &str, annotations: &Value) -> Pod {
        Pod::try_from(json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "annotations": annotations,
                         "creationTimestamp": "2026-01-01T00:00:00Z",
                         "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "x", "controller": true}]},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap()
    }

    #[test]
    fn only_daemons_that_did_not_ask_are_phantoms() {
        assert!(is_phantom(&pod("DaemonSet", &json!({}))));
        assert!(!is_phantom(&pod("DaemonSet", &json!({RUN_DAEMONSET: "true"}))));
        assert!(!is_phantom(&pod("ReplicaSet", &json!({}))));
    }

    #[test]
    fn a_phantom_is_ready_and_says_the_same_each_time() {
        let daemon = pod("DaemonSet", &json!({}));
        let seen = shown(&daemon);
        assert_eq!(seen.status()["conditions"][1]["status"], "True");
        assert_eq!(seen, shown(&daemon));
    }
}
