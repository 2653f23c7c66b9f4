//! The pods that policies steer, as the host has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::seen::{Group, SeenPod};
use crate::{stamp, watching};

/// Marked pods by workload.
pub(super) struct Marked {
    known: Mutex<Known>,
    complete: watch::Sender<bool>,
    changed: mpsc::UnboundedSender<Group>,
}

#[derive(Default)]
struct Known {
    pods: HashMap<(String, String), SeenPod>,
    groups: HashMap<Group, BTreeSet<String>>,
}

impl Known {
    fn remove(&mut self, key: &(String, String)) -> Option<Group> {
        let group = self.pods.remove(key)?.group();
        if let Some(names) = self.groups.get_mut(&group) {
            names.remove(&key.1);
            if names.is_empty() {
                self.groups.remove(&group);
            }
        }
        Some(group)
    }
}

/// How pods are asked for, as JSON.
pub(super) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods")
}

impl Marked {
    pub(super) fn new(changed: mpsc::UnboundedSender<Group>) -> Self {
        Self { known: Mutex::default(), complete: watch::Sender::new(false), changed }
    }

    /// Waits until they were listed once.
    pub(super) async fn complete(&self) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    pub(super) fn groups(&self) -> Vec<Group> {
        self.known.lock().groups.keys().cloned().collect()
    }

    pub(super) fn has(&self, group: &Group) -> bool {
        self.known.lock().groups.contains_key(group)
    }

    /// All pods of a workload, by name.
    pub(super) fn of(&self, group: &Group) -> Vec<SeenPod> {
        let known = self.known.lock();
        let names = known.groups.get(group).into_iter().flatten();
        names.filter_map(|name| known.pods.get(&(group.namespace.clone(), name.clone())).cloned()).collect()
    }

    /// Takes what a watch or the answer to a write says. What is older than what is known is no news.
    pub(super) fn note(&self, json: &Value) {
        let Some(pod) = SeenPod::read(json) else { return };
        let key = (pod.namespace.clone(), pod.name.clone());
        let group = pod.group();
        let mut known = self.known.lock();
        if let Some(before) = known.pods.get(&key) {
            if before.uid == pod.uid && before.version >= pod.version {
                return;
            }
            let changed = SeenPod { version: pod.version, ..before.clone() } != pod;
            if !changed {
                known.pods.insert(key, pod);
                return;
            }
        }
        let left = known.remove(&key).filter(|before| *before != group);
        known.groups.entry(group.clone()).or_default().insert(pod.name.clone());
        known.pods.insert(key, pod);
        drop(known);
        for group in left.into_iter().chain([group]) {
            let _ = self.changed.send(group);
        }
    }

    fn forget(&self, key: &(String, String), uid: Option<&str>) {
        let mut known = self.known.lock();
        if known.pods.get(key).is_some_and(|pod| uid.is_none_or(|uid| pod.uid == uid)) {
            let group = known.remove(key);
            drop(known);
            group.into_iter().for_each(|group| drop(self.changed.send(group)));
        }
    }

    /// Keeps them current until told to stop.
    pub(super) async fn run(&self, client: Client, stop: CancellationToken) {
        let api: Api<DynamicObject> = Api::all_with(client, &resource());
        let config = watcher::Config::default().labels(stamp::WORKLOAD);
        let mut relisted: BTreeMap<(String, String), String> = BTreeMap::new();
        let key = |pod: &DynamicObject| {
            let meta = &pod.metadata;
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        watching::follow(api, config, "marked pods", &stop, |event| match event {
            watcher::Event::Init => relisted.clear(),
            watcher::Event::InitApply(pod) => {
                relisted.insert(key(&pod), pod.metadata.uid.clone().unwrap_or_default());
                self.note(&serde_json::to_value(&pod).unwrap_or_default());
            }
            watcher::Event::InitDone => {
                let there: Vec<(String, String)> = self.known.lock().pods.keys().cloned().collect();
                for key in there.iter().filter(|key| !relisted.contains_key(*key)) {
                    self.forget(key, None);
                }
                self.complete.send_replace(true);
            }
            watcher::Event::Apply(pod) => self.note(&serde_json::to_value(&pod).unwrap_or_default()),
            watcher::Event::Delete(pod) => self.forget(&key(&pod), pod.metadata.uid.as_deref()),
        })
        .await;
    }
}
