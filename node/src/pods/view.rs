use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{packed::Packed, queue::WorkQueue};
use crate::{
    contract::{NodeName, Pod, PodKey},
    metrics::Metrics,
};

/// How long one watch request lives. A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

/// Nodes that join at the same time share one new list.
const JOIN_TOGETHER: Duration = Duration::from_millis(50);

/// Whose pods a watch asks the host for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of one node: the host filters.
    Node(NodeName),
    /// Those of any node; they are told apart here. One watch for a process that serves many nodes.
    Shared,
}

/// The one watch of host pods of a process.
pub struct HostPods {
    scope: Scope,
    namespace: Option<String>,
    nodes: RwLock<HashMap<NodeName, Arc<NodePods>>>,
    joined: Notify,
    metrics: Arc<Metrics>,
}

impl HostPods {
    /// A view of the pods of all namespaces, or of one.
    pub fn new(scope: Scope, namespace: Option<String>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { scope, namespace, nodes: RwLock::default(), joined: Notify::new(), metrics })
    }

    /// Begins to keep the pods of a node. Those it has already come with the next list, which is asked for at once.
    pub fn join(&self, node: &NodeName) -> Arc<NodePods> {
        let pods = Arc::new(NodePods::new(node.clone(), self.namespace.clone(), self.metrics.clone()));
        self.nodes.write().insert(node.clone(), pods.clone());
        self.joined.notify_one();
        pods
    }

    /// Forgets the pods of a node.
    pub fn leave(&self, node: &NodeName) {
        if let Some(pods) = self.nodes.write().remove(node) {
            pods.forget();
        }
    }

    /// The pods of a node, if it joined.
    pub fn node(&self, node: &NodeName) -> Option<Arc<NodePods>> {
        self.nodes.read().get(node).cloned()
    }

    /// The pod of this name, and its node.
    pub fn find(&self, key: &PodKey) -> Option<(NodeName, Pod)> {
        let nodes = self.nodes.read();
        nodes.iter().find_map(|(name, pods)| Some((name.clone(), pods.get(key)?)))
    }

    /// The pod of this name on a node.
    pub fn get(&self, node: &NodeName, key: &PodKey) -> Option<Pod> {
        let pods = self.nodes.read().get(node).cloned();
        pods.and_then(|pods| pods.get(key))
    }

    /// Every pod of a node.
    pub fn of(&self, node: &NodeName) -> Vec<Pod> {
        let pods = self.nodes.read().get(node).cloned();
        pods.map(|pods| pods.all()).unwrap_or_default()
    }

    /// Keeps the view current until told to stop.
    pub async fn run(&self, client: Client, stop: CancellationToken) {
        loop {
            // Whoever joined before this list began is in it.
            self.joined.notified().now_or_never();
            let api: Api<Watched> = match &self.namespace {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            };
            let fields = match &self.scope {
                Scope::Node(node) => format!("spec.nodeName={node}"),
                Scope::Shared => "spec.nodeName!=".to_owned(),
            };
            let config = watcher::Config::default().fields(&fields).timeout(WATCH_SECONDS);
            let mut events = std::pin::pin!(watcher(api, config).default_backoff());
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.joined.notified() => {
                        tokio::time::sleep(JOIN_TOGETHER).await;
                        break;
                    }
                    event = events.next() => match event {
                        Some(Ok(event)) => self.take(event),
                        Some(Err(error)) => tracing::warn!(%error, "watching the host's pods failed, trying again"),
                        None => break,
                    },
                }
            }
        }
    }

    pub(super) fn take(&self, event: watcher::Event<Watched>) {
        match event {
            watcher::Event::Init => self.nodes.read().values().for_each(|node| node.list_begins()),
            watcher::Event::InitApply(pod) => {
                if let Some((node, pod)) = self.ours(pod) {
                    node.list_names(&pod);
                }
            }
            watcher::Event::InitDone => self.nodes.read().values().for_each(|node| node.list_ends()),
            watcher::Event::Apply(pod) => {
                if let Some((node, pod)) = self.ours(pod) {
                    node.apply(&pod);
                }
            }
            watcher::Event::Delete(pod) => {
                if let Some((node, pod)) = self.ours(pod) {
                    node.delete(&pod);
                }
            }
        }
    }

    fn ours(&self, watched: Watched) -> Option<(Arc<NodePods>, Pod)> {
        let node = watched.pod.node_name()?;
        let nodes = self.nodes.read();
        // Node names that we serve are valid; any other is not ours, whatever it is.
        let pods = nodes.get(&NodeName::new(node).ok()?)?.clone();
        Some((pods, watched.pod))
    }
}

#[cfg(test)]
impl HostPods {
    /// The host is asked, and has no pods.
    pub(crate) fn list_nothing(&self) {
        self.take(watcher::Event::Init);
        self.take(watcher::Event::InitDone);
    }
}

impl fmt::Debug for HostPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPods").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// The host's pods of one node.
pub struct NodePods {
    node: NodeName,
    /// The only namespace whose pods the host is asked for, if not all.
    namespace: Option<String>,
    pods: RwLock<HashMap<PodKey, Packed>>,
    departed: Mutex<HashMap<PodKey, (Box<str>, Duration)>>,
    /// What the list that is being read has named of this node so far; none if it began before this node joined, and
    /// says nothing about it. A name that the list has on another node is not here: the pod of that name is another.
    listed: Mutex<Option<HashSet<PodKey>>>,
    complete: watch::Sender<bool>,
    queue: Arc<WorkQueue>,
    metrics: Arc<Metrics>,
}

impl NodePods {
    fn new(node: NodeName, namespace: Option<String>, metrics: Arc<Metrics>) -> Self {
        let queue = Arc::new(WorkQueue::new(node.clone(), metrics.clone()));
        let (pods, departed, listed) = (RwLock::default(), Mutex::default(), Mutex::default());
        let complete = watch::Sender::new(false);
        Self { node, namespace, pods, departed, listed, complete, queue, metrics }
    }

    /// Whether the host is asked for pods of this namespace at all. What is never asked for is not known to be absent.
    pub(crate) fn covers(&self, key: &PodKey) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| namespace == key.namespace())
    }

    /// The pod of this name on this node.
    pub fn get(&self, key: &PodKey) -> Option<Pod> {
        self.pods.read().get(key).and_then(Packed::unpack)
    }

    /// Every pod of this node.
    pub fn all(&self) -> Vec<Pod> {
        self.pods.read().values().filter_map(Packed::unpack).collect()
    }

    /// Their names.
    pub fn keys(&self) -> Vec<PodKey> {
        self.pods.read().keys().cloned().collect()
    }

    /// Waits until the host's list has been seen in full once.
    pub async fn complete(&self) {
        let mut complete = self.complete.subscribe();
        // The sender lives in self, so waiting cannot fail.
        let _ = complete.wait_for(|complete| *complete).await;
    }

    pub(crate) fn queue(&self) -> &Arc<WorkQueue> {
        &self.queue
    }

    /// The grace period with which a pod left the host while its containers ran.
    pub(crate) fn departed(&self, key: &PodKey, uid: &str) -> Option<Duration> {
        self.departed.lock().get(key).filter(|(of, _)| **of == *uid).map(|(_, grace)| *grace)
    }

    pub(crate) fn forget_departed(&self, key: &PodKey) {
        self.departed.lock().remove(key);
    }

    fn apply(&self, pod: &Pod) {
        let packed = Packed::new(pod);
        let mut pods = self.pods.write();
        let before = pods.get(pod.key());
        match before {
            Some(before) if before.is_the_same(&packed) => return,
            Some(before) if before.wants_the_same(&packed) => self.queue.add_gently(pod.key()),
            _ => self.queue.add(pod.key()),
        }
        if let Some(before) = before {
            self.metrics.pods(&self.node, before.phase.as_str(), -1);
        }
        self.metrics.pods(&self.node, packed.phase.as_str(), 1);
        pods.insert(pod.key().clone(), packed);
    }

    fn delete(&self, pod: &Pod) {
        if let Some(deletion) = pod.deletion() {
            self.departed.lock().insert(pod.key().clone(), (pod.uid().into(), deletion.grace));
        }
        self.drop_pod(pod.key());
    }

    fn drop_pod(&self, key: &PodKey) {
        if let Some(gone) = self.pods.write().remove(key) {
            self.metrics.pods(&self.node, gone.phase.as_str(), -1);
        }
        self.queue.add(key);
    }

    fn list_begins(&self) {
        *self.listed.lock() = Some(HashSet::new());
    }

    fn list_names(&self, pod: &Pod) {
        if let Some(listed) = self.listed.lock().as_mut() {
            listed.insert(pod.key().clone());
        }
        self.apply(pod);
    }

    /// What a complete list does not name on this node is gone, whether or not anybody said so.
    fn list_ends(&self) {
        let Some(listed) = self.listed.lock().take() else { return };
        for key in self.keys().iter().filter(|key| !listed.contains(*key)) {
            self.drop_pod(key);
        }
        self.complete.send_replace(true);
    }

    fn forget(&self) {
        self.queue.close();
        for (_, gone) in self.pods.write().drain() {
            self.metrics.pods(&self.node, gone.phase.as_str(), -1);
        }
    }
}

impl fmt::Debug for NodePods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePods").field("node", &self.node).finish_non_exhaustive()
    }
}

/// A pod as the watch brings it: whole, but for the bookkeeping of server-side apply, which is often half of it.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    metadata: ObjectMeta,
    pod: Pod,
}

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut json = Value::deserialize(deserializer)?;
        if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        // The watcher itself needs only these.
        let text = |field: &str| json["metadata"][field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, pod: Pod::try_from(json).map_err(D::Error::custom)? })
    }
}

impl Resource for Watched {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;
