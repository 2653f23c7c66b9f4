//! Objects of the host that policies may select: metadata of the kinds that concern us, and no others.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use federlet_provider::errors::brief;
use futures::StreamExt;
use kube::{
    Api, Client,
    core::{DynamicObject, ObjectMeta, PartialObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    job::Jobs,
    serving::{self, Answer, Definition, Follows, Served},
    wanted::Seen,
};
use crate::{
    inventory::Key,
    object::{Identity, whole},
    store::Kind,
};

/// A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;
/// How often it is looked whether the host serves a kind by now.
const AGAIN: Duration = Duration::from_secs(5);
/// The answer to those who lack a right.
const FORBIDDEN: u16 = 403;
/// What tools write into annotations is not for us.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is known of an object of the host.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// Its kind was not listed to the end yet: nobody knows.
    Unknown,
    /// It is not there.
    Gone,
    /// It is there.
    There(Arc<Seen>),
}

/// Why the objects of a kind are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) said: String,
    /// Whether it lasts until somebody does something about it. What the host did not say itself passes by itself.
    pub(super) lasts: bool,
}

/// The objects of the kinds that concern us.
pub(super) struct Templates {
    client: Client,
    watch: Client,
    jobs: Jobs,
    kinds: Mutex<BTreeMap<Kind, (Arc<Watched>, DropGuard)>>,
}

#[derive(Default)]
struct Watched {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    served: Option<Served>,
    listed: bool,
    objects: HashMap<(String, String), Arc<Seen>>,
    trouble: Option<Trouble>,
}

impl Templates {
    pub(super) fn new(client: Client, watch: Client, jobs: Jobs) -> Self {
        Self { client, watch, jobs, kinds: Mutex::default() }
    }

    /// Watches these kinds from now on, and no others.
    pub(super) fn watch_only(&self, wanted: &BTreeSet<Kind>, stop: &CancellationToken) {
        let mut kinds = self.kinds.lock();
        kinds.retain(|kind, _| wanted.contains(kind));
        for kind in wanted {
            kinds.entry(kind.clone()).or_insert_with(|| {
                tracing::info!(
                    api_version = kind.0,
                    kind = kind.1,
                    "objects of this kind are looked at, for a policy may select them"
                );
                let (watched, term) = (Arc::<Watched>::default(), stop.child_token());
                let (task, client) = (watched.clone(), (self.client.clone(), self.watch.clone()));
                tokio::spawn(task.run(client, kind.clone(), self.jobs.clone(), term.clone()));
                (watched, term.drop_guard())
            });
        }
    }

    fn of(&self, kind: &Kind) -> Option<Arc<Watched>> {
        self.kinds.lock().get(kind).map(|(watched, _)| watched.clone())
    }

    /// What is known of one.
    pub(super) fn find(&self, key: &Key) -> Found {
        let Some(watched) = self.of(&kind(key)) else { return Found::Unknown };
        let state = watched.state.read();
        match state.objects.get(&(key.namespace.clone(), key.name.clone())) {
            Some(seen) => Found::There(seen.clone()),
            None if state.listed => Found::Gone,
            None => Found::Unknown,
        }
    }

    /// How the host serves a kind.
    pub(super) fn served(&self, kind: &Kind) -> Option<Served> {
        self.of(kind)?.state.read().served.clone()
    }

    /// All objects of a kind.
    pub(super) fn keys(&self, kind: &Kind) -> Vec<Key> {
        let Some(watched) = self.of(kind) else { return vec![] };
        watched.state.read().objects.values().map(|seen| seen.key()).collect()
    }

    /// The kinds that are watched.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.kinds.lock().keys().cloned().collect()
    }

    /// Why the objects of a kind are not known.
    pub(super) fn trouble(&self, kind: &Kind) -> Option<Trouble> {
        self.of(kind)?.state.read().trouble.clone()
    }

    /// Whether all objects of a kind are known.
    pub(super) fn listed(&self, kind: &Kind) -> bool {
        self.of(kind).is_some_and(|watched| watched.state.read().listed)
    }

    /// Reads an object whole; none if it is gone, or another one by now.
    pub(super) async fn read(&self, seen: &Seen) -> Result<Option<Value>, kube::Error> {
        let Identity { api_version, kind, namespace, name, .. } = &seen.identity;
        let Some(Served { resource, namespaced }) = self.served(&(api_version.clone(), kind.clone())) else {
            return Ok(None);
        };
        let api: Api<DynamicObject> = if namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        };
        let found = api.get_opt(name).await?.filter(|found| found.metadata.uid.as_deref() == Some(&seen.uid));
        Ok(found.map(|found| whole(&resource, found)))
    }
}

pub(super) fn kind(key: &Key) -> Kind {
    (key.api_version.clone(), key.kind.clone())
}

impl Watched {
    async fn run(
        self: Arc<Self>,
        (client, watch): (Client, Client),
        kind: Kind,
        jobs: Jobs,
        stop: CancellationToken,
    ) {
        let mut misses = 0;
        loop {
            match serving::ask(&client, &kind).await {
                Ok(Answer::Served(served)) => {
                    misses = 0;
                    self.state.write().served = Some(Served::clone(&served));
                    self.follow(&watch, &kind, &served, &jobs, &stop).await;
                }
                Ok(Answer::Missing(elsewhere)) => {
                    misses += 1;
                    let worth_asking =
                        elsewhere.is_empty() && misses >= serving::CERTAIN && !self.is_known_to_be_gone();
                    let definition = if worth_asking {
                        serving::definition(&client, &kind).await
                    } else {
                        Definition::NotAsked
                    };
                    self.is_missing(&kind, &elsewhere, misses, &definition, &jobs);
                }
                Err(error) => {
                    self.state.write().trouble = Some(Trouble { said: brief(&error), lasts: false });
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Whether it was found out that there are no objects of the kind, because there is no such kind.
    fn is_known_to_be_gone(&self) -> bool {
        let state = self.state.read();
        state.served.is_none() && state.listed && state.objects.is_empty()
    }

    /// The host does not serve the kind in this version. Only if it is certain that there is no such kind at all are its
    /// objects gone; else what was seen of them last still holds.
    fn is_missing(
        &self,
        kind: &Kind,
        elsewhere: &[String],
        misses: u32,
        definition: &Definition,
        jobs: &Jobs,
    ) {
        if elsewhere.is_empty() && self.is_known_to_be_gone() {
            return;
        }
        let mut state = self.state.write();
        let trouble = match serving::follows(elsewhere, misses, definition) {
            Follows::Gone(trouble) => {
                (state.served, state.listed) = (None, true);
                state.objects.clear();
                trouble
            }
            Follows::Unknown(trouble) => {
                state.listed = false;
                if trouble.lasts {
                    state.served = None;
                }
                trouble
            }
        };
        let news = state.trouble.as_ref() != Some(&trouble);
        state.trouble = Some(trouble);
        drop(state);
        if news {
            jobs.look_at_kind(kind.clone());
        }
    }

    /// Until told to stop, or until the host does not know the kind any more.
    async fn follow(
        &self,
        client: &Client,
        kind: &Kind,
        served: &Served,
        jobs: &Jobs,
        stop: &CancellationToken,
    ) {
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &served.resource);
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut relisted: HashSet<(String, String)> = HashSet::new();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init)) => relisted.clear(),
                Some(Ok(watcher::Event::InitApply(object))) => {
                    let seen = seen(kind, object.metadata);
                    relisted.insert(place(&seen));
                    self.note(seen, None);
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    let mut state = self.state.write();
                    state.objects.retain(|place, _| relisted.contains(place));
                    (state.listed, state.trouble) = (true, None);
                    drop(state);
                    jobs.look_at_kind(kind.clone());
                }
                Some(Ok(watcher::Event::Apply(object))) => self.note(seen(kind, object.metadata), Some(jobs)),
                Some(Ok(watcher::Event::Delete(object))) => {
                    let seen = seen(kind, object.metadata);
                    self.state.write().objects.remove(&place(&seen));
                    jobs.look(seen.key());
                }
                Some(Err(error)) => {
                    let trouble = Trouble { said: said(&error), lasts: code(&error) == Some(FORBIDDEN) };
                    let before = self.state.write().trouble.replace(trouble.clone());
                    // What lasts is said once.
                    if before.as_ref() != Some(&trouble) {
                        tracing::warn!(
                            kind = kind.1,
                            trouble = trouble.said,
                            "watching objects that policies select failed, trying again"
                        );
                        jobs.look_at_kind(kind.clone());
                    }
                    if code(&error) == Some(404) {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    fn note(&self, seen: Seen, jobs: Option<&Jobs>) {
        let (place, seen) = (place(&seen), Arc::new(seen));
        let before = self.state.write().objects.insert(place, seen.clone());
        if let Some(jobs) = jobs.filter(|_| before.is_none_or(|before| before != seen)) {
            jobs.look(seen.key());
        }
    }
}

fn place(seen: &Seen) -> (String, String) {
    (seen.identity.namespace.clone(), seen.identity.name.clone())
}

fn seen((api_version, kind): &Kind, meta: ObjectMeta) -> Seen {
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    Seen {
        identity: Identity {
            api_version: api_version.clone(),
            kind: kind.clone(),
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            annotations,
        },
        uid: meta.uid.unwrap_or_default(),
        version: meta.resource_version.unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
    }
}

/// What an API server answered to a watch.
pub(super) fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status.code),
        watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

/// What it said, without the layers around it.
pub(super) fn said(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => brief(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Templates").field("kinds", &self.kinds()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
