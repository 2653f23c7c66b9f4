//! What was decided before, as the host remembers it.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use kube::{Api, Client, ResourceExt, runtime::watcher};
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{api::ResourceBinding, watching};

/// Changes that a listener may be behind.
const BACKLOG: usize = 1024;

/// The bindings of workloads, by the UID of the workload.
pub struct Bindings {
    known: RwLock<HashMap<String, Arc<ResourceBinding>>>,
    listed: watch::Sender<bool>,
    changed: broadcast::Sender<String>,
}

impl Default for Bindings {
    fn default() -> Self {
        let (known, listed) = (RwLock::default(), watch::Sender::default());
        Self { known, listed, changed: broadcast::Sender::new(BACKLOG) }
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
            let _ = self.changed.send(workload);
        }
    }

    /// The UIDs of workloads for which something else was decided, from now on.
    pub fn changes(&self) -> broadcast::Receiver<String> {
        self.changed.subscribe()
    }

    /// Whether they were listed once.
    pub fn is_complete(&self) -> bool {
        *self.listed.borrow()
    }

    /// All of one namespace.
    pub fn within(&self, namespace: &str) -> Vec<Arc<ResourceBinding>> {
        let known = self.known.read();
        known.values().filter(|binding| binding.namespace().as_deref() == Some(namespace)).cloned().collect()
    }

    /// The namespaces that have any.
    pub fn namespaces(&self) -> HashSet<String> {
        self.known.read().values().filter_map(|binding| binding.namespace()).collect()
    }

    /// Waits until they were listed once.
    pub async fn complete(&self) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Keeps them current until told to stop.
    pub async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) {
        let api: Api<ResourceBinding> = Api::all(client);
        let mut relisted = HashSet::new();
        watching::follow(api, watcher::Config::default(), "resourcebindings", &stop, |event| match event {
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
                }
            }
        })
        .await;
    }
}

impl fmt::Debug for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bindings").finish_non_exhaustive()
    }
}
