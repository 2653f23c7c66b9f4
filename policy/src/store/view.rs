//! Policies and clusters at one moment, with an index by what policies select.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::Parts;
use crate::{
    api::{
        Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, OverridePolicy, PropagationPolicy,
        PropagationSpec,
    },
    claim::{Claim, PolicyKey},
    matching::{self, Decision, Policy},
    object::Identity,
    overrides,
    validate::{default_namespaces, default_propagation},
};

/// A propagation policy of either kind, with its defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Propagation {
    /// Namespace; none for a ClusterPropagationPolicy.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The id that claims carry.
    pub id: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What it says.
    pub spec: PropagationSpec,
}

impl From<PropagationPolicy> for Propagation {
    fn from(mut policy: PropagationPolicy) -> Self {
        default_propagation(policy.metadata.namespace.as_deref(), &mut policy.spec);
        let looked_at = Policy::from(&policy);
        Self {
            namespace: looked_at.namespace.map(str::to_owned),
            name: looked_at.name.to_owned(),
            uid: policy.metadata.uid.clone().unwrap_or_default(),
            id: looked_at.id.map(str::to_owned),
            deleting: looked_at.deleting,
            spec: policy.spec,
        }
    }
}

impl From<ClusterPropagationPolicy> for Propagation {
    fn from(mut policy: ClusterPropagationPolicy) -> Self {
        default_propagation(None, &mut policy.spec.0);
        let looked_at = Policy::from(&policy);
        Self {
            namespace: None,
            name: looked_at.name.to_owned(),
            uid: policy.metadata.uid.clone().unwrap_or_default(),
            id: looked_at.id.map(str::to_owned),
            deleting: looked_at.deleting,
            spec: policy.spec.0,
        }
    }
}

impl Propagation {
    /// As matching looks at it.
    #[must_use]
    pub fn policy(&self) -> Policy<'_> {
        Policy {
            namespace: self.namespace.as_deref(),
            name: &self.name,
            id: self.id.as_deref(),
            deleting: self.deleting,
            spec: &self.spec,
        }
    }

    /// Which policy this is.
    #[must_use]
    pub fn key(&self) -> PolicyKey {
        self.policy().key()
    }

    /// The claim it has on its objects.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim { policy: self.key(), id: self.id.clone().unwrap_or_else(|| self.uid.clone()) }
    }
}

/// An override policy of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Override {
    /// Of one namespace.
    Namespaced(OverridePolicy),
    /// Of the whole host.
    Cluster(ClusterOverridePolicy),
}

impl From<OverridePolicy> for Override {
    fn from(mut policy: OverridePolicy) -> Self {
        default_namespaces(policy.metadata.namespace.as_deref(), &mut policy.spec.resource_selectors);
        Self::Namespaced(policy)
    }
}

impl From<ClusterOverridePolicy> for Override {
    fn from(policy: ClusterOverridePolicy) -> Self {
        Self::Cluster(policy)
    }
}

impl Override {
    /// As overriding looks at it.
    #[must_use]
    pub fn policy(&self) -> overrides::Policy<'_> {
        match self {
            Self::Namespaced(policy) => policy.into(),
            Self::Cluster(policy) => policy.into(),
        }
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        let meta = match self {
            Self::Namespaced(policy) => &policy.metadata,
            Self::Cluster(policy) => &policy.metadata,
        };
        meta.uid.as_deref().unwrap_or_default()
    }
}

/// What a policy can be about: API version and kind.
pub(crate) type Kind = (String, String);

/// Policies and clusters at one moment.
#[derive(Debug, Default)]
pub struct View {
    /// Whether everything was listed once. Before, what is missing says nothing.
    pub complete: bool,
    /// Propagation policies, those of namespaces first.
    pub propagation: Vec<Arc<Propagation>>,
    /// Override policies, those of the whole host first.
    pub overrides: Vec<Arc<Override>>,
    /// Clusters by name.
    pub clusters: BTreeMap<String, Arc<Cluster>>,
    pub(crate) by_kind: HashMap<Kind, Vec<usize>>,
    pub(crate) override_names: (BTreeSet<(String, String)>, BTreeSet<String>),
}

impl View {
    pub(super) fn of(parts: &Parts) -> Self {
        let namespaced = parts.propagation.objects.values();
        let propagation: Vec<_> =
            namespaced.chain(parts.cluster_propagation.objects.values()).cloned().collect();
        let mut by_kind: HashMap<Kind, Vec<usize>> = HashMap::new();
        for (index, policy) in propagation.iter().enumerate() {
            let kinds: BTreeSet<Kind> = policy
                .spec
                .resource_selectors
                .iter()
                .map(|selector| (selector.api_version.clone(), selector.kind.clone()))
                .collect();
            for kind in kinds {
                by_kind.entry(kind).or_default().push(index);
            }
        }
        let overrides = parts.cluster_overrides.objects.values().chain(parts.overrides.objects.values());
        let override_names = (
            parts.overrides.objects.keys().cloned().collect(),
            parts.cluster_overrides.objects.keys().map(|(_, name)| name.clone()).collect(),
        );
        let clusters = parts.clusters.objects.iter();
        Self {
            complete: parts.propagation.listed
                && parts.cluster_propagation.listed
                && parts.overrides.listed
                && parts.cluster_overrides.listed
                && parts.clusters.listed,
            overrides: overrides.cloned().collect(),
            clusters: clusters.map(|((_, name), cluster)| (name.clone(), cluster.clone())).collect(),
            propagation,
            by_kind,
            override_names,
        }
    }

    /// The policy that an object obeys, given the claim on it.
    #[must_use]
    pub fn policy_of(&self, object: &Identity, claim: Option<&Claim>) -> Option<Arc<Propagation>> {
        let kind = (object.api_version.clone(), object.kind.clone());
        let about: Vec<&Arc<Propagation>> = self
            .by_kind
            .get(&kind)?
            .iter()
            .filter_map(|index| self.propagation.get(*index))
            .filter(|policy| policy.namespace.as_ref().is_none_or(|own| *own == object.namespace))
            .collect();
        let policies: Vec<Policy<'_>> = about.iter().map(|policy| policy.policy()).collect();
        match matching::decide(object, claim, &policies) {
            Decision::Keep(chosen) | Decision::Take(chosen) => about
                .into_iter()
                .find(|policy| policy.namespace.as_deref() == chosen.namespace && policy.name == chosen.name)
                .cloned(),
            Decision::Release | Decision::Nothing => None,
        }
    }

    /// Whether overrides may make something else of an object than they did.
    #[must_use]
    pub fn overrides_differ(&self, other: &Self) -> bool {
        let place = |cluster: &Cluster| {
            let spec = &cluster.spec;
            let zones: Vec<String> = spec.zones().map(str::to_owned).collect();
            (cluster.metadata.labels.clone(), spec.provider.clone(), spec.region.clone(), zones)
        };
        let same_clusters = || {
            self.clusters.len() == other.clusters.len()
                && self.clusters.iter().all(|(name, cluster)| {
                    other
                        .clusters
                        .get(name)
                        .is_some_and(|there| Arc::ptr_eq(there, cluster) || place(there) == place(cluster))
                })
        };
        let same_overrides = self.overrides.len() == other.overrides.len()
            && self.overrides.iter().zip(&other.overrides).all(|(one, two)| Arc::ptr_eq(one, two));
        !same_overrides || (!self.overrides.is_empty() && !same_clusters())
    }

    /// The override policies that a policy waits for.
    #[must_use]
    pub fn missing_overrides(&self, policy: &Propagation) -> Vec<String> {
        let (namespaced, cluster) = &self.override_names;
        let existing: BTreeSet<&str> = match &policy.namespace {
            Some(own) => namespaced
                .iter()
                .filter(|(namespace, _)| namespace == own)
                .map(|(_, name)| name.as_str())
                .collect(),
            None => cluster.iter().map(String::as_str).collect(),
        };
        policy.policy().missing_overrides(&existing)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(namespace: &str, name: &str, kind: &str) -> Propagation {
        let policy: PropagationPolicy = serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": kind}], "dependentOverrides": ["o"]},
        }))
        .unwrap();
        policy.into()
    }

    fn object(namespace: &str, kind: &str) -> Identity {
        Identity {
            api_version: "apps/v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: "web".into(),
            ..Identity::default()
        }
    }

    #[test]
    fn policies_are_found_by_what_they_select() {
        let mut parts = Parts::default();
        for policy in
            [policy("a", "p", "Deployment"), policy("b", "q", "Deployment"), policy("a", "r", "StatefulSet")]
        {
            let key = (policy.namespace.clone().unwrap(), policy.name.clone());
            parts.propagation.objects.insert(key, Arc::new(policy));
        }
        let view = View::of(&parts);
        let found = |namespace, kind| Some(view.policy_of(&object(namespace, kind), None)?.name.clone());
        assert_eq!(found("a", "Deployment").as_deref(), Some("p"));
        assert_eq!(found("b", "Deployment").as_deref(), Some("q"));
        assert_eq!(found("a", "StatefulSet").as_deref(), Some("r"));
        assert_eq!(found("c", "Deployment"), None);
        assert_eq!(found("a", "DaemonSet"), None);
        assert_eq!(view.missing_overrides(&view.propagation[0]), ["o"]);
        assert!(!view.complete);
    }
}
