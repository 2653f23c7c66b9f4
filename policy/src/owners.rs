//! Where a pod came from: its owner, the owner of that, and so on, as far as their metadata tell.
//!
//! The kinds that Kubernetes itself makes pods from are watched, metadata only. A ReplicaSet is often asked about before
//! the watch tells of it: it is waited for a moment, and only then a miss costs one GET.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
    discovery,
    runtime::watcher,
};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::{sync::broadcast, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{object::Identity, watching};

/// Kinds that are watched: API version, kind, plural.
const WATCHED: [(&str, &str, &str); 6] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("batch/v1", "Job", "jobs"),
    ("batch/v1", "CronJob", "cronjobs"),
];

/// Nobody has more generations of owners than this.
const DEPTH: usize = 8;
/// How long the metadata of a kind that is not watched are believed.
const BELIEVED: Duration = Duration::from_secs(5);
/// How far a watch is usually behind.
const BEHIND: Duration = Duration::from_millis(5);
/// What large tools write into annotations is not for us.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is known of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// What a policy can select it by.
    pub identity: Identity,
    /// UID.
    pub uid: String,
    /// Counts changes of its spec; zero if it is not known.
    pub generation: i64,
    /// Who controls it.
    pub owner: Option<Owner>,
}

/// A controlling owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl Owner {
    /// The controller of an object in JSON.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
        let controls = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
        let owner = owners.iter().find(controls)?;
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
        })
    }
}

impl Meta {
    fn read(api_version: &str, kind: &str, meta: ObjectMeta) -> Self {
        let owner = meta.owner_references.unwrap_or_default();
        let owner = owner.into_iter().find(|owner| owner.controller == Some(true));
        let mut annotations = meta.annotations.unwrap_or_default();
        annotations.remove(LAST_APPLIED);
        Self {
            identity: Identity {
                api_version: api_version.into(),
                kind: kind.into(),
                namespace: meta.namespace.unwrap_or_default(),
                name: meta.name.unwrap_or_default(),
                labels: meta.labels.unwrap_or_default(),
                annotations,
            },
            uid: meta.uid.unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            owner: owner.map(|owner| Owner {
                api_version: owner.api_version,
                kind: owner.kind,
                name: owner.name,
                uid: owner.uid,
            }),
        }
    }
}

type Key = (&'static str, String, String);

/// Finds owners.
pub struct Owners {
    client: Client,
    known: RwLock<HashMap<Key, Arc<Meta>>>,
    recent: Mutex<HashMap<String, (Instant, Arc<Meta>)>>,
    kinds: Mutex<HashMap<(String, String), ApiResource>>,
    changed: broadcast::Sender<Arc<Meta>>,
}

impl Owners {
    /// Knows nobody yet.
    #[must_use]
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            known: RwLock::default(),
            recent: Mutex::default(),
            kinds: Mutex::default(),
            changed: broadcast::Sender::new(1024),
        })
    }

    /// Watched objects whose labels, annotations or spec changed, or that are new.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Meta>> {
        self.changed.subscribe()
    }

    /// Watched objects of one kind in one namespace, or in all.
    pub fn all(&self, namespace: Option<&str>) -> Vec<Arc<Meta>> {
        let known = self.known.read();
        let within = |meta: &&Arc<Meta>| namespace.is_none_or(|name| meta.identity.namespace == name);
        known.values().filter(within).cloned().collect()
    }

    /// Keeps the cache current until told to stop.
    pub async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) {
        let watches = WATCHED.map(|(api_version, kind, plural)| {
            self.clone().follow(client.clone(), api_version, kind, plural, stop.clone())
        });
        futures::future::join_all(watches).await;
    }

    async fn follow(
        self: Arc<Self>,
        client: Client,
        api_version: &'static str,
        kind: &'static str,
        plural: &'static str,
        stop: CancellationToken,
    ) {
        let resource = resource(api_version, kind, plural);
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource);
        let mut relisted: HashSet<Key> = HashSet::new();
        let key = |meta: &ObjectMeta| {
            (kind, meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        watching::follow(api, watcher::Config::default(), plural, &stop, |event| match event {
            watcher::Event::Init => relisted.clear(),
            watcher::Event::InitApply(object) => {
                relisted.insert(key(&object.metadata));
                self.note(key(&object.metadata), Meta::read(api_version, kind, object.metadata));
            }
            watcher::Event::InitDone => {
                self.known.write().retain(|key, _| key.0 != kind || relisted.contains(key));
            }
            watcher::Event::Apply(object) => {
                self.note(key(&object.metadata), Meta::read(api_version, kind, object.metadata));
            }
            watcher::Event::Delete(object) => drop(self.known.write().remove(&key(&object.metadata))),
        })
        .await;
    }

    fn note(&self, key: Key, meta: Meta) {
        let mut known = self.known.write();
        if known.get(&key).is_some_and(|before| **before == meta) {
            return;
        }
        let meta = Arc::new(meta);
        known.insert(key, meta.clone());
        drop(known);
        let _ = self.changed.send(meta);
    }

    /// An owner as it is now; none if it is gone. Where we may not look, what the reference says is all there is.
    pub async fn get(&self, namespace: &str, owner: &Owner) -> Result<Option<Arc<Meta>>, kube::Error> {
        let watched =
            WATCHED.iter().find(|(version, kind, _)| *version == owner.api_version && *kind == owner.kind);
        if let Some((_, kind, _)) = watched
            && let Some(known) = self.known(kind, namespace, owner)
        {
            return Ok(Some(known));
        }
        if let Some((at, meta)) = self.recent.lock().get(&owner.uid)
            && at.elapsed() < BELIEVED
        {
            return Ok(Some(meta.clone()));
        }
        if let Some((_, kind, _)) = watched
            && let Some(heard) = self.hear_of(kind, namespace, owner).await
        {
            return Ok(Some(heard));
        }
        let meta = match self.ask(namespace, owner).await {
            Ok(meta) => meta,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(kube::Error::Api(status)) if status.code == 403 => bare(namespace, owner),
            Err(error) => return Err(error),
        };
        if meta.uid != owner.uid {
            return Ok(None);
        }
        let meta = Arc::new(meta);
        let mut recent = self.recent.lock();
        recent.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        recent.insert(owner.uid.clone(), (Instant::now(), meta.clone()));
        Ok(Some(meta))
    }

    fn known(&self, kind: &'static str, namespace: &str, owner: &Owner) -> Option<Arc<Meta>> {
        let key = (kind, namespace.to_owned(), owner.name.clone());
        self.known.read().get(&key).filter(|meta| meta.uid == owner.uid).cloned()
    }

    /// What the watch tells in the next moment.
    async fn hear_of(&self, kind: &'static str, namespace: &str, owner: &Owner) -> Option<Arc<Meta>> {
        let mut changes = self.changes();
        let told = async {
            loop {
                // Looked at after every change, and once before: it may have come while we began to listen.
                if let Some(known) = self.known(kind, namespace, owner) {
                    return Some(known);
                }
                if let Err(broadcast::error::RecvError::Closed) = changes.recv().await {
                    return None;
                }
            }
        };
        tokio::time::timeout(BEHIND, told).await.ok().flatten()
    }

    async fn ask(&self, namespace: &str, owner: &Owner) -> Result<Meta, kube::Error> {
        let resource = self.resource(&owner.api_version, &owner.kind).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let found = api.get_metadata(&owner.name).await?;
        Ok(Meta::read(&owner.api_version, &owner.kind, found.metadata))
    }

    /// How objects of a kind are asked for.
    pub async fn resource(&self, api_version: &str, kind: &str) -> Result<ApiResource, kube::Error> {
        if let Some((version, kind, plural)) =
            WATCHED.iter().find(|(version, known, _)| *version == api_version && *known == kind)
        {
            return Ok(resource(version, kind, plural));
        }
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.kinds.lock().get(&key) {
            return Ok(known.clone());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let wanted = GroupVersionKind::gvk(group, version, kind);
        let (found, _) = discovery::pinned_kind(&self.client, &wanted).await?;
        self.kinds.lock().insert(key, found.clone());
        Ok(found)
    }

    /// All owners of an object, the nearest first. It ends where one is gone.
    pub async fn chain(&self, namespace: &str, first: Option<Owner>) -> Result<Vec<Arc<Meta>>, kube::Error> {
        let mut chain: Vec<Arc<Meta>> = vec![];
        let mut next = first;
        while let Some(owner) = next.take().filter(|_| chain.len() < DEPTH) {
            let Some(meta) = self.get(namespace, &owner).await? else { break };
            next.clone_from(&meta.owner);
            chain.push(meta);
        }
        Ok(chain)
    }
}

fn bare(namespace: &str, owner: &Owner) -> Meta {
    Meta {
        identity: Identity {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: namespace.into(),
            name: owner.name.clone(),
            ..Identity::default()
        },
        uid: owner.uid.clone(),
        ..Meta::default()
    }
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_watch_tells_in_the_next_moment_is_not_asked_for() {
        let unreachable = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let owners = Owners::new(Client::try_from(unreachable).unwrap());
        let owner = Owner {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "web-1".into(),
            uid: "u".into(),
        };
        let tell = |uid: &str| {
            let key = ("ReplicaSet", "n".to_owned(), "web-1".to_owned());
            owners.note(key, Meta { uid: uid.into(), ..bare("n", &owner) });
        };
        let (heard, ()) = tokio::join!(owners.hear_of("ReplicaSet", "n", &owner), async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tell("of the one before");
            tokio::time::sleep(Duration::from_millis(1)).await;
            tell("u");
        });
        assert_eq!(heard.unwrap().uid, "u");
        let other = Owner { name: "web-2".into(), ..owner.clone() };
        assert!(owners.hear_of("ReplicaSet", "n", &other).await.is_none(), "it does not wait for ever");
    }
}
