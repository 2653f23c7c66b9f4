//! Which pods a drain evicts, which it leaves, and which stop it. As `kubectl drain` decides.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{Resource, ResourceExt};

/// What somebody allowed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    /// Pods of DaemonSets stay.
    pub(super) daemon_sets: bool,
    /// What is in emptyDir volumes may be lost.
    pub(super) empty_dirs: bool,
    /// Pods that nobody starts again may go.
    pub(super) force: bool,
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Evict,
    /// It stays, for this reason.
    Leave(&'static str),
    /// It would be lost; this flag allows it.
    Stop(&'static str),
}

pub(super) fn fate(pod: &Pod, allowed: Allowed) -> Fate {
    let status = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(status, Some("Succeeded" | "Failed")) || pod.meta().deletion_timestamp.is_some();
    if pod.annotations().contains_key("kubernetes.io/config.mirror") {
        return Fate::Leave("it belongs to the machine");
    }
    let controller: Option<&OwnerReference> =
        pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    if controller.is_some_and(|owner| owner.kind == "DaemonSet") && !is_over {
        return if allowed.daemon_sets {
            Fate::Leave("it belongs to a DaemonSet")
        } else {
            Fate::Stop(
                "it belongs to a DaemonSet, which would start it again; leave such pods with --ignore-daemonsets",
            )
        };
    }
    if is_over {
        return Fate::Evict;
    }
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    if !allowed.empty_dirs && volumes.into_iter().flatten().any(|volume| volume.empty_dir.is_some()) {
        return Fate::Stop("it has data in an emptyDir volume; lose it with --delete-emptydir-data");
    }
    if !allowed.force && controller.is_none() {
        return Fate::Stop("nobody starts it again elsewhere; lose it with --force");
    }
    Fate::Evict
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(owner: Option<&str>, extra: &Value) -> Pod {
        let owners = owner.map(
            |kind| json!([{"kind": kind, "name": "o", "uid": "u", "apiVersion": "v1", "controller": true}]),
        );
        let mut pod =
            json!({"metadata": {"name": "p", "ownerReferences": owners}, "spec": {"containers": []}});
        for (key, value) in extra.as_object().unwrap() {
            pod[key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn nothing_is_lost_unless_it_is_allowed() {
        let data = json!({"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}});
        let done = json!({"status": {"phase": "Succeeded"}, "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}});
        let (none, all) = (Allowed::default(), Allowed { daemon_sets: true, empty_dirs: true, force: true });
        let plain = json!({});
        let stopped = |fate: Fate, flag: &str| matches!(fate, Fate::Stop(why) if why.contains(flag));
        assert_eq!(fate(&pod(Some("ReplicaSet"), &plain), none), Fate::Evict);
        assert_eq!(fate(&pod(None, &done), none), Fate::Evict, "it is over");
        assert!(stopped(fate(&pod(None, &plain), none), "--force"));
        assert!(stopped(fate(&pod(Some("ReplicaSet"), &data), none), "--delete-emptydir-data"));
        assert!(stopped(fate(&pod(Some("DaemonSet"), &plain), none), "--ignore-daemonsets"));
        for (owner, extra) in [(None, &plain), (Some("ReplicaSet"), &data)] {
            assert_eq!(fate(&pod(owner, extra), all), Fate::Evict);
        }
        assert!(matches!(fate(&pod(Some("DaemonSet"), &plain), all), Fate::Leave(_)));
        let mirror = json!({"metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}}});
        assert!(matches!(fate(&pod(None, &mirror), all), Fate::Leave(_)));
    }
}
