//! Which clusters the pods of a workload may be in, and how many in each.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::Situation;
use crate::{
    api::Cluster,
    divide::Shares,
    place::{Member, PlaceError, Placed, Request, place},
    placer::{
        clusters::{is_ready, room, seen},
        seen::SeenPod,
    },
    propagate::kinds::is_copied,
    taints,
};

impl Situation<'_> {
    /// What can be nowhere else stays, although it is leaving.
    pub(super) fn place(&self, pods: &[usize]) -> Result<Placed, PlaceError> {
        match self.place_without(pods, self.leaving) {
            Err(PlaceError::NoClusterFit { .. }) if !self.leaving.is_empty() => {
                self.place_without(pods, &BTreeSet::new())
            }
            placed => placed,
        }
    }

    pub(super) fn place_without(
        &self,
        pods: &[usize],
        leaving: &BTreeSet<String>,
    ) -> Result<Placed, PlaceError> {
        let mut previous = Shares::new();
        let tolerations = self.tolerations(pods);
        // Where other revisions are, this one may be too, whatever taints came since.
        for pod in self.pods.iter().filter(|pod| pod.counts() && !pod.is_gated()) {
            let stays = |name: &String| !self.is_deserted(name) && !self.is_closed(name, tolerations);
            let cluster = pod.cluster.clone().filter(|name| !self.is_fleet(name) && stays(name));
            previous.extend(cluster.map(|cluster| (cluster, 0)));
        }
        let mut leaving = leaving.clone();
        if self.fleet_node.is_some() && self.is_copied(0) {
            // What comes to a cluster that drives it out would be driven out again.
            leaving.extend(self.driven.iter().filter(|name| self.was_meant(name)).cloned());
            previous.extend(self.recorded().map(|cluster| (cluster.to_owned(), 0)));
        }
        for index in pods {
            let pod = &self.pods[*index];
            if let Some(count) =
                pod.cluster.as_ref().filter(|_| !pod.is_gated()).and_then(|c| previous.get_mut(c))
            {
                *count += 1;
            }
        }
        let last = self.seats(pods).iter().filter_map(|seat| seat.ordinal).max();
        let total = u32::try_from(pods.len()).unwrap_or(u32::MAX).max(last.map_or(0, |last| last + 1));
        let replica =
            pods.iter().map(|index| &self.pods[*index].requests).next().cloned().unwrap_or_default();
        let with_node = |cluster: &Arc<Cluster>| {
            let mut cluster = seen(cluster);
            let closing = self.closing(&cluster, tolerations).cloned();
            cluster.spec.taints.extend(closing);
            cluster
        };
        let clusters: Vec<Cluster> = self.view.clusters.values().map(with_node).collect();
        let members: Vec<Member<'_>> = clusters
            .iter()
            .map(|cluster| {
                let taken = self.taken_since(cluster.metadata.name.as_deref().unwrap_or_default());
                Member { cluster, free: room(cluster, &replica).saturating_sub(taken) }
            })
            .collect();
        let status = self.binding.and_then(|binding| binding.status.as_ref());
        let observed = status.map(|status| status.scheduler_observed_affinity_name.as_str());
        // Of what is copied besides, only the pods matter here: clusters need not know what they come from.
        let own = (self.identity.api_version.as_str(), self.identity.kind.as_str());
        let (api_version, kind) = if is_copied(self.identity) { ("v1", "Pod") } else { own };
        let request = Request {
            api_version,
            kind,
            uid: self.uid,
            replicas: Some(total),
            placement: &self.governed.placement,
            previous: &previous,
            observed_affinity: observed.filter(|name| !name.is_empty()),
            leaving: &leaving,
            peers: self.peers,
            fresh: false,
        };
        place(&request, &members)
    }

    /// Whether copies are in a cluster, or would come to it: its taints are tolerated, if only for a time.
    fn was_meant(&self, name: &str) -> bool {
        let taints = self.view.clusters.get(name).map_or(&[][..], |cluster| &cluster.spec.taints);
        self.recorded().any(|cluster| cluster == name)
            || taints::untolerated(taints, &self.governed.placement.cluster_tolerations).is_none()
    }

    /// How much of a cluster's room pods of this workload took that it does not know of yet. They come one after the
    /// other, and where the first ones went is as full for the next as if all had come together.
    fn taken_since(&self, cluster: &str) -> u32 {
        let Some(since) = self.unsettled else { return 0 };
        let is_new = |pod: &&SeenPod| {
            pod.counts()
                && !pod.is_gated()
                && pod.cluster.as_deref() == Some(cluster)
                && pod.created.as_str() >= since
        };
        u32::try_from(self.pods.iter().filter(is_new).count()).unwrap_or(u32::MAX)
    }

    /// Whether the host takes the workload's pods out of a cluster, or has done so: it is not ready, or has a taint that
    /// ends pods. Those that come for them must not follow.
    fn is_deserted(&self, name: &str) -> bool {
        let Some(cluster) = self.view.clusters.get(name) else { return false };
        let tolerations = &self.governed.placement.cluster_tolerations;
        let ends_pods = taints::leave(&cluster.spec.taints, tolerations) != taints::Leave::Never;
        let is_there = |pod: &&SeenPod| !pod.over && pod.bound && pod.cluster.as_deref() == Some(name);
        let mut there = self.pods.iter().filter(is_there).peekable();
        let goes = there.peek().is_none() || there.any(|pod| pod.deleting);
        goes && (ends_pods || !is_ready(cluster))
    }

    /// Those of a revision's pods that are divided: not those in clusters that take no new ones. They stay, as on any node
    /// that is cordoned, and whoever comes is divided among the other clusters.
    pub(super) fn in_open_clusters(&self, pods: &[usize]) -> Vec<usize> {
        let tolerations = self.tolerations(pods);
        let is_divided = |index: &&usize| {
            let pod = &self.pods[**index];
            let cluster = pod.cluster.as_deref().filter(|_| !pod.is_gated());
            !cluster.is_some_and(|cluster| self.is_closed(cluster, tolerations))
        };
        pods.iter().filter(is_divided).copied().collect()
    }

    /// Whether the host's scheduler sends no new pod that tolerates this to a cluster, for what people put on its node.
    pub(super) fn is_closed(&self, cluster: &str, tolerations: &[Toleration]) -> bool {
        let Some(cluster) = self.view.clusters.get(cluster) else { return false };
        self.closing(cluster, tolerations).is_some()
    }

    /// What on the node of a cluster keeps pods out that tolerate this. What the Cluster says itself is no part of it: that
    /// keeps out only who is not there yet.
    fn closing(&self, cluster: &Cluster, tolerations: &[Toleration]) -> Option<&Taint> {
        let known = |taint: &Taint| {
            cluster.spec.taints.iter().any(|own| own.key == taint.key && own.effect == taint.effect)
        };
        let taints = self.closed.get(cluster.metadata.name.as_deref()?)?;
        taints.iter().find(|taint| {
            !known(taint) && taints::untolerated(std::slice::from_ref(*taint), tolerations).is_some()
        })
    }

    /// What the pods of a revision tolerate: those that wait for a cluster, if there are any.
    pub(super) fn tolerations(&self, pods: &[usize]) -> &[Toleration] {
        let mut all = pods.iter().map(|index| &self.pods[*index]);
        let waiting = all.clone().find(|pod| pod.is_gated());
        waiting.or_else(|| all.next()).map_or(&[], |pod| &pod.tolerates)
    }
}
