//! The whole decision for one object: which policy it follows, where it goes, how many replicas each cluster runs, and
//! why.
//!
//! Controllers, the offline simulation and the explanations for people all ask here, so they never disagree.

use std::collections::{BTreeMap, BTreeSet};

use federlet_provider::names::NamespaceMap;
use serde_json::Value;

use crate::{
    api::{
        ActivationPreference, Cluster, Placement, ResourceBinding, ResourceBindingSpec,
        ResourceBindingStatus, Suspension,
    },
    claim::{Claim, PolicyKey},
    divide::{Method, Shares, TieBreak},
    estimate,
    govern::{GENERATION, claim_of},
    matching::{self, Index, Policy, Reserved},
    object::Identity,
    overrides,
    place::{self, Member, Peer, Peers, PlaceError, Placed, Rejection},
    propagate::kinds::is_copied,
    render::Part,
    workload,
};

/// A cluster that objects may go to.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The cluster.
    pub cluster: Cluster,
    /// Where namespaces of the host are in it.
    pub namespaces: NamespaceMap,
    /// How many more replicas it has room for, if somebody stated it; else its status tells.
    pub stated_room: Option<u32>,
}

impl Destination {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    fn tells_its_room(&self) -> bool {
        let status = self.cluster.status.as_ref();
        self.stated_room.is_some() || status.is_some_and(|status| status.resource_summary.is_some())
    }
}

/// All that decisions look at.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// Propagation policies of both kinds.
    pub policies: Index<'a>,
    /// Override policies of both kinds.
    pub overrides: Vec<overrides::Policy<'a>>,
    /// The clusters.
    pub destinations: &'a [Destination],
    /// What is never sent anywhere.
    pub reserved: Reserved,
}

/// What the policy said that had the object last.
#[derive(Clone, Debug, PartialEq)]
pub struct Former {
    /// Which policy it was.
    pub policy: PolicyKey,
    /// Where the object may be.
    pub placement: Placement,
    /// Whether what it refers to goes with it.
    pub propagate_deps: bool,
}

/// What was decided for the object before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Previous {
    /// The UID that the object had.
    pub uid: String,
    /// Where it is.
    pub shares: Shares,
    /// The affinity group that was used.
    pub affinity: Option<String>,
    /// Clusters that it is being moved away from, or was.
    pub leaving: BTreeSet<String>,
    /// Whether a person asked for a decision that forgets the last one.
    pub fresh: bool,
    /// Whether nothing is to be decided anew.
    pub frozen: bool,
    /// By whose word it is there. It holds when that policy is gone, until another one has the object.
    pub former: Option<Former>,
    /// The form of the object for which that was decided, if the record says.
    pub revision: Option<String>,
}

impl Previous {
    /// Reads it from the record of a decision.
    #[must_use]
    pub fn of(spec: &ResourceBindingSpec, status: Option<&ResourceBindingStatus>) -> Self {
        let shares =
            spec.clusters.iter().map(|one| (one.name.clone(), u32::try_from(one.replicas).unwrap_or(0)));
        let affinity = status.map(|status| status.scheduler_observed_affinity_name.clone());
        let decided = status.and_then(|status| status.last_scheduled_time.as_ref());
        let fresh = match (&spec.reschedule_triggered_at, decided) {
            (Some(asked), Some(decided)) => asked.0 > decided.0,
            // Who never decided has nothing to forget.
            _ => false,
        };
        Self {
            uid: spec.resource.uid.clone(),
            shares: shares.collect(),
            affinity: affinity.filter(|name| !name.is_empty()),
            leaving: spec.left().map(str::to_owned).collect(),
            fresh,
            frozen: spec.suspension.as_ref().and_then(|suspension| suspension.scheduling) == Some(true),
            former: None,
            revision: None,
        }
    }

    /// Reads all of it, with the policy that a running host goes on to obey.
    #[must_use]
    pub fn of_binding(binding: &ResourceBinding) -> Self {
        let former = claim_of(binding).and_then(|claim| {
            let placement = binding.spec.placement.clone()?;
            Some(Former { policy: claim.policy, placement, propagate_deps: binding.spec.propagate_deps })
        });
        let annotations = binding.metadata.annotations.as_ref();
        let revision = annotations.and_then(|all| all.get(GENERATION)).cloned();
        Self { former, revision, ..Self::of(&binding.spec, binding.status.as_ref()) }
    }
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// No policy may ever send it anywhere.
    Reserved,
    /// No policy selects it.
    NoPolicy,
    /// Its policy waits for override policies that do not exist yet.
    Waiting(Vec<String>),
    /// Somebody asked that nothing be decided anew.
    Frozen,
    /// It has clusters.
    Placed(Placed),
    /// It has no clusters, or has to stay where it was.
    Refused(PlaceError),
}

/// The decision for one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The policy it follows.
    pub policy: Option<PolicyKey>,
    /// What became of it.
    pub verdict: Verdict,
    /// Where it goes, and the replicas there; zero for an object that has none.
    pub shares: Shares,
    /// Whether the object has replicas at all.
    pub counted: bool,
    /// The completions of a Job in each cluster, if they are divided.
    pub completions: Option<BTreeMap<String, u32>>,
    /// Whether what it refers to goes with it.
    pub propagate_deps: bool,
    /// What is held back.
    pub suspension: Option<Suspension>,
    /// Why each cluster that was not chosen was not.
    pub rejected: BTreeMap<String, Rejection>,
    /// The policy that is gone, and by which it goes all the same.
    pub former: Option<PolicyKey>,
    /// Whether its policy is lazy, and what that said before holds.
    pub untouched: bool,
}

impl Decision {
    pub(crate) fn without(policy: Option<PolicyKey>, verdict: Verdict, counted: bool) -> Self {
        Self {
            policy,
            verdict,
            shares: Shares::new(),
            counted,
            completions: None,
            propagate_deps: false,
            suspension: None,
            rejected: BTreeMap::new(),
            former: None,
            untouched: false,
        }
    }

    /// What a cluster gets, if it gets anything.
    #[must_use]
    pub fn part(&self, cluster: &str) -> Option<Part> {
        let share = *self.shares.get(cluster)?;
        let completions = self.completions.as_ref().and_then(|all| all.get(cluster)).copied();
        Some(Part { replicas: Some(share).filter(|_| self.counted), completions })
    }

    /// Clusters that nothing is sent to for now, although it was decided.
    pub fn held_back(&self) -> impl Iterator<Item = &str> {
        let held = |name: &&str| self.suspension.as_ref().is_some_and(|one| one.holds_back(name));
        self.shares.keys().map(String::as_str).filter(held)
    }

    /// Why it is not simply placed, in plain words.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let own = self.own_reason();
        let before = match &self.former {
            Some(former) => {
                format!("policy {former} is gone: what it said holds until another policy has the object")
            }
            None if self.untouched => {
                "its policy is Lazy: what that said before holds until the object changes".to_owned()
            }
            None => return own,
        };
        Some(own.map_or_else(|| before.clone(), |own| format!("{before}; {own}")))
    }

    fn own_reason(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Reserved => Some("objects like this are never sent to clusters".to_owned()),
            Verdict::NoPolicy => Some("no policy selects it".to_owned()),
            Verdict::Waiting(missing) => Some(format!(
                "its policy waits for override policies that do not exist: {}",
                missing.join(", ")
            )),
            Verdict::Frozen => {
                Some("its binding says that nothing is decided anew: it stays as it is".to_owned())
            }
            Verdict::Refused(error) => {
                let stays = if self.shares.is_empty() { "" } else { "; what runs stays where it is" };
                Some(format!("{error}{}{stays}", self.listed()))
            }
            Verdict::Placed(_) => {
                let held: Vec<&str> = self.held_back().collect();
                (!held.is_empty()).then(|| format!("the policy holds it back from {}", held.join(", ")))
            }
        }
    }

    fn listed(&self) -> String {
        let each = self.rejected.iter().map(|(name, why)| format!("{name}: {why}"));
        let each = each.collect::<Vec<_>>().join("; ");
        if each.is_empty() { each } else { format!(": {each}") }
    }
}

/// Decides for one object. `others` are the other workloads and where they are.
#[must_use]
pub fn decide<'o>(
    world: &World<'_>,
    object: &Value,
    previous: &Previous,
    others: impl IntoIterator<Item = Peer<'o>>,
) -> Decision {
    let identity = Identity::of(object);
    let replicas = workload::replicas(object);
    let counted = replicas.is_some();
    if world.reserved.holds(&identity) {
        return Decision::without(None, Verdict::Reserved, counted);
    }
    let claim = Claim::of(&identity);
    let policy = match world.policies.decide(&identity, claim.as_ref()) {
        matching::Decision::Keep(policy) | matching::Decision::Take(policy) => Some(policy),
        matching::Decision::Release | matching::Decision::Nothing => None,
    };
    let missing = policy.map(|policy| policy.missing_overrides(&existing_overrides(world, &policy)));
    if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
        return Decision::without(policy.map(|policy| policy.key()), Verdict::Waiting(missing), counted);
    }
    let former = previous.former.as_ref().filter(|_| policy.is_none());
    let lazy = policy.filter(|policy| policy.spec.activation_preference == Some(ActivationPreference::Lazy));
    let is_its = |before: &&Former| lazy.is_some_and(|policy| policy.key() == before.policy);
    let untouched =
        previous.former.as_ref().filter(is_its).filter(|_| previous.revision == Some(revision(object)));
    let said = policy.map(|policy| (&policy.spec.placement, policy.spec.propagate_deps));
    let said = said.or_else(|| former.map(|former| (&former.placement, former.propagate_deps)));
    let Some((placement, propagate_deps)) = said else {
        return Decision::without(None, Verdict::NoPolicy, counted);
    };
    let placement = untouched.map_or(placement, |before| &before.placement);

    let peers = placement.workload_affinity.as_ref();
    let peers = peers.map_or_else(Peers::default, |affinity| Peers::of(affinity, &identity, others));
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or(&previous.uid);
    let request = place::Request {
        api_version: &identity.api_version,
        kind: &identity.kind,
        uid,
        replicas,
        placement,
        previous: &previous.shares,
        observed_affinity: previous.affinity.as_deref(),
        leaving: &previous.leaving,
        peers: &peers,
        fresh: previous.fresh,
    };
    let asks = estimate::replica(object);
    let free = |one: &Destination| one.stated_room.unwrap_or_else(|| estimate::room(&one.cluster, &asks));
    let members: Vec<Member<'_>> =
        world.destinations.iter().map(|one| Member { cluster: &one.cluster, free: free(one) }).collect();

    let (verdict, shares, rejected) = if previous.frozen {
        (Verdict::Frozen, previous.shares.clone(), BTreeMap::new())
    } else if untouched.is_some() && is_copied(&identity) {
        let rejected = place::rejections(&request, &members);
        let (shares, affinity) = (previous.shares.clone(), previous.affinity.clone());
        let placed = Placed { shares: shares.clone(), affinity, rejected: rejected.clone() };
        (Verdict::Placed(placed), shares, rejected)
    } else {
        match place::place(&request, &members) {
            Ok(placed) => (Verdict::Placed(placed.clone()), placed.shares, placed.rejected),
            // Where nothing fits nothing stays; what only lacks room or company stays until it has some.
            Err(error @ PlaceError::NoClusterFit { .. }) => {
                let rejected = place::rejections(&request, &members);
                (Verdict::Refused(error), Shares::new(), rejected)
            }
            Err(error) => {
                let mut rejected = place::rejections(&request, &members);
                for silent in world.destinations.iter().filter(|one| !one.tells_its_room()) {
                    rejected.entry(silent.name().to_owned()).or_insert(Rejection::NoRoomKnown);
                }
                (Verdict::Refused(error), previous.shares.clone(), rejected)
            }
        }
    };
    let divided = Method::of(placement) != Method::Duplicated && replicas != Some(0);
    let completions =
        divided.then(|| workload::completions(object, &shares, TieBreak::by_uid(uid))).flatten();
    Decision {
        policy: policy.map(|policy| policy.key()),
        verdict,
        shares,
        counted,
        completions,
        propagate_deps,
        suspension: policy.and_then(|policy| policy.spec.suspension.clone()),
        rejected,
        former: former.map(|former| former.policy.clone()),
        untouched: untouched.is_some(),
    }
}

/// What tells one form of an object from the next: few kinds count generations.
fn revision(object: &Value) -> String {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let counted = generation.filter(|generation| *generation > 0).map(|generation| generation.to_string());
    counted.unwrap_or_else(|| version.unwrap_or_default().to_owned())
}

/// Names of the override policies of the kind and namespace that a propagation policy may depend on.
fn existing_overrides<'a>(world: &World<'a>, policy: &Policy<'_>) -> BTreeSet<&'a str> {
    let same = |one: &&overrides::Policy<'a>| one.namespace == policy.namespace;
    world.overrides.iter().filter(same).map(|one| one.name).collect()
}

#[cfg(test)]
mod tests;
