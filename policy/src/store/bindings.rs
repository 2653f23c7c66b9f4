//! What was decided before, as the host remembers it.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use kube::{Api, Client, Resource, ResourceExt, runtime::watcher};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{ClusterResourceBinding, ResourceBinding},
    propagate::kinds::may_have_pods,
    watching,
};

/// Changes that a listener may be behind.
const BACKLOG: usize = 1024;

/// The bindings of workloads, by the UID of the workload.
pub struct Bindings {
    known: RwLock<HashMap<String, Arc<ResourceBinding>>>,
    listed: watch::Sender<bool>,
    changed: watch::Sender<u64>,
    decided: broadcast::Sender<String>,
}

impl Default for Bindings {
    fn default() -> Self {
        let (known, listed, changed) =
            (RwLock::default(), watch::Sender::default(), watch::Sender::default());
        Self { known, listed, changed, decided: broadcast::Sender::new(BACKLOG) }
    }
}

impl Bindings {
    /// The binding of a workload.
    pub fn get(&self, uid: &str) -> Option<Arc<ResourceBinding>> {
        self.known.read().get(uid).cloned()
    }

    /// Remembers what was just written, before the watch says so.
    pub fn note(&self, binding: ResourceBinding) {
        let workload = binding.spec.resource.uid.clone();
        let binding = Arc::new(binding);
        let before = self.known.write().insert(workload.clone(), binding.clone());
        let same = before.is_some_and(|before| before.spec == binding.spec && before.uid() == binding.uid());
        if !same {
            self.changed.send_modify(|count| *count += 1);
            let _ = self.decided.send(workload);
        }
    }

    /// Counts changes of what was decided.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The UIDs of workloads for which something else was decided, from now on.
    pub fn decisions(&self) -> broadcast::Receiver<String> {
        self.decided.subscribe()
    }

    /// Whether they were listed once.
    pub fn is_complete(&self) -> bool {
        *self.listed.borrow()
    }

    /// All.
    pub fn all(&self) -> Vec<Arc<ResourceBinding>> {
        self.known.read().values().cloned().collect()
    }

    /// All of one namespace.
    pub fn within(&self, namespace: &str) -> Vec<Arc<ResourceBinding>> {
        let known = self.known.read();
        known.values().filter(|binding| binding.namespace().as_deref() == Some(namespace)).cloned().collect()
    }

    /// The namespaces that have any of objects that pods may come from.
    pub fn namespaces(&self) -> HashSet<String> {
        let known = self.known.read();
        let with_pods = known
            .values()
            .filter(|binding| may_have_pods(&binding.spec.resource.api_version, &binding.spec.resource.kind));
        with_pods.filter_map(|binding| binding.namespace()).collect()
    }

    /// Waits until they were listed once.
    pub async fn complete(&self) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Keeps those of objects in namespaces current until told to stop.
    pub async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) {
        self.follow::<ResourceBinding>(client, "resourcebindings", &stop, |binding| binding).await;
    }

    /// Keeps those of objects without a namespace current until told to stop.
    pub async fn run_cluster(self: Arc<Self>, client: Client, stop: CancellationToken) {
        self.follow(client, "clusterresourcebindings", &stop, from_cluster).await;
    }

    async fn follow<K>(
        &self,
        client: Client,
        what: &str,
        stop: &CancellationToken,
        read: impl Fn(K) -> ResourceBinding,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    {
        let api: Api<K> = Api::all(client);
        let mut relisted = HashSet::new();
        let read = |event| match event {
            watcher::Event::Init => watcher::Event::Init,
            watcher::Event::InitApply(binding) => watcher::Event::InitApply(read(binding)),
            watcher::Event::InitDone => watcher::Event::InitDone,
            watcher::Event::Apply(binding) => watcher::Event::Apply(read(binding)),
            watcher::Event::Delete(binding) => watcher::Event::Delete(read(binding)),
        };
        watching::follow(api, watcher::Config::default(), what, stop, |event| match read(event) {
            watcher::Event::Init => relisted.clear(),
            watcher::Event::InitApply(binding) => {
                relisted.insert(binding.spec.resource.uid.clone());
                self.note(binding);
            }
            watcher::Event::InitDone => {
                self.known.write().retain(|uid, _| relisted.contains(uid));
                self.listed.send_replace(true);
            }
            watcher::Event::Apply(binding) => self.note(binding),
            watcher::Event::Delete(binding) => {
                let mut known = self.known.write();
                // One of another name for the same workload is not this one.
                let same = |there: &Arc<ResourceBinding>| there.uid() == binding.uid();
                if known.get(&binding.spec.resource.uid).is_some_and(same) {
                    known.remove(&binding.spec.resource.uid);
                    drop(known);
                    self.changed.send_modify(|count| *count += 1);
                }
            }
        })
        .await;
    }
}

/// The same words for an object without a namespace.
pub(crate) fn from_cluster(binding: ClusterResourceBinding) -> ResourceBinding {
    ResourceBinding { metadata: binding.metadata, spec: binding.spec.0, status: binding.status }
}

impl fmt::Debug for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bindings").finish_non_exhaustive()
    }
}
