//! The watches themselves.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use futures::{Stream, StreamExt};
use k8s_openapi::{
    ClusterResourceScope,
    api::{node::v1::RuntimeClass, scheduling::v1::PriorityClass},
};
use kube::{
    Api, Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{
    Change, MemberWatch, OurPod, Slot,
    loads::Load,
    table::Applied,
    wire::{WireNode, WirePod},
};
use crate::target::Offers;

/// How long one watch request lives. A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

type Events<K> = std::pin::Pin<Box<dyn Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send>>;

/// The next event of a watch, but none of another cluster: after every failure the member is recognised again before
/// anything more is believed. None when told to stop.
async fn next<K>(
    this: &MemberWatch,
    events: &mut Events<K>,
    what: &str,
    stop: &CancellationToken,
) -> Option<watcher::Event<K>> {
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return None,
            event = events.next() => event?,
        };
        match event {
            Ok(event) => return Some(event),
            Err(error) => {
                tracing::debug!(identity = this.identity, %error, "watching the member's {what} failed, trying again");
                this.until_verified(stop).await;
            }
        }
    }
}

impl MemberWatch {
    pub(super) async fn follow_pods(self: Arc<Self>, stop: CancellationToken) {
        self.until_verified(&stop).await;
        let api: Api<WirePod> = Api::all(self.clients.watch.clone());
        let mut events: Events<WirePod> = watcher(api, config()).default_backoff().boxed();
        let mut listed = HashSet::new();
        while let Some(event) = next(&self, &mut events, "pods", &stop).await {
            match event {
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(pod) => {
                    let slot = slot(&pod);
                    self.apply(&slot, &pod, false);
                    listed.insert(slot);
                }
                watcher::Event::InitDone => {
                    let gone = self.pods.write().keep_only(&std::mem::take(&mut listed));
                    self.pods_listed.send_replace(true);
                    self.room_changed();
                    gone.into_iter().for_each(|pod| self.tell(Change::Gone(pod)));
                    self.tell(Change::Listed);
                }
                watcher::Event::Apply(pod) => self.apply(&slot(&pod), &pod, true),
                watcher::Event::Delete(pod) => {
                    let last = pod.marked.as_deref().and_then(|json| OurPod::read(json, &self.host));
                    let applied = self.pods.write().deleted(&slot(&pod), last);
                    self.tell_applied(applied, true);
                }
            }
        }
    }

    fn apply(&self, slot: &Slot, pod: &WirePod, tell: bool) {
        let ours = pod.marked.as_deref().and_then(|json| OurPod::read(json, &self.host));
        let load = pod.load.clone().map(|(machine, requests)| Load {
            machine,
            node: ours.as_ref().map(|pod| pod.node().into()),
            requests,
        });
        let applied = self.pods.write().apply(slot, ours, load);
        self.tell_applied(applied, tell);
    }

    /// Passes on what is new; of a list only what it takes away, since all is compared at its end.
    fn tell_applied(&self, applied: Applied, changed: bool) {
        if applied.room {
            self.room_changed();
        }
        if let Some(gone) = applied.gone {
            self.tell(Change::Gone(gone));
        }
        if let Some(pod) = applied.changed.filter(|_| changed) {
            self.tell(Change::Pod(pod));
        }
    }

    pub(super) async fn follow_nodes(self: Arc<Self>, stop: CancellationToken) {
        self.until_verified(&stop).await;
        let api: Api<WireNode> = Api::all(self.clients.watch.clone());
        let mut events: Events<WireNode> = watcher(api, config()).default_backoff().boxed();
        let mut listed = HashSet::new();
        while let Some(event) = next(&self, &mut events, "nodes", &stop).await {
            let changed = match event {
                watcher::Event::Init => {
                    listed.clear();
                    false
                }
                watcher::Event::InitApply(node) => {
                    listed.insert(node.name_any().into());
                    node.node.is_some_and(|node| self.nodes.write().apply(node))
                }
                watcher::Event::InitDone => {
                    self.nodes.write().keep_only(&std::mem::take(&mut listed));
                    self.nodes_listed.send_replace(true);
                    true
                }
                watcher::Event::Apply(node) => node.node.is_some_and(|node| self.nodes.write().apply(node)),
                watcher::Event::Delete(node) => self.nodes.write().remove(&node.name_any()),
            };
            if changed {
                self.room_changed();
            }
        }
    }

    pub(super) async fn follow_offers(self: Arc<Self>, stop: CancellationToken) {
        let priorities = self.follow_names::<PriorityClass>(&stop, |offers| &mut offers.priority_classes);
        let runtimes = self.follow_names::<RuntimeClass>(&stop, |offers| &mut offers.runtime_classes);
        tokio::join!(priorities, runtimes);
    }

    /// Keeps the names of all objects of one kind.
    async fn follow_names<K>(
        &self,
        stop: &CancellationToken,
        of: fn(&mut Offers) -> &mut Option<BTreeSet<String>>,
    ) where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug
            + Send
            + 'static,
    {
        self.until_verified(stop).await;
        let api: Api<PartialObjectMeta<K>> = Api::all(self.clients.watch.clone());
        let mut events: Events<PartialObjectMeta<K>> = watcher(api, config()).default_backoff().boxed();
        let mut names = BTreeSet::new();
        let mut listing = false;
        while let Some(event) = next(self, &mut events, "classes", stop).await {
            match event {
                watcher::Event::Init => {
                    names.clear();
                    listing = true;
                }
                watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                    names.insert(object.name_any());
                }
                watcher::Event::InitDone => listing = false,
                watcher::Event::Delete(object) => {
                    names.remove(&object.name_any());
                }
            }
            if !listing {
                self.set_offers(of, names.clone());
            }
        }
    }
}

fn slot(pod: &WirePod) -> Slot {
    Slot::new(&pod.namespace().unwrap_or_default(), &pod.name_any())
}
