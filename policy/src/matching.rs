//! Which policy an object follows.

mod index;

use std::{cmp::Reverse, collections::BTreeSet};

use federlet_provider::join::SYSTEM_NAMESPACE;

use crate::{
    api::{ClusterPropagationPolicy, Preemption, PropagationPolicy, PropagationSpec, ResourceSelector},
    claim::{Claim, PolicyKey},
    labels,
    object::Identity,
};

pub use index::{Index, Lookup};

/// How closely a selector names an object. The closer one wins between policies of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// Every object of the kind.
    Kind,
    /// Objects with some labels.
    Labels,
    /// The one object.
    Name,
}

/// How closely a selector names an object, if it selects it.
#[must_use]
pub fn precision(selector: &ResourceSelector, object: &Identity) -> Option<Precision> {
    let same_kind = selector.api_version == object.api_version && selector.kind == object.kind;
    let same_namespace = selector.namespace.is_empty() || selector.namespace == object.namespace;
    if !same_kind || !same_namespace {
        return None;
    }
    if !selector.name.is_empty() {
        return (selector.name == object.name).then_some(Precision::Name);
    }
    match &selector.label_selector {
        Some(labels) => labels::selects(labels, &object.labels).then_some(Precision::Labels),
        None => Some(Precision::Kind),
    }
}

/// The closest of several selectors.
#[must_use]
pub fn best_precision(selectors: &[ResourceSelector], object: &Identity) -> Option<Precision> {
    selectors.iter().filter_map(|selector| precision(selector, object)).max()
}

/// A propagation policy of either kind, looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy<'a> {
    /// Namespace; `None` for a ClusterPropagationPolicy.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
    /// The id that claims carry, once the policy has one.
    pub id: Option<&'a str>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What it says.
    pub spec: &'a PropagationSpec,
}

impl<'a> From<&'a PropagationPolicy> for Policy<'a> {
    fn from(policy: &'a PropagationPolicy) -> Self {
        let meta = &policy.metadata;
        Self {
            namespace: Some(meta.namespace.as_deref().unwrap_or_default()),
            name: meta.name.as_deref().unwrap_or_default(),
            id: meta.labels.as_ref().and_then(|labels| labels.get(Claim::NAMESPACED_ID)).map(String::as_str),
            deleting: meta.deletion_timestamp.is_some(),
            spec: &policy.spec,
        }
    }
}

impl<'a> From<&'a ClusterPropagationPolicy> for Policy<'a> {
    fn from(policy: &'a ClusterPropagationPolicy) -> Self {
        let meta = &policy.metadata;
        Self {
            namespace: None,
            name: meta.name.as_deref().unwrap_or_default(),
            id: meta.labels.as_ref().and_then(|labels| labels.get(Claim::CLUSTER_ID)).map(String::as_str),
            deleting: meta.deletion_timestamp.is_some(),
            spec: &policy.spec.0,
        }
    }
}

impl Policy<'_> {
    /// Which policy this is.
    #[must_use]
    pub fn key(&self) -> PolicyKey {
        PolicyKey { namespace: self.namespace.map(str::to_owned), name: self.name.to_owned() }
    }

    /// How closely the policy names an object, if the object is in its reach and selected.
    #[must_use]
    pub fn precision(&self, object: &Identity) -> Option<Precision> {
        let in_reach = self.namespace.is_none_or(|namespace| namespace == object.namespace);
        if self.deleting || !in_reach { None } else { best_precision(&self.spec.resource_selectors, object) }
    }

    /// What sorts the winner first: a namespaced policy before a cluster policy whatever their priorities,
    /// then by priority, by precision and by name.
    fn rank(&self, precision: Precision) -> (bool, Reverse<i32>, Reverse<Precision>, &str) {
        (self.namespace.is_none(), Reverse(self.spec.priority), Reverse(precision), self.name)
    }

    fn is(&self, claim: &Claim) -> bool {
        let same_key = self.namespace == claim.policy.namespace.as_deref() && self.name == claim.policy.name;
        // A policy that was deleted and made again under its name is another one.
        same_key && self.id.is_none_or(|id| id == claim.id)
    }

    /// Whether this policy may take an object from the policy that has it.
    fn may_preempt(&self, owner: &Policy<'_>) -> bool {
        self.spec.preemption == Preemption::Always
            && match (self.namespace, owner.namespace) {
                (Some(_), None) => true,
                (None, Some(_)) => false,
                _ => self.spec.priority > owner.spec.priority,
            }
    }

    /// The override policies that must exist before this policy takes effect, and do not.
    #[must_use]
    pub fn missing_overrides(&self, existing: &BTreeSet<&str>) -> Vec<String> {
        let listed = self.spec.dependent_overrides.iter();
        listed.filter(|name| !existing.contains(name.as_str())).cloned().collect()
    }
}

/// The policy that an object without a claim follows.
#[must_use]
pub fn choose<'a>(object: &Identity, policies: impl IntoIterator<Item = Policy<'a>>) -> Option<Policy<'a>> {
    let matching = policies.into_iter().filter_map(|policy| Some((policy.precision(object)?, policy)));
    matching.min_by(|(a, left), (b, right)| left.rank(*a).cmp(&right.rank(*b))).map(|(_, policy)| policy)
}

/// What becomes of the claim on an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision<'a> {
    /// The policy that has it keeps it.
    Keep(Policy<'a>),
    /// This policy takes it, from nobody or from the policy that has it.
    Take(Policy<'a>),
    /// No policy selects it; a claim that it carries is to be removed.
    Release,
    /// No policy selects it, and it carries no claim.
    Nothing,
}

/// Decides which policy has an object.
///
/// A policy that is gone, is being deleted, or no longer selects the object has lost it. The last case holds
/// also when the object's labels changed, not the policy's selectors.
#[must_use]
pub fn decide<'a>(object: &Identity, claim: Option<&Claim>, policies: &[Policy<'a>]) -> Decision<'a> {
    let owner = claim.and_then(|claim| {
        policies.iter().find(|policy| policy.is(claim) && policy.precision(object).is_some())
    });
    if let Some(owner) = owner {
        let stronger = policies.iter().filter(|policy| policy.may_preempt(owner)).copied();
        return choose(object, stronger).map_or(Decision::Keep(*owner), Decision::Take);
    }
    match (choose(object, policies.iter().copied()), claim) {
        (Some(policy), _) => Decision::Take(policy),
        (None, Some(_)) => Decision::Release,
        (None, None) => Decision::Nothing,
    }
}

/// Objects that no policy ever sends anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Namespaces by name.
    pub namespaces: BTreeSet<String>,
    /// Namespaces by how their name begins.
    pub prefixes: Vec<String>,
}

impl Default for Reserved {
    fn default() -> Self {
        Self {
            // Our own has the credentials of members.
            namespaces: ["karmada-system", "karmada-cluster", SYSTEM_NAMESPACE].map(str::to_owned).into(),
            prefixes: ["karmada-es-", "kube-"].map(str::to_owned).into(),
        }
    }
}

impl Reserved {
    /// The label of an object that something else already sends to clusters.
    pub const CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";

    /// Kinds and names of objects that every cluster makes for itself in each namespace.
    const OF_EACH_CLUSTER: [(&str, &str); 2] =
        [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];

    const GROUPS: [&str; 3] = ["cluster.karmada.io", "policy.karmada.io", "work.karmada.io"];

    /// Whether no policy may send this object anywhere.
    #[must_use]
    pub fn holds(&self, object: &Identity) -> bool {
        let is_namespace = object.api_version == "v1" && object.kind == "Namespace";
        let namespace = if is_namespace { &object.name } else { &object.namespace };
        Self::GROUPS.contains(&object.group())
            || object.labels.contains_key(Self::CLAIMED_BY)
            || self.namespaces.contains(namespace)
            || self.prefixes.iter().any(|prefix| namespace.starts_with(prefix))
            || (object.kind == "ConfigMap"
                && object.namespace == "kube-system"
                && object.name == "extension-apiserver-authentication")
            || (object.group().is_empty() && Self::OF_EACH_CLUSTER.contains(&(&object.kind, &object.name)))
    }
}

#[cfg(test)]
mod tests;
