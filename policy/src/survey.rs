//! Decisions for many objects at once, as they come out when all controllers are done.
//!
//! Objects depend on one another: a custom resource can go where its definition goes, a ConfigMap goes with the
//! workload that uses it, and workloads may want to be together or apart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    api::{ApiEnablement, ApiResourceEnablement},
    decide::{Decision, Destination, Verdict, World, decide},
    depend,
    divide::Shares,
    inventory::{Inventory, Key},
    object::Identity,
    place::Peer,
    placer::as_seen,
    propagate::kinds::is_copied,
    render::render,
};

/// What becomes of one object.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The object.
    pub key: Key,
    /// What was decided for it alone.
    pub decision: Decision,
    /// The objects that it goes along with.
    pub follows: BTreeSet<Key>,
    /// Where it goes, with its replicas if it has such a number.
    pub clusters: BTreeMap<String, Option<u32>>,
    /// The object as each cluster gets it.
    pub rendered: BTreeMap<String, Value>,
    /// Why it cannot be made for a cluster.
    pub errors: BTreeMap<String, String>,
    /// Why nothing can be decided for it.
    pub malformed: Option<String>,
}

impl Entry {
    /// Of an object that cannot be understood.
    fn malformed(key: Key, why: String) -> Self {
        Self {
            key,
            decision: Decision::without(None, Verdict::NoPolicy, false),
            follows: BTreeSet::new(),
            clusters: BTreeMap::new(),
            rendered: BTreeMap::new(),
            errors: BTreeMap::new(),
            malformed: Some(why),
        }
    }

    /// Why it is not simply placed, in plain words.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        if self.malformed.is_some() {
            return None;
        }
        let mut own = self.decision.reason();
        if self.decision.verdict == Verdict::NoPolicy && self.key.kind == "Namespace" {
            own =
                Some("no policy selects it: members get a namespace when something goes into it".to_owned());
        }
        if self.follows.is_empty() {
            return own;
        }
        let others = self.follows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let along = format!("goes along with {others}");
        Some(own.map_or_else(|| along.clone(), |own| format!("{own}; {along}")))
    }

    /// What went wrong, as a whole or cluster by cluster.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let each = self.errors.iter().map(|(cluster, why)| format!("{cluster}: {why}"));
        let all = self.malformed.clone().into_iter().chain(each).collect::<Vec<_>>().join("; ");
        (!all.is_empty()).then_some(all)
    }
}

/// Decides for all objects, and makes them for each of their clusters.
#[must_use]
pub fn survey(inventory: &Inventory) -> Vec<Entry> {
    let templates = inventory.templates();
    let world = inventory.world();
    let identities: Vec<Identity> = templates.iter().map(Identity::of).collect();
    let mut places = Places::new(inventory, &identities);
    let mut decisions: Vec<Option<Decision>> = vec![None; templates.len()];

    // Definitions first: where they go, their kinds are served.
    let is_definition = |identity: &Identity| identity.kind == "CustomResourceDefinition";
    let mut destinations = world.destinations.to_vec();
    for definitions in [true, false] {
        let for_pods: Vec<Destination> = destinations.iter().map(ready_for_pods).collect();
        let world = World { destinations: &destinations, ..world.clone() };
        for (index, object) in templates.iter().enumerate() {
            if is_definition(&identities[index]) == definitions {
                let previous = inventory.previous(&Key::of(object));
                let world = if has_pods(&identities[index]) {
                    World { destinations: &for_pods, ..world.clone() }
                } else {
                    world.clone()
                };
                let decision =
                    decide(&world, object, &previous, places.peers(index).chain(inventory.peers()));
                places.set(index, &decision.shares);
                decisions[index] = Some(decision);
            }
        }
        if definitions {
            let made = templates
                .iter()
                .zip(&decisions)
                .filter_map(|(object, made)| Some((object, made.as_ref()?.shares.keys().cloned().collect())));
            destinations = serving(world.destinations, made);
        }
    }
    let decisions: Vec<Decision> = decisions.into_iter().flatten().collect();
    let entries = along(&templates, decisions);
    let world = World { destinations: &destinations, ..world };
    let mut entries: Vec<Entry> =
        entries.into_iter().zip(&templates).map(|(entry, object)| made(&world, object, entry)).collect();
    // From behind, so that those before stay where they are.
    for (before, key, why) in inventory.malformed().iter().rev() {
        entries.insert(*before, Entry::malformed(key.clone(), why.clone()));
    }
    entries
}

/// Whether pods of the object leave the host, not the object itself.
fn has_pods(object: &Identity) -> bool {
    !is_copied(object)
}

/// A cluster as the placer sees it: one that says that it is not ready takes no new pods. One that says nothing is
/// given the benefit of the doubt.
fn ready_for_pods(destination: &Destination) -> Destination {
    let mut destination = destination.clone();
    let status = destination.cluster.status.as_ref();
    if status.is_some_and(|status| status.conditions.iter().any(|condition| condition.type_ == "Ready")) {
        destination.cluster = as_seen(&destination.cluster);
    }
    destination
}

/// Where all objects are, as far as it is known.
struct Places<'a> {
    identities: &'a [Identity],
    clusters: Vec<BTreeSet<String>>,
}

impl<'a> Places<'a> {
    fn new(inventory: &Inventory, identities: &'a [Identity]) -> Self {
        let before = |one: &Identity| {
            let Identity { api_version, kind, namespace, name, .. } = one.clone();
            inventory.previous(&Key { api_version, kind, namespace, name }).shares.into_keys().collect()
        };
        Self { identities, clusters: identities.iter().map(before).collect() }
    }

    fn set(&mut self, index: usize, shares: &Shares) {
        self.clusters[index] = shares.keys().cloned().collect();
    }

    fn peers(&self, index: usize) -> impl Iterator<Item = Peer<'_>> {
        let all = self.identities.iter().zip(&self.clusters).enumerate();
        all.filter(move |(other, _)| *other != index).map(|(_, (identity, clusters))| Peer {
            namespace: &identity.namespace,
            labels: &identity.labels,
            clusters,
        })
    }
}

/// The clusters, with the kinds that definitions bring to them. A cluster that does not say what it serves needs none.
pub(crate) fn serving<'a>(
    destinations: &[Destination],
    definitions: impl Iterator<Item = (&'a Value, BTreeSet<String>)>,
) -> Vec<Destination> {
    let mut destinations = destinations.to_vec();
    for (definition, clusters) in definitions {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, kind, name) = (text("/spec/group"), text("/spec/names/kind"), text("/spec/names/plural"));
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let served: Vec<ApiEnablement> = versions
            .filter_map(|version| version.get("name")?.as_str())
            .map(|version| ApiEnablement {
                group_version: format!("{group}/{version}"),
                resources: vec![ApiResourceEnablement { name: name.to_owned(), kind: kind.to_owned() }],
            })
            .collect();
        for one in destinations.iter_mut().filter(|one| clusters.contains(one.name())) {
            if let Some(status) =
                one.cluster.status.as_mut().filter(|status| !status.api_enablements.is_empty())
            {
                status.api_enablements.extend(served.clone());
            }
        }
    }
    destinations
}

/// Lets what workloads refer to go with them.
fn along(templates: &[Value], decisions: Vec<Decision>) -> Vec<Entry> {
    let keys: Vec<Key> = templates.iter().map(Key::of).collect();
    let at: BTreeMap<&Key, usize> = keys.iter().enumerate().map(|(index, key)| (key, index)).collect();
    let mut followed: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (index, decision) in decisions.iter().enumerate() {
        if !decision.propagate_deps || decision.shares.is_empty() {
            continue;
        }
        for needed in depend::dependencies(&templates[index]) {
            let key = Key {
                api_version: "v1".to_owned(),
                kind: needed.kind.to_owned(),
                namespace: keys[index].namespace.clone(),
                name: needed.name,
            };
            if let Some(other) = at.get(&key) {
                followed.entry(*other).or_default().insert(index);
            }
        }
    }
    let shares: Vec<Shares> = decisions.iter().map(|decision| decision.shares.clone()).collect();
    let entry = |(index, decision): (usize, Decision)| {
        let counted = decision.counted;
        let own =
            decision.shares.iter().map(|(name, share)| (name.clone(), Some(*share).filter(|_| counted)));
        let mut clusters: BTreeMap<String, Option<u32>> = own.collect();
        let leaders = followed.get(&index).into_iter().flatten();
        for name in leaders.clone().flat_map(|&leader| shares[leader].keys()) {
            clusters.entry(name.clone()).or_insert(None);
        }
        let follows = leaders.map(|&leader| keys[leader].clone()).collect();
        let key = keys[index].clone();
        let (rendered, errors) = (BTreeMap::new(), BTreeMap::new());
        Entry { key, decision, follows, clusters, rendered, errors, malformed: None }
    };
    decisions.into_iter().enumerate().map(entry).collect()
}

/// Makes the object for each of its clusters.
fn made(world: &World<'_>, object: &Value, mut entry: Entry) -> Entry {
    for name in entry.clusters.keys() {
        let Some(destination) = world.destinations.iter().find(|one| one.name() == name) else {
            entry.errors.insert(name.clone(), "there is no such Cluster".to_owned());
            continue;
        };
        let part = entry.decision.part(name).unwrap_or_default();
        let overrides = world.overrides.iter().copied();
        match render(object, part, &destination.cluster, &destination.namespaces, overrides) {
            Ok(rendered) => drop(entry.rendered.insert(name.clone(), rendered.object)),
            Err(error) => drop(entry.errors.insert(name.clone(), chain(&error))),
        }
    }
    entry
}

/// An error with all that caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests;
