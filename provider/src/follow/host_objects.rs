//! Services, claims and volumes of the host, watched once for all virtual nodes of a process.

use std::{collections::HashSet, fmt, sync::Arc};

use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::{
    claims::{OverVolume, WaitingClaim},
    place::Resource,
    services::Selection,
    shelf::{Name, Shelf},
};
use crate::json::text;

/// How long one watch request lives. A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

/// Changes that a virtual node may be behind before it is told to compare everything.
const BACKLOG: usize = 1024;

/// What a virtual node hears of these objects.
#[derive(Clone, Debug)]
pub(super) enum HostChange {
    /// A Service is another, and whether it selects others than before.
    Service(Name, bool),
    /// A claim is another, or gone.
    Claim(Name),
    /// A volume of ours is over.
    Volume,
    /// All objects of a kind were listed again: compare.
    Listed,
}

/// Services, claims and volumes, as far as virtual nodes need to know of all of them.
///
/// A kubelet may not see claims before their pods are bound to it, nor after; so this acts for Federlet itself. Little is
/// kept: of a Service whom it selects, of a claim which node it waits for.
pub struct HostObjects {
    client: Client,
    pub(super) services: RwLock<Shelf<Selection>>,
    pub(super) claims: RwLock<Shelf<WaitingClaim>>,
    pub(super) volumes: RwLock<Shelf<OverVolume>>,
    changes: broadcast::Sender<HostChange>,
}

impl HostObjects {
    /// Nothing is known yet. The client acts for this process.
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            services: RwLock::default(),
            claims: RwLock::default(),
            volumes: RwLock::default(),
            changes: broadcast::Sender::new(BACKLOG),
        })
    }

    /// Changes from now on.
    pub(super) fn changes(&self) -> broadcast::Receiver<HostChange> {
        self.changes.subscribe()
    }

    /// Keeps itself current until told to stop.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let volumes = ApiResource::erase::<PersistentVolume>(&());
        let services =
            self.keep(Resource::Service.api(), &self.services, Selection::of, |name, before, now| {
                let selects = |side: Option<&Selection>| side.map(|side| side.selector.clone());
                let others = selects(before) != selects(now);
                (others || now.is_some()).then_some(HostChange::Service(name, others))
            });
        let claims = self.keep(Resource::Claim.api(), &self.claims, WaitingClaim::of, |name, _, _| {
            Some(HostChange::Claim(name))
        });
        let volumes =
            self.keep(volumes, &self.volumes, OverVolume::of, |_, _, now| now.map(|_| HostChange::Volume));
        tokio::select! {
            () = stop.cancelled() => {}
            ((), (), ()) = async { tokio::join!(services, claims, volumes) } => {}
        }
    }

    /// Watches the objects of one kind, and keeps of each what `read` makes of it.
    async fn keep<V>(
        &self,
        resource: ApiResource,
        shelf: &RwLock<Shelf<V>>,
        read: impl Fn(&Value) -> Option<V>,
        news: impl Fn(Name, Option<&V>, Option<&V>) -> Option<HostChange>,
    ) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let mut events = watcher(api, config).default_backoff().boxed();
        let mut listed = HashSet::new();
        let mut told = false;
        while let Some(event) = events.next().await {
            let (object, stays, listing) = match event {
                Ok(watcher::Event::Apply(object)) => (object, true, false),
                Ok(watcher::Event::InitApply(object)) => (object, true, true),
                Ok(watcher::Event::Delete(object)) => (object, false, false),
                Ok(watcher::Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(watcher::Event::InitDone) => {
                    shelf.write().keep_only(&std::mem::take(&mut listed));
                    self.tell(HostChange::Listed);
                    told = false;
                    continue;
                }
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%error, "watching the host's {} failed, trying again", resource.plural);
                    }
                    continue;
                }
            };
            let object = serde_json::to_value(object).unwrap_or_default();
            let field = |field: &str| object.get("metadata").and_then(|m| text(m, field)).unwrap_or_default();
            let name = Name::new(field("namespace"), field("name"));
            let change = {
                let mut shelf = shelf.write();
                let before = shelf.put(&name, if stays { read(&object) } else { None });
                news(name.clone(), before.as_ref(), shelf.get(&name))
            };
            if listing {
                listed.insert(name);
            } else if let Some(change) = change {
                self.tell(change);
            }
        }
    }

    fn tell(&self, change: HostChange) {
        // Nobody listens while no node is served.
        let _ = self.changes.send(change);
    }
}

impl fmt::Debug for HostObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostObjects").finish_non_exhaustive()
    }
}
