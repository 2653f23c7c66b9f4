//! One look at an object of the host: where is it to be?

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use federlet_provider::errors::brief;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Shared, destinations,
    job::{Job, backoff},
    kinds::{is_copied, run_by_member},
    templates::Found,
    wanted::{Holder, RequiredBy, Seen, Situation, Wanted},
};
use crate::{
    api::{BindingSnapshot, ResourceBinding, TargetCluster},
    decide::Destination,
    depend,
    inventory::Key,
    object::Identity,
    store::{Kind, View, changed_since},
    survey,
    tainted::Tainted,
};

/// The kind of definitions.
pub(super) const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// A look at a time that is due comes no sooner than the time.
const A_LITTLE: Duration = Duration::from_millis(100);

impl Shared {
    pub(super) fn binding(&self, seen: &Seen) -> Option<Arc<ResourceBinding>> {
        let bindings =
            if seen.identity.namespace.is_empty() { &self.cluster_bindings } else { &self.bindings };
        bindings.get(&seen.uid)
    }

    /// Looks at one object, and hands in what follows.
    pub(super) async fn look(&self, key: &Arc<Key>) {
        let seen = match self.templates.find(key) {
            // Once its kind is listed, it is looked at again.
            Found::Unknown => return,
            Found::Gone => {
                self.looked.lock().remove(&**key);
                self.goes_along(key, None);
                return self.nowhere(key);
            }
            Found::There(seen) => seen,
        };
        let outcome = if is_copied(&seen.identity) {
            self.look_at_copied(key, &seen).await
        } else {
            self.look_at_workload(key, &seen).await
        };
        match outcome {
            Ok(()) => {
                self.failed.lock().remove(&**key);
                if self.binding(&seen).is_some() {
                    self.looked.lock().insert(Key::clone(key));
                }
            }
            Err(error) => {
                if changed_since(&error) {
                    tracing::debug!(object = %key, "somebody else wrote its binding, looking again");
                } else {
                    tracing::warn!(object = %key, error = brief(&error), "cannot look at an object, trying again");
                }
                let failures =
                    *self.failed.lock().entry(Key::clone(key)).and_modify(|count| *count += 1).or_insert(1);
                self.jobs.after(Job::Look(key.clone()), backoff(failures));
            }
        }
    }

    /// It is not to be anywhere.
    fn nowhere(&self, key: &Arc<Key>) {
        let with = self.members.with(key);
        let mut desk = self.desk.lock();
        let known: BTreeSet<Arc<str>> =
            desk.get(&**key).into_iter().flat_map(|entry| entry.sent.keys().cloned()).collect();
        let clusters: BTreeSet<Arc<str>> = known.into_iter().chain(with).collect();
        if clusters.is_empty() {
            desk.remove(&**key);
            return;
        }
        desk.entry(Key::clone(key)).or_default().wanted = None;
        drop(desk);
        for cluster in clusters {
            self.jobs.soon(Job::Send(key.clone(), cluster));
        }
    }

    /// Notes what goes along with an object, and has that looked at.
    fn goes_along(&self, key: &Key, needs: Option<(BindingSnapshot, BTreeSet<Key>)>) {
        let changed = self.along.lock().set(key, needs);
        // Policies say whether what goes along can be read.
        if !changed.is_empty() {
            self.jobs.soon(Job::Policies);
        }
        changed.into_iter().for_each(|target| self.jobs.look(target));
    }

    /// A workload stays on the host, and its pods leave it. What it needs may go along with it.
    async fn look_at_workload(&self, key: &Arc<Key>, seen: &Arc<Seen>) -> Result<(), kube::Error> {
        let (view, binding) = (self.store.view(), self.binding(seen));
        let tainted = Tainted::default();
        let situation = Situation {
            seen,
            view: &view,
            destinations: &[],
            binding: binding.as_deref(),
            required_by: None,
            tainted: &tainted,
            now: Timestamp::now(),
        };
        let brings = match situation.holder() {
            Some(Holder::Policy(policy)) => policy.spec.propagate_deps,
            Some(Holder::Former(_)) => binding.as_ref().is_some_and(|binding| binding.spec.propagate_deps),
            Some(Holder::Others) | None => false,
        };
        let binding = binding.filter(|binding| brings && !binding.spec.clusters.is_empty());
        // It may have been run by members before.
        self.nowhere(key);
        let Some(binding) = binding else {
            self.goes_along(key, None);
            return Ok(());
        };
        let Some(template) = self.templates.read(seen).await? else { return Ok(()) };
        let clusters = binding.spec.clusters.iter().map(|cluster| cluster.name.clone()).collect();
        self.goes_along(key, Some((snapshot(seen, &binding, clusters), needs(&template, seen))));
        Ok(())
    }

    async fn look_at_copied(&self, key: &Arc<Key>, seen: &Arc<Seen>) -> Result<(), kube::Error> {
        let (view, binding) = (self.store.view(), self.binding(seen));
        let required_by = self.required_by(key, binding.as_deref());
        let destinations = self.serving(&view, key);
        let tainted = self.tainted.lock().clone();
        let situation = Situation {
            seen,
            view: &view,
            destinations: &destinations,
            binding: binding.as_deref(),
            required_by: Some(&required_by),
            tainted: &tainted,
            now: Timestamp::now(),
        };
        if situation.holder().is_none() {
            self.goes_along(key, None);
            self.nowhere(key);
            return match binding {
                Some(binding) if !seen.deleting => self.unrecord(&binding).await,
                _ => Ok(()),
            };
        }
        let before = self.desk.lock().get(&**key).and_then(|entry| entry.wanted.clone());
        let known = before
            .as_ref()
            .filter(|before| before.seen.version == seen.version && before.seen.uid == seen.uid);
        let template = match known {
            Some(before) => before.template.clone(),
            None => match self.templates.read(seen).await? {
                Some(template) => Arc::new(template),
                // The watch will say that it is gone.
                None => return Ok(()),
            },
        };
        let Some(wanted) = situation.wanted(&template) else { return Ok(()) };
        let wanted = Arc::new(wanted);
        if let Some(leaves) = wanted.leaves {
            let wait = leaves.duration_since(Timestamp::now()).unsigned_abs();
            self.jobs.after(Job::Look(key.clone()), wait + A_LITTLE);
        }
        self.record(&wanted, binding.as_deref()).await?;
        let needs = (wanted.propagate_deps && !wanted.clusters.is_empty())
            .then(|| needs(&template, seen))
            .filter(|needs| !needs.is_empty());
        let clusters = wanted.clusters.keys().cloned().collect();
        let snapshot = self.binding(seen).map(|binding| snapshot(seen, &binding, clusters));
        self.tell_about_needs(seen, needs.iter().flatten());
        self.goes_along(key, snapshot.zip(needs));
        self.want(key, &wanted, before.as_deref());
        Ok(())
    }

    fn want(&self, key: &Arc<Key>, wanted: &Arc<Wanted>, before: Option<&Wanted>) {
        let clusters: BTreeSet<Arc<str>> = {
            let mut desk = self.desk.lock();
            let entry = desk.entry(Key::clone(key)).or_default();
            entry.wanted = Some(wanted.clone());
            entry
                .sent
                .keys()
                .cloned()
                .chain(wanted.clusters.keys().map(|name| name.as_str().into()))
                .collect()
        };
        for cluster in clusters.into_iter().chain(self.members.with(key)) {
            self.jobs.soon(Job::Send(key.clone(), cluster));
        }
        self.jobs.soon(Job::Report(key.clone()));
        let moved = before.is_none_or(|before| before.clusters != wanted.clusters);
        if moved && (key.api_version.as_str(), key.kind.as_str()) == DEFINITION {
            // Where a definition goes, its objects can go.
            let text =
                |pointer: &str| wanted.template.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
            let its = |(version, name): &Kind| name == kind && version.starts_with(&format!("{group}/"));
            self.templates.kinds().into_iter().filter(its).for_each(|kind| self.jobs.look_at_kind(kind));
        }
    }

    /// Who needs an object. What was recorded holds until those were looked at again.
    fn required_by(&self, key: &Key, binding: Option<&ResourceBinding>) -> RequiredBy {
        let mut required_by = self.along.lock().of(key);
        for before in binding.into_iter().flat_map(|binding| &binding.spec.required_by) {
            let Some(source) = self.source(before) else { continue };
            let unsure = match self.templates.find(&source) {
                Found::Unknown => true,
                Found::Gone => false,
                Found::There(_) => !self.looked.lock().contains(&source),
            };
            if unsure {
                required_by.entry(source).or_insert_with(|| before.clone());
            }
        }
        required_by
    }

    /// The object of a binding; none if there is no such binding any more.
    fn source(&self, snapshot: &BindingSnapshot) -> Option<Key> {
        let all = if snapshot.namespace.is_empty() {
            self.cluster_bindings.all()
        } else {
            self.bindings.within(&snapshot.namespace)
        };
        let found = all.iter().find(|binding| binding.metadata.name.as_deref() == Some(&snapshot.name))?;
        Some(Key::from(&found.spec.resource))
    }

    /// The clusters, with the kinds that definitions bring to them.
    fn serving(&self, view: &Arc<View>, key: &Key) -> Arc<Vec<Destination>> {
        let destinations = self.destinations(view);
        let group = key.api_version.split_once('/').map_or("", |(group, _)| group);
        if !group.contains('.') || (key.api_version.as_str(), key.kind.as_str()) == DEFINITION {
            return destinations;
        }
        let end = format!(".{group}");
        let definitions: Vec<(Arc<Value>, BTreeSet<String>)> = {
            let desk = self.desk.lock();
            let of_group = |other: &Key| {
                (other.api_version.as_str(), other.kind.as_str()) == DEFINITION && other.name.ends_with(&end)
            };
            desk.iter()
                .filter(|(other, _)| of_group(other))
                .filter_map(|(_, entry)| entry.wanted.as_ref())
                .map(|wanted| (wanted.template.clone(), wanted.clusters.keys().cloned().collect()))
                .collect()
        };
        if definitions.is_empty() {
            return destinations;
        }
        let definitions = definitions.iter().map(|(definition, clusters)| (&**definition, clusters.clone()));
        Arc::new(survey::serving(&destinations, definitions))
    }

    /// The clusters that objects may go to, read once for each view.
    fn destinations(&self, view: &Arc<View>) -> Arc<Vec<Destination>> {
        let mut known = self.destinations.lock();
        if let Some((of, destinations)) = &*known
            && Arc::ptr_eq(of, view)
        {
            return destinations.clone();
        }
        let read = Arc::new(destinations(view));
        *known = Some((view.clone(), read.clone()));
        read
    }
}

/// What a workload or another object cannot do without. A claim goes with the pods that the host sends: it is where their
/// data is.
fn needs(template: &Value, seen: &Seen) -> BTreeSet<Key> {
    let Identity { namespace, .. } = &seen.identity;
    let claims = is_copied(&seen.identity) || run_by_member(&seen.identity);
    depend::dependencies(template)
        .into_iter()
        .filter(|needed| claims || needed.kind != "PersistentVolumeClaim")
        .map(|needed| Key {
            api_version: "v1".into(),
            kind: needed.kind.into(),
            namespace: namespace.clone(),
            name: needed.name,
        })
        .collect()
}

/// The binding of an object, and where the object is. How many replicas are where says nothing about what they need.
fn snapshot(seen: &Seen, binding: &ResourceBinding, clusters: BTreeSet<String>) -> BindingSnapshot {
    BindingSnapshot {
        namespace: seen.identity.namespace.clone(),
        name: binding.metadata.name.clone().unwrap_or_default(),
        clusters: clusters.into_iter().map(|name| TargetCluster { name, replicas: 0 }).collect(),
    }
}
