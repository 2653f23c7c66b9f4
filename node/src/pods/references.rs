use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::queue::WorkQueue;
use crate::{
    client::{HostError, answered, ask},
    contract::{Pod, PodKey},
    decide::{Reference, ReferenceKind},
};

/// How long an object that was there is taken to be there still. A provider reads it anyway when it uses it.
const BELIEVED: Duration = Duration::from_secs(30);

/// More objects than this are not waited for at once; their pods ask again from time to time.
const MOST_WATCHES: usize = 500;

/// Whether the ConfigMaps and Secrets that pods name exist, and who waits for those that do not.
///
/// Only metadata of single objects is ever asked for: no list, no content. That is what the Node authorizer grants,
/// and a thousand pods with the same ConfigMap cost one request.
pub struct References {
    client: Client,
    seen: Mutex<HashMap<Name, Seen>>,
    missing: Mutex<HashMap<Name, Missing>>,
}

/// When an object was last there. The lock makes those who ask at the same time wait for one answer.
type Seen = Arc<tokio::sync::Mutex<Option<Instant>>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    kind: ReferenceKind,
    namespace: String,
    name: String,
}

struct Missing {
    waiting: HashSet<Waiter>,
    /// When it was last looked for in person: a watch may be forbidden or broken.
    looked: Instant,
    _watch: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct Waiter {
    key: PodKey,
    queue: Weak<WorkQueue>,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && Weak::ptr_eq(&self.queue, &other.queue)
    }
}

impl Eq for Waiter {}

impl std::hash::Hash for Waiter {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl References {
    /// Shared by all nodes of a process, or of one identity on the host.
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, seen: Mutex::default(), missing: Mutex::default() })
    }

    /// Those of a pod's references that do not exist.
    pub(crate) async fn missing<'a>(
        &self,
        pod: &Pod,
        references: &'a [Reference],
    ) -> Result<Vec<&'a Reference>, HostError> {
        let mut missing = Vec::new();
        for reference in references {
            let namespace = pod.key().namespace().to_owned();
            let name = Name { kind: reference.kind, namespace, name: reference.name.clone() };
            if !self.exists(&name).await? {
                missing.push(reference);
            }
        }
        Ok(missing)
    }

    async fn exists(&self, name: &Name) -> Result<bool, HostError> {
        if let Some(missing) = self.missing.lock().get_mut(name) {
            if missing.looked.elapsed() < BELIEVED {
                return Ok(false);
            }
            missing.looked = Instant::now();
        }
        let seen = {
            let mut all = self.seen.lock();
            if all.len() > 10_000 {
                all.retain(|_, seen| {
                    seen.try_lock().is_ok_and(|at| at.is_some_and(|at| at.elapsed() < BELIEVED))
                });
            }
            all.entry(name.clone()).or_default().clone()
        };
        let mut seen = seen.lock().await;
        if seen.is_some_and(|at| at.elapsed() < BELIEVED) {
            return Ok(true);
        }
        let exists = match name.kind {
            ReferenceKind::ConfigMap => found::<ConfigMap>(&self.client, name).await?,
            ReferenceKind::Secret => found::<Secret>(&self.client, name).await?,
        };
        *seen = exists.then(Instant::now);
        if exists {
            self.appeared(name);
        }
        Ok(exists)
    }

    /// Wakes whoever waits for it.
    fn appeared(&self, name: &Name) {
        let appeared = self.missing.lock().remove(name);
        for waiter in appeared.into_iter().flat_map(|mut missing| std::mem::take(&mut missing.waiting)) {
            if let Some(queue) = waiter.queue.upgrade() {
                queue.add(&waiter.key);
            }
        }
    }

    /// Puts the pod back into the queue when the object appears. False if so many are waited for already that nobody
    /// will say so.
    pub(crate) fn wait_for(
        self: &Arc<Self>,
        pod: &Pod,
        reference: &Reference,
        queue: &Arc<WorkQueue>,
    ) -> bool {
        let namespace = pod.key().namespace().to_owned();
        let name = Name { kind: reference.kind, namespace, name: reference.name.clone() };
        let waiter = Waiter { key: pod.key().clone(), queue: Arc::downgrade(queue) };
        let mut missing = self.missing.lock();
        if let Some(known) = missing.get_mut(&name) {
            known.waiting.insert(waiter);
            true
        } else if missing.len() < MOST_WATCHES {
            let (this, watched) = (Arc::downgrade(self), name.clone());
            let watch = tokio::spawn(async move { Self::watch(this, watched).await });
            let watch = AbortOnDropHandle::new(watch);
            missing.insert(
                name,
                Missing { waiting: HashSet::from([waiter]), looked: Instant::now(), _watch: watch },
            );
            true
        } else {
            false
        }
    }

    /// The pod waits for nothing any more. Objects that nobody waits for are not watched.
    pub(crate) fn stop_waiting(&self, key: &PodKey, queue: &Arc<WorkQueue>) {
        let waiter = Waiter { key: key.clone(), queue: Arc::downgrade(queue) };
        self.missing.lock().retain(|_, missing| {
            missing.waiting.remove(&waiter);
            !missing.waiting.is_empty()
        });
    }

    async fn watch(this: Weak<Self>, name: Name) {
        let Some(client) = this.upgrade().map(|this| this.client.clone()) else {
            return;
        };
        match name.kind {
            ReferenceKind::ConfigMap => appears::<ConfigMap>(&client, &name).await,
            ReferenceKind::Secret => appears::<Secret>(&client, &name).await,
        }
        if let Some(this) = this.upgrade() {
            this.appeared(&name);
        }
    }
}

async fn found<K>(client: &Client, name: &Name) -> Result<bool, HostError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), &name.namespace);
    Ok(answered(ask(|| api.get_metadata_opt(&name.name))).await??.is_some())
}

async fn appears<K>(client: &Client, name: &Name)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + fmt::Debug
        + Send
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), &name.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", name.name));
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitApply(_) | watcher::Event::Apply(_)) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, kind = %name.kind, name = name.name, "waiting for it failed, trying again");
            }
        }
    }
}

impl fmt::Debug for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("References").field("missing", &self.missing.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        contract::NodeName,
        fake_api::{failure, fake_api},
    };

    fn pod() -> Pod {
        Pod::try_from(json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"}})).unwrap()
    }

    fn secret(name: &str) -> Reference {
        Reference { kind: ReferenceKind::Secret, name: name.to_owned(), optional: false }
    }

    fn queue() -> Arc<WorkQueue> {
        Arc::new(WorkQueue::new(NodeName::new("n").unwrap(), Arc::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_by_the_watch_and_needs_not_look() {
        let list = |items: Value| {
            let metadata = json!({"resourceVersion": "1"});
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                   "metadata": metadata, "items": items})
        };
        let (client, asked) = fake_api(move |request| match request {
            watch if watch.contains("watch=") && watch.contains("%3Dsoon") => {
                let metadata = json!({"namespace": "ns", "name": "soon", "resourceVersion": "2"});
                let object = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                                    "metadata": metadata});
                (StatusCode::OK, json!({"type": "ADDED", "object": object}))
            }
            watch if watch.contains("watch=") => failure(StatusCode::SERVICE_UNAVAILABLE),
            look if look.contains("fieldSelector") => (StatusCode::OK, list(json!([]))),
            _ => failure(StatusCode::NOT_FOUND),
        });
        let (references, queue, named) =
            (References::new(client), queue(), [secret("soon"), secret("never")]);
        let missing = references.missing(&pod(), &named).await.unwrap();
        assert_eq!(missing.len(), 2);
        for reference in missing {
            assert!(references.wait_for(&pod(), reference, &queue));
        }
        asked.take();
        let told = tokio::time::timeout(Duration::from_secs(5), queue.take()).await.unwrap().unwrap();
        assert_eq!(told.key(), pod().key());
        let looked = asked.take().iter().filter(|asked| asked.ends_with("/soon")).count();
        assert_eq!((looked, references.missing.lock().len()), (0, 1), "the other is still waited for");
    }

    #[tokio::test]
    async fn so_many_are_waited_for_and_no_more() {
        let (client, _) = fake_api(|_| failure(StatusCode::SERVICE_UNAVAILABLE));
        let (references, queue) = (References::new(client), queue());
        let waits = |n: usize| references.wait_for(&pod(), &secret(&n.to_string()), &queue);
        assert!((0..MOST_WATCHES).all(waits));
        assert!(!waits(MOST_WATCHES), "whoever waits for this one has to look");
        assert!(waits(0), "and this one is watched already");
    }
}
