//! How much room a member has.
//!
//! What the host's scheduler needs to place pods as on a real node: how much there is in all, how much the largest
//! machine has left, and which taints every machine carries. Nodes and pods of the member are read once into small
//! structs, so that tens of thousands of them can be kept.

mod limits;
mod node;
mod requests;
mod resources;
mod room;
mod settled;
mod summary;
mod taints;

use std::collections::{BTreeMap, BTreeSet};

pub use self::{
    limits::{Limit, LimitError, Limits},
    node::MemberNode,
    requests::{PodLoad, requests},
    resources::Resources,
    room::{ROOM_PREFIX, coarse, fit_expressions, may_preempt, room_for, room_label, room_labels},
    settled::Settled,
    summary::{NodeSummary, agreed_label, declared_features, differ_in},
    taints::{Taint, Taints},
};
use crate::selector::Selector;

/// Which nodes of a member count, and how much of them.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Only the nodes that it selects; all if unset.
    pub region: Option<Selector>,
    /// What the owner of the member grants.
    pub limits: Limits,
}

/// The room in a scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    /// What the machines have.
    pub capacity: Resources,
    /// What is there for our pods, those that run already included.
    pub allocatable: Resources,
    /// The most that is free on any one machine now.
    pub largest: Resources,
    /// What our pods hold on machines of the scope that do not count at the moment. It is gone from `allocatable`,
    /// yet the host's scheduler still subtracts it: see [`published`](Self::published).
    pub stranded: Resources,
    /// Taints of the machines.
    pub taints: Taints,
    /// How many there are.
    pub nodes: NodeSummary,
}

impl Capacity {
    /// Adds up what counts.
    ///
    /// A machine counts if it is of the scope, Ready, not cordoned, and if pods can get there: in a region lasting
    /// taints are tolerated, elsewhere a machine with a taint that others do not have is for pods that we do not
    /// know of. One under pressure takes none.
    pub fn of(nodes: &[MemberNode], pods: &[PodLoad], scope: &Scope) -> Self {
        let in_scope: Vec<&MemberNode> = nodes
            .iter()
            .filter(|node| !node.is_virtual && scope.region.as_ref().is_none_or(|region| node.is_in(region)))
            .collect();
        // Also those that take no pods at the moment: while the only worker is down, the taint of the control plane does not
        // become one that all have.
        let taints = Taints::of(&in_scope);
        let usable = in_scope.iter().copied().filter(|node| node.ready && node.schedulable);
        let counted: Vec<&MemberNode> =
            usable.filter(|node| taints.is_open(node, scope.region.is_some())).collect();

        let mut sum = Self { nodes: NodeSummary::of(&in_scope), taints, ..Self::default() };
        let held = Held::of(pods, &in_scope);
        let mut gross = Resources::default();
        for node in &counted {
            let (foreign, ours) = held.on(&node.name);
            let available = node.allocatable.minus(foreign);
            sum.capacity.add(&node.capacity);
            gross.add(&node.allocatable);
            sum.largest.raise_to(&available.minus(ours));
            sum.allocatable.add(&available);
        }
        let counted: BTreeSet<&str> = counted.iter().map(|node| &*node.name).collect();
        for node in in_scope.iter().filter(|node| !counted.contains(&*node.name)) {
            sum.stranded.add(held.on(&node.name).1);
            // None of it is there now, which is not the same as that there is no such thing.
            sum.capacity.add(&node.capacity.minus(&node.capacity));
            sum.allocatable.add(&node.allocatable.minus(&node.allocatable));
        }
        scope.limits.cap(&mut sum.allocatable, &gross);
        scope.limits.cap(&mut sum.capacity, &gross);
        sum.largest.cut_to(&sum.allocatable);
        sum
    }

    /// What to publish as allocatable, so that what is left of it after the host's scheduler has subtracted all our
    /// pods is what is free on the machines that count.
    ///
    /// A pod that only the member still knows, on a machine that is offline, counts as if the host had it: at worst one
    /// pod too many waits in the member.
    #[must_use]
    pub fn published(&self, limits: &Limits) -> Resources {
        let mut published = self.allocatable.clone();
        for (resource, amount) in self.stranded.iter().filter(|(resource, _)| self.allocatable.has(resource))
        {
            published.set(resource, self.allocatable.get(resource) + amount);
        }
        limits.cap_amounts(&mut published);
        published
    }
}

/// What pods hold on each machine: those of others, and ours.
struct Held<'a>(BTreeMap<&'a str, (Resources, Resources)>, Resources);

impl<'a> Held<'a> {
    fn of(pods: &[PodLoad], nodes: &[&'a MemberNode]) -> Self {
        let mut held: BTreeMap<&str, (Resources, Resources)> =
            nodes.iter().map(|node| (&*node.name, <(Resources, Resources)>::default())).collect();
        for pod in pods {
            if let Some((foreign, ours)) = held.get_mut(&*pod.node) {
                if pod.ours { ours.add(&pod.requests) } else { foreign.add(&pod.requests) }
            }
        }
        Self(held, Resources::default())
    }

    fn on(&self, node: &str) -> (&Resources, &Resources) {
        self.0.get(node).map_or((&self.1, &self.1), |(foreign, ours)| (foreign, ours))
    }
}

#[cfg(test)]
mod tests;
