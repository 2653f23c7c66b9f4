//! Objects that somebody wrote, sorted by what they mean.
//!
//! Read as an API server would take them: with defaults filled in, and what it would refuse refused.

mod schema;
mod scope;

use std::collections::{BTreeMap, BTreeSet};

use federlet_provider::settings::MemberSettings;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    api::{
        Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, ClusterResourceBinding, ObjectReference,
        OverridePolicy, PropagationPolicy, ResourceBinding,
    },
    decide::{Destination, Previous, World},
    estimate,
    matching::Reserved,
    object::Identity,
    place::Peer,
    store::from_cluster,
    validate::{self, Violation},
};

/// The namespace of what names none.
const DEFAULT_NAMESPACE: &str = "default";

/// Which object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for an object that has none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let Identity { api_version, kind, namespace, name, .. } = Identity::of(object);
        Self { api_version, kind, namespace, name }
    }
}

impl From<&ObjectReference> for Key {
    fn from(reference: &ObjectReference) -> Self {
        let ObjectReference { api_version, kind, namespace, name, .. } = reference.clone();
        Self { api_version, kind, namespace, name }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// Why an object is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no object at all.
    #[error("it is not a Kubernetes object: {0} is missing")]
    NoObject(&'static str),
    /// It is not what its kind should be.
    #[error("{key} is not understood: {why}")]
    Malformed {
        /// Which object.
        key: Key,
        /// Why not.
        why: String,
    },
    /// An API server would refuse it.
    #[error("{key} is refused: {why}")]
    Invalid {
        /// Which object.
        key: Key,
        /// Why.
        why: String,
    },
    /// It was there before.
    #[error("{0} is given twice")]
    Twice(Key),
}

/// What somebody wrote.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    templates: Vec<Value>,
    propagation: Vec<PropagationPolicy>,
    cluster_propagation: Vec<ClusterPropagationPolicy>,
    overrides: Vec<OverridePolicy>,
    cluster_overrides: Vec<ClusterOverridePolicy>,
    destinations: Vec<Destination>,
    previous: BTreeMap<Key, Previous>,
    bindings: Vec<(Key, Key)>,
    malformed: Vec<(usize, Key, String)>,
    seen: BTreeMap<Key, Value>,
    peers: Vec<(Identity, BTreeSet<String>)>,
    /// Whether an API server has taken the objects already.
    stored: bool,
}

/// The objects in an object: the items of a list, or the object itself.
#[must_use]
pub fn flatten(object: Value) -> Vec<Value> {
    let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match object {
        Value::Object(mut list) if is_list && list.get("items").is_some_and(Value::is_array) => {
            match list.remove("items") {
                Some(Value::Array(items)) => items.into_iter().flat_map(flatten).collect(),
                _ => vec![],
            }
        }
        object => vec![object],
    }
}

impl Inventory {
    /// For objects that an API server has. Which fields there are is for that to say: its definitions may be newer.
    #[must_use]
    pub fn stored() -> Self {
        Self { stored: true, ..Self::default() }
    }

    /// Takes one object, or says why not. The same object a second time is taken as said once.
    pub fn add(&mut self, mut object: Value) -> Result<(), Refusal> {
        let missing = |pointer: &&str| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.is_none_or(str::is_empty)
        };
        if let Some(pointer) =
            ["/apiVersion", "/kind", "/metadata/name"].iter().find(|pointer| missing(pointer))
        {
            return Err(Refusal::NoObject(pointer.trim_start_matches('/')));
        }
        let identity = Identity::of(&object);
        match scope::namespaced(&identity.api_version, &identity.kind) {
            Some(true) if identity.namespace.is_empty() => {
                object["metadata"]["namespace"] = json!(DEFAULT_NAMESPACE);
            }
            Some(false) => {
                if let Some(meta) = object["metadata"].as_object_mut() {
                    meta.remove("namespace");
                }
            }
            _ => {}
        }
        let key = Key::of(&object);
        match self.seen.get(&key) {
            Some(before) if *before == object => return Ok(()),
            Some(_) => return Err(Refusal::Twice(key)),
            None => drop(self.seen.insert(key.clone(), object.clone())),
        }
        self.sort_in(key, object)
    }

    fn sort_in(&mut self, key: Key, object: Value) -> Result<(), Refusal> {
        match (key.api_version.as_str(), key.kind.as_str()) {
            ("policy.karmada.io/v1alpha1", "PropagationPolicy") => {
                let mut policy: PropagationPolicy = self.read_policy(&key, object)?;
                let namespace = Some(key.namespace.as_str());
                validate::default_propagation(namespace, &mut policy.spec);
                refuse(&key, &validate::propagation(namespace, &policy.spec))?;
                self.propagation.push(policy);
            }
            ("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy") => {
                let mut policy: ClusterPropagationPolicy = self.read_policy(&key, object)?;
                validate::default_propagation(None, &mut policy.spec.0);
                refuse(&key, &validate::propagation(None, &policy.spec.0))?;
                self.cluster_propagation.push(policy);
            }
            ("policy.karmada.io/v1alpha1", "OverridePolicy") => {
                let mut policy: OverridePolicy = self.read_policy(&key, object)?;
                let namespace = Some(key.namespace.as_str());
                validate::default_namespaces(namespace, &mut policy.spec.resource_selectors);
                refuse(&key, &validate::overrides(namespace, &policy.spec))?;
                self.overrides.push(policy);
            }
            ("policy.karmada.io/v1alpha1", "ClusterOverridePolicy") => {
                let policy: ClusterOverridePolicy = self.read_policy(&key, object)?;
                refuse(&key, &validate::overrides(None, &policy.spec.0))?;
                self.cluster_overrides.push(policy);
            }
            ("cluster.karmada.io/v1alpha1", "Cluster") => {
                let cluster: Cluster = read(&key, object)?;
                let invalid = |why: String| Refusal::Invalid { key: key.clone(), why };
                let settings =
                    MemberSettings::try_from(&cluster).map_err(|error| invalid(error.to_string()))?;
                let stated_room = estimate::stated(&cluster).map_err(|error| invalid(error.to_string()))?;
                self.destinations.push(Destination { cluster, namespaces: settings.namespaces, stated_room });
            }
            ("work.karmada.io/v1alpha2", "ResourceBinding") => {
                let binding: ResourceBinding = read(&key, object)?;
                let mut resource = Key::from(&binding.spec.resource);
                if resource.namespace.is_empty() {
                    resource.namespace.clone_from(&key.namespace);
                }
                self.remember(key, resource, &binding);
            }
            ("work.karmada.io/v1alpha2", "ClusterResourceBinding") => {
                let binding: ClusterResourceBinding = read(&key, object)?;
                let binding = from_cluster(binding);
                self.remember(key, Key::from(&binding.spec.resource), &binding);
            }
            (
                version,
                "PropagationPolicy"
                | "ClusterPropagationPolicy"
                | "OverridePolicy"
                | "ClusterOverridePolicy"
                | "Cluster"
                | "ResourceBinding"
                | "ClusterResourceBinding",
            ) if version.contains(".karmada.io/") => {
                let why = format!("version {version} is not known");
                return Err(Refusal::Malformed { key, why });
            }
            _ => {
                // What every object has is read strictly, so that a label that is no text does not go unnoticed.
                let meta = object.get("metadata").cloned().unwrap_or_default();
                if let Err(refusal) = read::<ObjectMeta>(&key, meta) {
                    self.malformed.push((self.templates.len(), key, refusal.to_string()));
                    return Err(refusal);
                }
                self.templates.push(object);
            }
        }
        Ok(())
    }

    /// Reads a policy, and refuses what its definition does not know.
    fn read_policy<T: DeserializeOwned>(&self, key: &Key, object: Value) -> Result<T, Refusal> {
        let wrong = if self.stored { vec![] } else { schema::violations(&key.kind, &object) };
        let policy = read(key, object)?;
        refuse(key, &wrong)?;
        Ok(policy)
    }

    fn remember(&mut self, binding: Key, resource: Key, what: &ResourceBinding) {
        self.previous.insert(resource.clone(), Previous::of_binding(what));
        self.bindings.push((binding, resource));
    }

    /// Bindings of objects that are not here: what they say has no effect.
    pub fn idle_bindings(&self) -> Vec<(Key, Key)> {
        let there: BTreeSet<Key> = self.templates().iter().map(Key::of).collect();
        self.bindings.iter().filter(|(_, resource)| !there.contains(resource)).cloned().collect()
    }

    /// Objects to decide for that cannot be understood: how many came before each, which it is, and why.
    pub(crate) fn malformed(&self) -> &[(usize, Key, String)] {
        &self.malformed
    }

    /// Whether there is nothing to decide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The objects to decide for, in the order in which they came. Custom resources are in the namespace that their
    /// definition, if it is here, puts them in.
    #[must_use]
    pub fn templates(&self) -> Vec<Value> {
        let custom = scope::custom(&self.templates);
        let settled = self.templates.iter().cloned().map(|mut object| {
            let Key { api_version, kind, namespace, .. } = Key::of(&object);
            let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
            if namespace.is_empty() && custom.get(&(group, kind)) == Some(&true) {
                object["metadata"]["namespace"] = json!(DEFAULT_NAMESPACE);
            }
            object
        });
        settled.collect()
    }

    /// What was decided for an object before.
    #[must_use]
    pub fn previous(&self, key: &Key) -> Previous {
        self.previous.get(key).cloned().unwrap_or_default()
    }

    /// Adds another workload of which only metadata and clusters are known. Nothing is decided for it.
    pub fn add_peer(&mut self, identity: Identity, clusters: BTreeSet<String>) {
        self.peers.push((identity, clusters));
    }

    /// Workloads that are there besides those to decide for.
    pub fn peers(&self) -> impl Iterator<Item = Peer<'_>> {
        self.peers.iter().map(|(identity, clusters)| Peer {
            namespace: &identity.namespace,
            labels: &identity.labels,
            clusters,
        })
    }

    /// What decisions look at.
    #[must_use]
    pub fn world(&self) -> World<'_> {
        let policies = self.propagation.iter().map(Into::into);
        let overrides = self.overrides.iter().map(Into::into);
        World {
            policies: policies.chain(self.cluster_propagation.iter().map(Into::into)).collect(),
            overrides: overrides.chain(self.cluster_overrides.iter().map(Into::into)).collect(),
            destinations: &self.destinations,
            reserved: Reserved::default(),
        }
    }
}

fn read<T: DeserializeOwned>(key: &Key, object: Value) -> Result<T, Refusal> {
    serde_json::from_value(object)
        .map_err(|error| Refusal::Malformed { key: key.clone(), why: error.to_string() })
}

fn refuse(key: &Key, violations: &[Violation]) -> Result<(), Refusal> {
    if violations.is_empty() {
        return Ok(());
    }
    let why = violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Err(Refusal::Invalid { key: key.clone(), why })
}

#[cfg(test)]
mod tests;
