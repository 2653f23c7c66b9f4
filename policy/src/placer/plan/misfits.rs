//! Pods that must not be where they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plan, Situation};
use crate::{api::Cluster, daemon, divide::Method, place::Rejection, placer::seen::SeenPod, spread, steer};

impl Situation<'_> {
    /// Pods of a daemon set that are on nodes which the policy does not mean. Those that come instead do not run.
    pub(super) fn look_at_daemons(&self, plan: &mut Plan) {
        let mut pods =
            self.pods.iter().enumerate().filter(|(_, pod)| pod.counts() && pod.is_daemon()).peekable();
        if pods.peek().is_none() {
            return;
        }
        let Some(nodes) = daemon::nodes(self.governed, self.view, self.binding) else { return };
        let is_misfit = |pod: &SeenPod| pod.cluster.as_ref().is_some_and(|node| !nodes.stay.contains(node));
        plan.misfits.extend(pods.filter(|(_, pod)| is_misfit(pod)).map(|(index, _)| index));
        plan.affinity = nodes.affinity;
    }

    /// Pods in clusters that the policy does not want, or that are no clusters any more.
    pub(super) fn find_misfits(
        &self,
        pods: &[usize],
        rejected: &BTreeMap<String, Rejection>,
        copied: bool,
        plan: &mut Plan,
    ) {
        let spread_out = self.is_spread_out(pods);
        for index in pods {
            let pod = &self.pods[*index];
            let Some(cluster) = pod.cluster.as_ref().filter(|_| !pod.is_gated()) else { continue };
            // Whoever came instead would be sent there as well.
            if steer::certain_cluster(&self.governed.placement) == Some(cluster) {
                continue;
            }
            if self.kept.contains(cluster) {
                plan.surplus.retain(|surplus| surplus != index);
                continue;
            }
            let on_fleet = self.is_fleet(cluster);
            let gone = !self.view.clusters.contains_key(cluster) && !on_fleet;
            // One in a single cluster has no copies, and one with copies is in no single cluster.
            let elsewhere = self.fleet_node.is_some() && copied != on_fleet;
            let unwanted = match rejected.get(cluster) {
                Some(Rejection::Affinity(_) | Rejection::Deleting | Rejection::Leaving) => true,
                Some(Rejection::NoGroup(_)) => self.governed.current,
                Some(Rejection::NotNeeded) => spread_out,
                _ => false,
            };
            // It never ran, and what its cluster has keeps it from running.
            let stranded = !pod.bound && matches!(rejected.get(cluster), Some(Rejection::Taint(_)));
            if gone || unwanted || elsewhere || stranded {
                plan.surplus.retain(|surplus| surplus != index);
                plan.misfits.push(*index);
            }
        }
    }
    /// Whether pods that stay where there was room are in more clusters, regions or other groups than the policy allows
    /// by now. As long as they are not, room that comes and goes moves nobody.
    fn is_spread_out(&self, pods: &[usize]) -> bool {
        let placement = &self.governed.placement;
        let there = pods.iter().map(|index| &self.pods[*index]).filter(|pod| !pod.is_gated());
        let names: BTreeSet<&String> = there.filter_map(|pod| pod.cluster.as_ref()).collect();
        let clusters: Vec<&Cluster> =
            names.into_iter().filter_map(|name| self.view.clusters.get(name)).map(|one| &**one).collect();
        self.governed.current
            && Method::of(placement).looks_at_room()
            && spread::exceeded(&placement.spread_constraints, &clusters)
    }
}
