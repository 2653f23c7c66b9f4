//! The marks by which a policy has an object.
//!
//! The id is not the policy's UID: it survives a backup that is restored elsewhere.

use std::collections::BTreeMap;

use crate::object::Identity;

/// Which propagation policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// Namespace; `None` for a ClusterPropagationPolicy.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// That a policy has an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The policy.
    pub policy: PolicyKey,
    /// Its id.
    pub id: String,
}

impl Claim {
    /// Label with the id of a PropagationPolicy, on the policy and on its objects.
    pub const NAMESPACED_ID: &str = "propagationpolicy.karmada.io/permanent-id";
    /// Label with the id of a ClusterPropagationPolicy, on the policy and on its objects.
    pub const CLUSTER_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";

    const NAMESPACED_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    const NAMESPACED_NAME: &str = "propagationpolicy.karmada.io/name";
    const CLUSTER_NAME: &str = "clusterpropagationpolicy.karmada.io/name";

    /// Every label that a claim may set; to be removed before another claim is made.
    pub const LABELS: [&str; 2] = [Self::NAMESPACED_ID, Self::CLUSTER_ID];
    /// Every annotation that a claim may set; to be removed before another claim is made.
    pub const ANNOTATIONS: [&str; 3] =
        [Self::NAMESPACED_NAMESPACE, Self::NAMESPACED_NAME, Self::CLUSTER_NAME];

    /// Reads the claim from an object. Marks that are not complete are no claim.
    #[must_use]
    pub fn of(object: &Identity) -> Option<Self> {
        let label = |key| object.labels.get(key).cloned();
        let annotation = |key| object.annotations.get(key).cloned();
        let namespaced = || {
            let namespace = Some(annotation(Self::NAMESPACED_NAMESPACE)?);
            let policy = PolicyKey { namespace, name: annotation(Self::NAMESPACED_NAME)? };
            Some(Self { policy, id: label(Self::NAMESPACED_ID)? })
        };
        let cluster = || {
            let policy = PolicyKey { namespace: None, name: annotation(Self::CLUSTER_NAME)? };
            Some(Self { policy, id: label(Self::CLUSTER_ID)? })
        };
        namespaced().or_else(cluster)
    }

    /// The labels that mark an object or a binding as claimed.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let key = if self.policy.namespace.is_some() { Self::NAMESPACED_ID } else { Self::CLUSTER_ID };
        BTreeMap::from([(key.to_owned(), self.id.clone())])
    }

    /// The annotations that mark an object or a binding as claimed.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let name = self.policy.name.clone();
        match &self.policy.namespace {
            Some(namespace) => BTreeMap::from([
                (Self::NAMESPACED_NAMESPACE.to_owned(), namespace.clone()),
                (Self::NAMESPACED_NAME.to_owned(), name),
            ]),
            None => BTreeMap::from([(Self::CLUSTER_NAME.to_owned(), name)]),
        }
    }

    /// Puts the marks on an object, in place of any other claim's.
    pub fn put_on(&self, object: &mut Identity) {
        Self::take_off(object);
        object.labels.extend(self.labels());
        object.annotations.extend(self.annotations());
    }

    /// Takes the marks of any claim off an object.
    pub fn take_off(object: &mut Identity) {
        object.labels.retain(|key, _| !Self::LABELS.contains(&key.as_str()));
        object.annotations.retain(|key, _| !Self::ANNOTATIONS.contains(&key.as_str()));
    }
}
