//! Where one object is to be copied to, and how: its policy, what was decided before, and what needs it. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    api::{
        ActivationPreference, BindingSnapshot, Cluster, ConflictResolution, Placement, ResourceBinding,
        Suspension,
    },
    claim::Claim,
    conflict,
    decide::{Decision, Destination, Previous, Verdict, World, decide},
    divide::{Method, Shares, TieBreak},
    govern::{GENERATION, claim_of},
    inventory::Key,
    matching::{Index, Reserved},
    object::Identity,
    render::Part,
    store::{Propagation, View},
    tainted::{Departure, Tainted, of_cluster},
    taints, workload,
};

/// What is known of an object of the host without reading all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) identity: Identity,
    pub(super) uid: String,
    /// Its resource version.
    pub(super) version: String,
    pub(super) generation: i64,
    pub(super) deleting: bool,
}

impl Seen {
    pub(super) fn key(&self) -> Key {
        let Identity { api_version, kind, namespace, name, .. } = self.identity.clone();
        Key { api_version, kind, namespace, name }
    }

    /// What tells one form of the object from the next: few kinds count generations.
    fn revision(&self) -> String {
        if self.generation > 0 { self.generation.to_string() } else { self.version.clone() }
    }
}

/// What an object needs, and where that is to be: one binding that names this one.
pub(super) type RequiredBy = BTreeMap<Key, BindingSnapshot>;

/// Where an object is to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    pub(super) seen: Arc<Seen>,
    pub(super) template: Arc<Value>,
    /// Each cluster, with its part of the replicas if it has some.
    pub(super) clusters: BTreeMap<String, Part>,
    /// Those of them that it is in by its own policy's word. To the others it only goes along.
    pub(super) own: BTreeSet<String>,
    /// What is held back from clusters.
    pub(super) suspension: Option<Suspension>,
    pub(super) resolution: ConflictResolution,
    pub(super) preserve: bool,
    pub(super) propagate_deps: bool,
    /// The policy that has it; none if it only goes along with others.
    pub(super) claim: Option<Claim>,
    pub(super) placement: Option<Placement>,
    pub(super) affinity: Option<String>,
    pub(super) required_by: Vec<BindingSnapshot>,
    /// What its policy, if it is lazy, was last obeyed for.
    pub(super) revision: Option<String>,
    /// Why it was not simply placed: a reason in one word, and in plain words.
    pub(super) waiting: Option<(&'static str, String)>,
    /// When it has to leave the next cluster because of a taint.
    pub(super) leaves: Option<Timestamp>,
}

/// What a decision for one object looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    pub(super) seen: &'a Arc<Seen>,
    pub(super) view: &'a View,
    pub(super) destinations: &'a [Destination],
    /// What was decided before.
    pub(super) binding: Option<&'a ResourceBinding>,
    /// What needs it.
    pub(super) required_by: Option<&'a RequiredBy>,
    /// Taints of clusters.
    pub(super) tainted: &'a Tainted,
    pub(super) now: Timestamp,
}

/// Who has an object.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    /// A policy.
    Policy(Arc<Propagation>),
    /// A policy that went. What it sent stays.
    Former(Claim),
    /// Nobody, but others need it.
    Others,
}

impl Situation<'_> {
    /// Who has the object; none if it stays on the host.
    pub(super) fn holder(&self) -> Option<Holder> {
        let object = &self.seen.identity;
        if Reserved::default().holds(object) || self.seen.deleting {
            return None;
        }
        let claim = self.binding.and_then(claim_of);
        if let Some(policy) = self.view.policy_of(object, claim.as_ref()) {
            return Some(Holder::Policy(policy));
        }
        let needed = self.required_by.is_some_and(|all| !all.is_empty());
        claim.map(Holder::Former).or_else(|| needed.then_some(Holder::Others))
    }

    /// Decides, given the whole object. None if it stays on the host.
    pub(super) fn wanted(&self, template: &Arc<Value>) -> Option<Wanted> {
        let mut wanted = match self.holder()? {
            Holder::Policy(policy) => self.by_policy(&policy, template),
            Holder::Former(claim) => self.as_before(claim, template),
            Holder::Others => self.empty(template),
        };
        // What is not there, or is going, gets nothing.
        let is_there = |name: &str| self.view.clusters.get(name).is_some_and(|cluster| stays(cluster));
        wanted.clusters.retain(|name, _| is_there(name));
        wanted.own = wanted.clusters.keys().cloned().collect();
        wanted.required_by = self.required_by.into_iter().flat_map(BTreeMap::values).cloned().collect();
        let along = wanted.required_by.iter().flat_map(|one| &one.clusters).map(|cluster| &cluster.name);
        for name in along.filter(|name| is_there(name)) {
            wanted.clusters.entry(name.clone()).or_default();
        }
        Some(wanted)
    }

    fn empty(&self, template: &Arc<Value>) -> Wanted {
        Wanted {
            seen: self.seen.clone(),
            template: template.clone(),
            resolution: conflict::resolution(&self.seen.identity, ConflictResolution::Abort),
            ..Wanted::default()
        }
    }

    /// What its own policy decided before. Where it only went along is not in it.
    fn previous(&self) -> Previous {
        self.binding.map(|one| Previous::of(&one.spec, one.status.as_ref())).unwrap_or_default()
    }

    fn as_before(&self, claim: Claim, template: &Arc<Value>) -> Wanted {
        let mut wanted = self.empty(template);
        let Some(binding) = self.binding else { return wanted };
        wanted.clusters = self.parts(template, &self.previous().shares, binding.spec.placement.as_ref());
        wanted.resolution = conflict::resolution(&self.seen.identity, binding.spec.conflict_resolution);
        wanted.preserve = binding.spec.preserve_resources_on_deletion.unwrap_or(false);
        wanted.propagate_deps = binding.spec.propagate_deps;
        wanted.placement.clone_from(&binding.spec.placement);
        if let Some(placement) = &binding.spec.placement {
            wanted.depart(&self.departure(placement));
        }
        wanted.claim = Some(claim);
        wanted
    }

    /// The clusters that the object has to leave because of taints.
    fn departure(&self, placement: &Placement) -> Departure {
        let clusters = self.view.clusters.values().map(|cluster| of_cluster(cluster));
        self.tainted.departure(clusters, &placement.cluster_tolerations, self.now)
    }

    /// Whether a policy tolerates the taints of a cluster, if only for a time.
    fn tolerates(&self, cluster: &str, policy: &Propagation) -> bool {
        let taints = self.view.clusters.get(cluster).map_or(&[][..], |cluster| &cluster.spec.taints);
        taints::untolerated(taints, &policy.spec.placement.cluster_tolerations).is_none()
    }

    /// The parts of clusters that have so many replicas each, as they were when that was decided.
    fn parts(
        &self,
        template: &Value,
        shares: &Shares,
        placement: Option<&Placement>,
    ) -> BTreeMap<String, Part> {
        let replicas = workload::replicas(template);
        let divided =
            placement.is_some_and(|one| Method::of(one) != Method::Duplicated) && replicas != Some(0);
        let ties = TieBreak::by_uid(&self.seen.uid);
        let completions = divided.then(|| workload::completions(template, shares, ties)).flatten();
        let part = |(name, share): (&String, &u32)| {
            let completions = completions.as_ref().and_then(|all| all.get(name)).copied();
            (name.clone(), Part { replicas: replicas.is_some().then_some(*share), completions })
        };
        shares.iter().map(part).collect()
    }

    fn by_policy(&self, policy: &Propagation, template: &Arc<Value>) -> Wanted {
        let claim = policy.claim();
        let mut previous = self.previous();
        let lazy = policy.spec.activation_preference == Some(ActivationPreference::Lazy);
        let revision = self.seen.revision();
        let before =
            self.binding.filter(|binding| claim_of(binding).is_some_and(|had| had.policy == claim.policy));
        let obeyed = before.and_then(|binding| binding.metadata.annotations.as_ref()?.get(GENERATION));
        // The policy may say something else by now; that is for the next form of the object.
        let untouched = lazy && obeyed == Some(&revision);
        if untouched {
            previous.frozen = true;
        }
        let departure = self.departure(&policy.spec.placement);
        // Others that do not tolerate a taint are told so by the taint itself.
        let tolerated = |name: &&String| previous.shares.contains_key(*name) || self.tolerates(name, policy);
        let leaving: Vec<String> = departure.due.iter().filter(tolerated).cloned().collect();
        previous.leaving.extend(leaving);
        let overrides = self.view.overrides.iter().map(|one| one.policy()).collect();
        let policies: Index<'_> = [policy.policy()].into_iter().collect();
        let world =
            World { policies, overrides, destinations: self.destinations, reserved: Reserved::default() };
        let decision = decide(&world, template, &previous, []);
        let mut wanted = self.empty(template);
        wanted.clusters = match &decision.verdict {
            // Overrides that do not exist yet change nothing about what is there.
            Verdict::Waiting(_) => {
                let placement = before.and_then(|binding| binding.spec.placement.as_ref());
                self.parts(template, &previous.shares, placement)
            }
            _ => {
                decision.shares.keys().filter_map(|name| Some((name.clone(), decision.part(name)?))).collect()
            }
        };
        wanted.depart(&departure);
        wanted.waiting = waiting(&decision);
        if let Verdict::Placed(placed) = &decision.verdict {
            wanted.affinity.clone_from(&placed.affinity);
        }
        wanted.suspension = policy.spec.suspension.clone();
        wanted.resolution = conflict::resolution(&self.seen.identity, policy.spec.conflict_resolution);
        wanted.preserve = policy.spec.preserve_resources_on_deletion.unwrap_or(false);
        wanted.propagate_deps = policy.spec.propagate_deps;
        wanted.placement = match before.filter(|_| untouched) {
            Some(before) => before.spec.placement.clone(),
            None => Some(policy.spec.placement.clone()),
        };
        wanted.revision = lazy.then_some(revision);
        wanted.claim = Some(claim);
        wanted
    }
}

fn waiting(decision: &Decision) -> Option<(&'static str, String)> {
    let reason = match &decision.verdict {
        Verdict::Placed(_) | Verdict::Frozen => return None,
        Verdict::Waiting(_) => "Held",
        Verdict::Refused(error) => error.reason(),
        Verdict::NoPolicy | Verdict::Reserved => "NoPolicy",
    };
    Some((reason, decision.reason().unwrap_or_default()))
}

impl Wanted {
    fn depart(&mut self, departure: &Departure) {
        self.clusters.retain(|name, _| !departure.due.contains(name));
        self.leaves = departure.next;
    }

    /// Whether nothing may be sent to a cluster for now.
    pub(super) fn is_held_back(&self, cluster: &str) -> bool {
        self.suspension.as_ref().is_some_and(|suspension| suspension.holds_back(cluster))
    }
}

/// Whether a cluster is not being deleted.
pub(super) fn stays(cluster: &Cluster) -> bool {
    cluster.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests;
