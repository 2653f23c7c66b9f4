//! Policies and clusters at one moment, with an index by what policies select.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};

use super::Parts;
use crate::{
    api::{
        Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, OverridePolicy, OverrideSpec,
        PropagationPolicy, PropagationSpec,
    },
    claim::{Claim, PolicyKey},
    matching::{self, Decision, Lookup, Policy},
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
    /// What was said on it.
    pub conditions: Vec<Condition>,
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
            conditions: policy.status.map(|status| status.conditions).unwrap_or_default(),
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
            conditions: policy.status.map(|status| status.conditions).unwrap_or_default(),
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

    /// As Events name it.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        let kind = if self.namespace.is_some() { "PropagationPolicy" } else { "ClusterPropagationPolicy" };
        reference(kind, self.namespace.as_deref(), &self.name, &self.uid)
    }

    /// The claim it has on its objects.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim { policy: self.key(), id: self.id.clone().unwrap_or_else(|| self.uid.clone()) }
    }
}

/// A policy as Events name it.
fn reference(kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("policy.karmada.io/v1alpha1".into()),
        kind: Some(kind.into()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// An override policy of either kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Namespace; none for a ClusterOverridePolicy.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// What it says.
    pub spec: OverrideSpec,
    /// What was said on it.
    pub conditions: Vec<Condition>,
}

impl From<OverridePolicy> for Override {
    fn from(policy: OverridePolicy) -> Self {
        let (meta, mut spec) = (policy.metadata, policy.spec);
        default_namespaces(meta.namespace.as_deref(), &mut spec.resource_selectors);
        Self {
            namespace: Some(meta.namespace.unwrap_or_default()),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            spec,
            conditions: policy.status.map(|status| status.conditions).unwrap_or_default(),
        }
    }
}

impl From<ClusterOverridePolicy> for Override {
    fn from(policy: ClusterOverridePolicy) -> Self {
        let meta = policy.metadata;
        Self {
            namespace: None,
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            spec: policy.spec.0,
            conditions: policy.status.map(|status| status.conditions).unwrap_or_default(),
        }
    }
}

impl Override {
    /// As overriding looks at it.
    #[must_use]
    pub fn policy(&self) -> overrides::Policy<'_> {
        overrides::Policy { namespace: self.namespace.as_deref(), name: &self.name, spec: &self.spec }
    }

    /// As Events name it.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        let kind = if self.namespace.is_some() { "OverridePolicy" } else { "ClusterOverridePolicy" };
        reference(kind, self.namespace.as_deref(), &self.name, &self.uid)
    }

    /// Whether it makes the same of objects.
    fn is_like(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid, &self.spec)
            == (&other.namespace, &other.name, &other.uid, &other.spec)
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
    /// Where in `propagation` the policies of an object are.
    pub(crate) index: Lookup<usize>,
    pub(crate) override_names: (BTreeSet<(String, String)>, BTreeSet<String>),
}

impl View {
    pub(super) fn of(parts: &Parts) -> Self {
        let namespaced = parts.propagation.objects.values();
        let propagation: Vec<_> =
            namespaced.chain(parts.cluster_propagation.objects.values()).cloned().collect();
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
            override_names,
            ..Self::with(propagation)
        }
    }

    /// With these policies alone.
    #[must_use]
    pub fn with(propagation: Vec<Arc<Propagation>>) -> Self {
        let mut index = Lookup::default();
        propagation.iter().enumerate().for_each(|(at, policy)| index.add(&policy.policy(), at));
        Self { propagation, index, ..Self::default() }
    }

    /// The policy that an object obeys, given the claim on it.
    #[must_use]
    pub fn policy_of(&self, object: &Identity, claim: Option<&Claim>) -> Option<Arc<Propagation>> {
        let near = self.index.near(object).filter_map(|at| self.propagation.get(at));
        let about: Vec<&Arc<Propagation>> = near.collect();
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
            && self.overrides.iter().zip(&other.overrides).all(|(one, two)| {
                // What we say on it ourselves changes no object.
                Arc::ptr_eq(one, two) || one.is_like(two)
            });
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
        let metadata = json!({"namespace": namespace, "name": "web"});
        Identity::of(&json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata}))
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
