//! Clusters as decisions about pods look at them.

use federlet_provider::capacity::Resources;
use k8s_openapi::api::core::v1::Taint;

use crate::{api::Cluster, estimate};

/// How many replicas a cluster has room for. An annotation that is not a number says nothing.
pub(super) fn room(cluster: &Cluster, replica: &Resources) -> u32 {
    let stated = estimate::stated(cluster).ok().flatten();
    stated.unwrap_or_else(|| estimate::room(cluster, replica))
}

/// A cluster that is not ready takes nothing new.
pub(crate) fn seen(cluster: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    if !is_ready(&cluster) {
        cluster.spec.taints.push(Taint {
            key: "cluster.karmada.io/not-ready".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
    }
    cluster
}

/// Whether a cluster says that it is.
pub(super) fn is_ready(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
