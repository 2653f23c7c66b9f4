//! What to do about all pods of a workload: which go where, which move, and what to say.

mod clusters;
mod misfits;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Taint;

use super::{
    assign::{Assignment, Seat, assign},
    seen::SeenPod,
    sequence::sequence,
};
use crate::{
    api::{Cluster, ResourceBinding},
    divide::{Method, Shares, TieBreak, static_weights},
    govern::Governed,
    object::Identity,
    overrides,
    place::{Peers, PlaceError, Placed, Rejection},
    steer,
    store::View,
};

/// What is known.
pub(super) struct Situation<'a> {
    pub(super) governed: &'a Governed,
    pub(super) identity: &'a Identity,
    pub(super) uid: &'a str,
    /// All pods of the workload.
    pub(super) pods: &'a [SeenPod],
    pub(super) view: &'a View,
    pub(super) binding: Option<&'a ResourceBinding>,
    pub(super) peers: &'a Peers,
    /// The node that stands for several clusters at once, if there is one.
    pub(super) fleet_node: Option<&'a str>,
    /// Clusters that the workload is leaving or has left.
    pub(super) leaving: &'a BTreeSet<String>,
    /// Those of them whose pods stay until a person says so.
    pub(super) kept: &'a BTreeSet<String>,
    /// Pods that were created since then may not be in what clusters say of their room yet; none if all are.
    pub(super) unsettled: Option<&'a str>,
    /// Clusters from which taints drive copies by now.
    pub(super) driven: &'a BTreeSet<String>,
    /// What people put on the nodes of clusters so that new pods stay out.
    pub(super) closed: &'a BTreeMap<String, Vec<Taint>>,
}

/// What to write into one pod. It is the only write of ours in the life of most pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pin {
    pub(super) pod: usize,
    pub(super) cluster: String,
    /// The deletion cost, where it matters.
    pub(super) cost: Option<i64>,
}

/// Why pods wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) pins: Vec<Pin>,
    /// Another deletion cost for pods that stay.
    pub(super) costs: Vec<(usize, i64)>,
    /// Pods in clusters where they must not be.
    pub(super) misfits: Vec<usize>,
    /// Pods of which their cluster has too many.
    pub(super) surplus: Vec<usize>,
    pub(super) waiting: Option<Waiting>,
    /// Where they are when all that is done. If each has copies in several clusters, how many copies are in each.
    pub(super) shares: Shares,
    /// Whether each has copies in several clusters.
    pub(super) copied: bool,
    /// The affinity group that was used.
    pub(super) affinity: Option<String>,
}

impl Situation<'_> {
    /// Decides for the whole workload.
    pub(super) fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        for members in self.revisions() {
            self.revision(&members, &mut plan);
        }
        self.look_at_daemons(&mut plan);
        let mut shares = Shares::new();
        let mut on_fleet = 0;
        for (index, pod) in self.pods.iter().enumerate().filter(|(_, pod)| pod.counts()) {
            let pinned = plan.pins.iter().find(|pin| pin.pod == index).map(|pin| &pin.cluster);
            match pinned.or(pod.cluster.as_ref().filter(|_| !pod.is_gated())) {
                Some(cluster) if self.is_fleet(cluster) => on_fleet += 1,
                Some(cluster) => *shares.entry(cluster.clone()).or_default() += 1,
                None => {}
            }
        }
        self.hold_back(&mut plan);
        if !plan.copied && on_fleet > 0 {
            // Nothing else was decided about copies, so they stay where they are.
            plan.shares = self.recorded().map(|cluster| (cluster.to_owned(), 0)).collect();
            plan.copied = true;
        }
        if plan.copied {
            for (cluster, count) in &mut plan.shares {
                *count = self.wanted_in(cluster).map_or(on_fleet, |wanted| wanted.min(on_fleet));
            }
        } else {
            plan.shares = shares;
        }
        plan
    }

    /// Pods for clusters that get nothing for now wait at the gate.
    fn hold_back(&self, plan: &mut Plan) {
        let suspension = self.governed.spec.as_ref().and_then(|spec| spec.suspension.as_ref());
        let Some(suspension) = suspension else { return };
        if suspension.dispatching_on_clusters.as_ref().is_some_and(|on| !on.cluster_names.is_empty()) {
            // Who moved now might wait as well.
            plan.surplus.clear();
        }
        let mut held = BTreeSet::new();
        plan.pins.retain(|pin| {
            let holds = suspension.holds_back(&pin.cluster);
            holds.then(|| held.insert(pin.cluster.clone()));
            !holds
        });
        if !held.is_empty() && plan.waiting.is_none() {
            let names = held.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("policy {} suspends dispatching to {names}", self.governed.claim.policy);
            plan.waiting = Some(Waiting { reason: "Held", message });
        }
    }

    /// Pods that are divided, each revision on its own.
    fn revisions(&self) -> Vec<Vec<usize>> {
        let mut revisions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, pod) in self.pods.iter().enumerate().filter(|(_, pod)| pod.counts() && pod.is_placed()) {
            revisions.entry(pod.revision()).or_default().push(index);
        }
        for members in revisions.values_mut() {
            members.sort_by_key(|index| {
                let pod = &self.pods[*index];
                (pod.ordinal, &pod.created, &pod.name)
            });
        }
        revisions.into_values().collect()
    }

    /// Where the workload would be if it were in none of these clusters, or why it would be nowhere.
    pub(super) fn elsewhere(&self, leaving: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
        if let Some(hold) = &self.governed.hold {
            return Err(hold.to_string());
        }
        let mut clusters = BTreeSet::new();
        for members in self.revisions() {
            let placed = self.place_without(&self.in_open_clusters(&members), leaving);
            let placed = placed.map_err(|error| explain(&error, &self.governed.claim))?;
            clusters.extend(placed.shares.into_keys());
        }
        Ok(clusters)
    }

    fn is_fleet(&self, cluster: &str) -> bool {
        self.fleet_node == Some(cluster)
    }

    /// Whether each pod has a copy in every cluster. One that can only ever mean one cluster needs none.
    fn is_copied(&self, chosen: usize) -> bool {
        let placement = &self.governed.placement;
        let several =
            if self.fleet_node.is_some() { steer::only_cluster(placement).is_none() } else { chosen > 1 };
        Method::of(placement) == Method::Duplicated && several
    }

    /// The clusters that were chosen before.
    fn recorded(&self) -> impl Iterator<Item = &str> {
        let binding = self.binding.iter().flat_map(|binding| &binding.spec.clusters);
        binding.map(|target| target.name.as_str())
    }

    fn revision(&self, pods: &[usize], plan: &mut Plan) {
        let waits = pods.iter().any(|index| !self.pods[*index].bound);
        if let Some(hold) = &self.governed.hold {
            if waits {
                plan.waiting = Some(Waiting { reason: "Held", message: hold.to_string() });
            }
            return;
        }
        let open = self.in_open_clusters(pods);
        match self.place(&open) {
            Ok(placed) => {
                plan.affinity.clone_from(&placed.affinity);
                self.obey(&open, &placed, plan);
                self.find_misfits(pods, &placed.rejected, self.is_copied(placed.shares.len()), plan);
            }
            Err(error) => {
                if waits {
                    plan.waiting = Some(Waiting {
                        reason: error.reason(),
                        message: explain(&error, &self.governed.claim),
                    });
                }
                if let PlaceError::NoClusterFit { rejected } = &error {
                    let copied = self.fleet_node.is_some() && self.is_copied(0);
                    plan.copied |= copied;
                    self.find_misfits(pods, rejected, copied, plan);
                }
            }
        }
    }

    fn obey(&self, pods: &[usize], placed: &Placed, plan: &mut Plan) {
        let method = Method::of(&self.governed.placement);
        if self.is_copied(placed.shares.len()) {
            return self.duplicate(pods, placed, plan);
        }
        let clusters: Vec<&Cluster> =
            placed.shares.keys().filter_map(|name| self.view.clusters.get(name)).map(|c| &**c).collect();
        let scheduling = self.governed.placement.replica_scheduling.as_ref();
        let rules = scheduling.and_then(|scheduling| scheduling.weight_preference.as_ref());
        let weights = static_weights(rules.map_or(&[], |rules| &rules.static_weight_list), &clusters);
        let weights: Vec<(&str, u64)> = placed.shares.keys().map(String::as_str).zip(weights).collect();
        let order = sequence(method, &placed.shares, &weights, TieBreak::by_uid(self.uid));
        let assignment = assign(&order, &self.seats(pods));
        // With one cluster there is no order to keep: nothing is written for it alone.
        self.take_seats(pods, &assignment, placed.shares.len() > 1, plan);
        // What was measured stays where it is; what somebody fixed is kept exact.
        if method == Method::StaticWeights {
            // While a cluster is closed, names stand for other clusters than usual, and what runs stays all the same.
            let tolerations = self.tolerations(pods);
            let mut kept_out = placed.rejected.iter().filter(|(_, why)| matches!(why, Rejection::Taint(_)));
            let closed = kept_out.any(|(cluster, _)| self.is_closed(cluster, tolerations));
            let surplus = assignment.surplus.into_iter().map(|index| pods[index]);
            plan.surplus.extend(surplus.filter(|index| !closed || self.pods[*index].ordinal.is_none()));
        }
    }

    fn duplicate(&self, pods: &[usize], placed: &Placed, plan: &mut Plan) {
        let gated = pods.iter().copied().filter(|index| self.pods[*index].is_gated());
        if let Some(node) = self.fleet_node {
            plan.copied = true;
            plan.shares.extend(placed.shares.clone());
            let ordered = placed.shares.keys().any(|cluster| self.wanted_in(cluster).is_some());
            if ordered {
                return self.rank(pods, node, plan);
            }
            plan.pins.extend(gated.map(|pod| Pin { pod, cluster: node.to_owned(), cost: None }));
        } else if gated.count() > 0 {
            let names: Vec<&str> = placed.shares.keys().map(String::as_str).collect();
            let message = format!(
                "policy {} wants a copy in each of {}: that needs the fleet node, which is not there",
                self.governed.claim.policy,
                names.join(", ")
            );
            plan.waiting = Some(Waiting { reason: "NoFleetNode", message });
        }
    }

    /// How many copies overrides want in a cluster, if they say.
    fn wanted_in(&self, cluster: &str) -> Option<u32> {
        let policies = self.view.overrides.iter().map(|policy| policy.policy());
        overrides::replicas(self.identity, self.view.clusters.get(cluster)?, policies)
    }

    /// Gives pods an order: a cluster with fewer copies has those of the first.
    fn rank(&self, pods: &[usize], node: &str, plan: &mut Plan) {
        let seats = self.seats(pods);
        let last = seats.iter().filter_map(|seat| seat.ordinal).max().map_or(0, |last| last as usize + 1);
        let assignment = assign(&vec![node.to_owned(); pods.len().max(last)], &seats);
        self.take_seats(pods, &assignment, true, plan);
    }

    /// Where pods are now. What is measured stays where it is, whatever position its name stands for: those that come
    /// get what is left, in the order of their names.
    fn seats(&self, pods: &[usize]) -> Vec<Seat> {
        let named = !Method::of(&self.governed.placement).looks_at_room();
        let seat = |index: &usize| {
            let pod = &self.pods[*index];
            let cluster = pod.cluster.clone().filter(|_| !pod.is_gated());
            Seat { cluster, position: pod.position(), ordinal: pod.ordinal.filter(|_| named) }
        };
        pods.iter().map(seat).collect()
    }

    /// Pins pods as they were assigned. Their positions are written where their controller heeds them; of pods that
    /// stay where they are, only if there is an order to keep.
    fn take_seats(&self, pods: &[usize], assignment: &Assignment, ordered: bool, plan: &mut Plan) {
        let heeds = |index: usize| self.pods[pods[index]].heeds_cost();
        plan.pins.extend(assignment.pins.iter().map(|(index, cluster, position)| Pin {
            pod: pods[*index],
            cluster: cluster.clone(),
            cost: heeds(*index).then_some(-i64::from(*position)),
        }));
        let costs = assignment.renumber.iter().filter(|(index, _)| ordered && heeds(*index));
        plan.costs.extend(costs.map(|(index, position)| (pods[*index], -i64::from(*position))));
    }
}

fn explain(error: &PlaceError, claim: &crate::claim::Claim) -> String {
    let mut text = format!("policy {}: {error}", claim.policy);
    if let PlaceError::NoClusterFit { rejected } = error {
        for (name, why) in rejected {
            text += &format!("; {name}: {why}");
        }
    }
    text
}

#[cfg(test)]
mod tests;
