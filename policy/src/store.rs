//! What the host says about policies and clusters, as of now.
//!
//! Each object is read alone: one that cannot be read is an error on that object and disturbs no other. Readers get a
//! view that does not change under them.

mod bindings;
mod kept;
mod view;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicObject},
    runtime::watcher,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::{
    bindings::Bindings,
    view::{Override, Propagation, View},
};
pub(crate) use self::{
    bindings::{changed_since, from_cluster, only_onto},
    view::Kind,
};
use crate::{
    api::{Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, OverridePolicy, PropagationPolicy},
    store::kept::Kept,
    tell::Tell,
    watching,
};

/// The policies and clusters of a host.
pub struct Store {
    parts: Mutex<Parts>,
    view: ArcSwap<View>,
    changed: watch::Sender<u64>,
    overrides_changed: watch::Sender<u64>,
    tell: Tell,
}

#[derive(Default)]
struct Parts {
    propagation: Kept<Propagation>,
    cluster_propagation: Kept<Propagation>,
    overrides: Kept<Override>,
    cluster_overrides: Kept<Override>,
    clusters: Kept<Cluster>,
}

impl Store {
    /// An empty store, to be filled by [`run`](Self::run).
    #[must_use]
    pub fn new(tell: Tell) -> Arc<Self> {
        let (view, changed, overrides_changed) =
            (ArcSwap::default(), watch::Sender::new(0), watch::Sender::new(0));
        Arc::new(Self { parts: Mutex::default(), view, changed, overrides_changed, tell })
    }

    /// What there is now.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Counts changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Counts changes of what overrides make of objects.
    pub fn override_changes(&self) -> watch::Receiver<u64> {
        self.overrides_changed.subscribe()
    }

    /// Waits until everything was listed once.
    pub async fn complete(&self) {
        let mut changes = self.changes();
        while !self.view().complete {
            // The sender lives in self, so waiting cannot fail.
            let _ = changes.changed().await;
        }
    }

    /// Keeps it current until told to stop.
    pub async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) {
        tokio::join!(
            self.follow::<PropagationPolicy, _>(
                &client,
                &stop,
                |parts| &mut parts.propagation,
                |policy| { Propagation::from(policy) }
            ),
            self.follow::<ClusterPropagationPolicy, _>(
                &client,
                &stop,
                |parts| &mut parts.cluster_propagation,
                Propagation::from
            ),
            self.follow::<OverridePolicy, _>(&client, &stop, |parts| &mut parts.overrides, Override::from),
            self.follow::<ClusterOverridePolicy, _>(
                &client,
                &stop,
                |parts| &mut parts.cluster_overrides,
                Override::from
            ),
            self.follow::<Cluster, _>(&client, &stop, |parts| &mut parts.clusters, |cluster| cluster),
        );
    }

    async fn follow<K, V>(
        &self,
        client: &Client,
        stop: &CancellationToken,
        part: impl Fn(&mut Parts) -> &mut Kept<V>,
        read: impl Fn(K) -> V,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        V: PartialEq,
    {
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        watching::follow(api, watcher::Config::default(), &resource.plural, stop, |event| {
            let decode = |object: &DynamicObject| self.decode(&resource, object).map(&read);
            let mut parts = self.parts.lock();
            if part(&mut parts).take(event, decode) {
                let view = Arc::new(View::of(&parts));
                let before = self.view.swap(view.clone());
                drop(parts);
                self.changed.send_modify(|count| *count += 1);
                // Until all is read once, nobody has made anything of it.
                if before.complete && view.overrides_differ(&before) {
                    self.overrides_changed.send_modify(|count| *count += 1);
                }
            }
        })
        .await;
    }

    /// Reads one object. If it cannot be read, that is said where its author looks.
    fn decode<K: DeserializeOwned>(&self, resource: &ApiResource, object: &DynamicObject) -> Option<K> {
        let json = serde_json::to_value(object).ok()?;
        match serde_json::from_value(json) {
            Ok(read) => Some(read),
            Err(error) => {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(kind = resource.kind, name, %error, "an object cannot be read and has no effect");
                let about = ObjectReference {
                    api_version: Some(resource.api_version.clone()),
                    kind: Some(resource.kind.clone()),
                    namespace: object.metadata.namespace.clone(),
                    name: object.metadata.name.clone(),
                    uid: object.metadata.uid.clone(),
                    ..ObjectReference::default()
                };
                self.tell.warn(about, "Unreadable", &format!("it has no effect: {error}"));
                None
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("view", &self.view()).finish_non_exhaustive()
    }
}
