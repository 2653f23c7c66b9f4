//! What a workload has to obey now: the policy that has it, or what was decided before that policy went.

use crate::{
    api::{ActivationPreference, Placement, PropagationSpec, ReplicaRequirements, ResourceBinding},
    claim::{Claim, PolicyKey},
    matching::Reserved,
    object::Identity,
    owners::Meta,
    propagate::kinds::run_by_member,
    steer,
    store::{Propagation, View},
};

/// Annotation of a binding: the generation of the workload for which it was decided.
pub const GENERATION: &str = "federlet.io/workload-generation";

/// What a workload obeys.
#[derive(Clone, Debug, PartialEq)]
pub struct Governed {
    /// The claim on it.
    pub claim: Claim,
    /// Where it may be.
    pub placement: Placement,
    /// The scheduler that the policy names, if it is not the usual one.
    pub scheduler: Option<String>,
    /// The priority class that the policy gives to pods.
    pub priority_class: Option<String>,
    /// Why its pods must wait, if they must.
    pub hold: Option<Hold>,
    /// Whether the policy is still there.
    pub current: bool,
    /// What else the policy says, while it is there.
    pub spec: Option<PropagationSpec>,
}

/// Why pods must wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// The policy is suspended.
    #[error("policy {0} suspends dispatching")]
    Suspended(PolicyKey),
    /// Somebody asked that nothing be decided anew.
    #[error("its binding suspends scheduling")]
    Frozen,
    /// The policy waits for overrides.
    #[error("policy {policy} waits for dependent overrides that do not exist: {}", missing.join(", "))]
    Overrides {
        /// The policy.
        policy: PolicyKey,
        /// What is missing.
        missing: Vec<String>,
    },
}

/// Reads what a workload obeys. None if no policy ever had it.
#[must_use]
pub fn govern(workload: &Meta, view: &View, binding: Option<&ResourceBinding>) -> Option<Governed> {
    let object = &workload.identity;
    if Reserved::default().holds(object) || run_by_member(object) {
        return None;
    }
    let before = binding.and_then(|binding| Some((binding, claim_of(binding)?)));
    let frozen = before.as_ref().is_some_and(|(binding, _)| {
        binding.spec.suspension.as_ref().is_some_and(|suspension| suspension.scheduling == Some(true))
    });
    if let Some(policy) = view.policy_of(object, before.as_ref().map(|(_, claim)| claim)) {
        let mut governed = by_policy(&policy, workload, view, before);
        governed.hold = governed.hold.or(frozen.then_some(Hold::Frozen));
        return Some(governed);
    }
    // What runs stays, and what comes goes where it went before.
    let (binding, claim) = before?;
    Some(Governed {
        claim,
        placement: binding.spec.placement.clone()?,
        scheduler: Some(binding.spec.scheduler_name.clone()).filter(|name| !name.is_empty()),
        priority_class: binding.spec.replica_requirements.as_ref().and_then(ReplicaRequirements::class),
        hold: frozen.then_some(Hold::Frozen),
        current: false,
        spec: None,
    })
}

fn by_policy(
    policy: &Propagation,
    workload: &Meta,
    view: &View,
    before: Option<(&ResourceBinding, Claim)>,
) -> Governed {
    let claim = policy.claim();
    let spec = &policy.spec;
    let lazy = spec.activation_preference == Some(ActivationPreference::Lazy);
    let untouched = |binding: &&ResourceBinding| {
        let seen = binding.metadata.annotations.as_ref().and_then(|all| all.get(GENERATION));
        seen.is_some_and(|seen| *seen == workload.generation.to_string())
    };
    let old = before
        .filter(|(_, had)| lazy && had.policy == claim.policy)
        .map(|(binding, _)| binding)
        .filter(untouched)
        .and_then(|binding| binding.spec.placement.clone());
    let missing = view.missing_overrides(policy);
    // One that can only be in one cluster waits as a whole when that one gets nothing.
    let only = steer::only_cluster(&spec.placement);
    let suspended = spec.suspension.as_ref().is_some_and(|suspension| {
        suspension.dispatching == Some(true) || only.is_some_and(|only| suspension.holds_back(only))
    });
    let hold = if suspended {
        Some(Hold::Suspended(policy.key()))
    } else {
        (!missing.is_empty()).then(|| Hold::Overrides { policy: policy.key(), missing })
    };
    Governed {
        placement: old.unwrap_or_else(|| spec.placement.clone()),
        scheduler: steer::scheduler(spec).map(str::to_owned),
        priority_class: steer::priority_class(spec).map(str::to_owned),
        hold,
        current: true,
        spec: Some(spec.clone()),
        claim,
    }
}

/// The claim that a binding records.
#[must_use]
pub fn claim_of(binding: &ResourceBinding) -> Option<Claim> {
    let meta = &binding.metadata;
    Claim::of(&Identity {
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        ..Identity::default()
    })
}

#[cfg(test)]
mod tests;
