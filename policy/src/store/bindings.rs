//! What was decided before, as the host remembers it.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use kube::{Api, Client, Resource, ResourceExt, runtime::watcher};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{ClusterResourceBinding, ResourceBinding},
    digest,
    object::Identity,
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
    wished: broadcast::Sender<(String, String)>,
    names: Mutex<Names>,
}

/// Whose the names of bindings are, by namespace and name. Objects of two groups may have the same kind and name.
type Names = HashMap<(String, String), (String, String, String)>;

impl Default for Bindings {
    fn default() -> Self {
        let (known, listed, changed) =
            (RwLock::default(), watch::Sender::default(), watch::Sender::default());
        let (decided, wished) = (broadcast::Sender::new(BACKLOG), broadcast::Sender::new(BACKLOG));
        Self { known, listed, changed, decided, wished, names: Mutex::default() }
    }
}

impl Bindings {
    /// The binding of a workload.
    pub fn get(&self, uid: &str) -> Option<Arc<ResourceBinding>> {
        self.known.read().get(uid).cloned()
    }

    /// The name for the binding of an object: that of the one it has, else as Karmada makes it, unless something else of
    /// that name and kind has it.
    pub(crate) fn name_for(&self, object: &Identity, uid: &str) -> String {
        if let Some(there) = self.get(uid) {
            return there.name_any();
        }
        let plain = format!("{}-{}", object.name, object.kind).to_lowercase().replace(':', ".");
        let whose = (object.group().to_owned(), object.kind.clone(), object.name.clone());
        let mut names = self.names.lock();
        // Whoever asks first has it, before the host says so: the next one may ask at the same moment.
        let first = names.entry((object.namespace.clone(), plain.clone())).or_insert_with(|| whose.clone());
        if *first == whose {
            return plain;
        }
        let (group, kind, name) = whose;
        format!("{plain}-{:08x}", digest::short(&format!("{group}/{kind}/{name}")))
    }

    /// Takes what a watch says, or the answer to a write.
    pub fn note(&self, binding: ResourceBinding) {
        if let Some(workload) = self.take(binding) {
            let _ = self.wished.send(workload);
        }
    }

    /// Remembers what the placer just wrote, before the watch says so. It is no news to the placer.
    pub(crate) fn wrote(&self, binding: ResourceBinding) {
        self.take(binding);
    }

    /// The namespace and the UID of the workload, if something else is decided for it than was.
    fn take(&self, binding: ResourceBinding) -> Option<(String, String)> {
        let workload = binding.spec.resource.uid.clone();
        let namespace = binding.namespace().unwrap_or_default();
        self.names.lock().insert(name(&binding), whose(&binding));
        let binding = Arc::new(binding);
        {
            let mut known = self.known.write();
            let before = known.get(&workload).filter(|before| before.uid() == binding.uid());
            // A watch may be behind what was written since.
            if before.is_some_and(|before| version(before) > version(&binding)) {
                return None;
            }
            let same = before.is_some_and(|before| before.spec == binding.spec);
            known.insert(workload.clone(), binding);
            if same {
                return None;
            }
        }
        self.changed.send_modify(|count| *count += 1);
        let _ = self.decided.send(workload.clone());
        Some((namespace, workload))
    }

    /// What is not there any more was no wish of the placer.
    fn forget(&self, workload: String, binding: &ResourceBinding) {
        let mut names = self.names.lock();
        if names.get(&name(binding)) == Some(&whose(binding)) {
            names.remove(&name(binding));
        }
        drop(names);
        self.changed.send_modify(|count| *count += 1);
        let _ = self.wished.send((binding.namespace().unwrap_or_default(), workload));
    }

    /// Counts changes of what was decided.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The UIDs of workloads for which something else was decided, from now on.
    pub fn decisions(&self) -> broadcast::Receiver<String> {
        self.decided.subscribe()
    }

    /// The namespaces and UIDs of workloads about whose bindings somebody else than the placer said something, from
    /// now on.
    pub(crate) fn wishes(&self) -> broadcast::Receiver<(String, String)> {
        self.wished.subscribe()
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
                let gone: Vec<_> = self.known.write().extract_if(|uid, _| !relisted.contains(uid)).collect();
                gone.into_iter().for_each(|(uid, binding)| self.forget(uid, &binding));
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
                    self.forget(binding.spec.resource.uid.clone(), &binding);
                }
            }
        })
        .await;
    }
}

fn name(binding: &ResourceBinding) -> (String, String) {
    (binding.namespace().unwrap_or_default(), binding.name_any())
}

fn whose(binding: &ResourceBinding) -> (String, String, String) {
    let reference = &binding.spec.resource;
    let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), reference.kind.clone(), reference.name.clone())
}

/// Resource versions of one kind can be compared.
fn version(binding: &ResourceBinding) -> u64 {
    binding.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Lets a write change only the binding that was seen. People write into bindings as well, and we send all that we saw.
pub(crate) fn only_onto(applied: &mut Value, before: Option<&ResourceBinding>) {
    if let Some(version) = before.and_then(ResourceExt::resource_version) {
        applied["metadata"]["resourceVersion"] = version.into();
    }
}

/// Whether a write failed because something was written since.
pub(crate) fn changed_since(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(version: &str, suspended: bool) -> ResourceBinding {
        serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"namespace": "n", "name": "web-deployment", "uid": "b", "resourceVersion": version},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "w"},
                "suspension": {"scheduling": suspended}},
        }))
        .unwrap()
    }

    #[test]
    fn the_placer_hears_of_what_others_write_and_not_of_what_it_wrote_itself() {
        let bindings = Bindings::default();
        let (mut wishes, mut decisions) = (bindings.wishes(), bindings.decisions());
        bindings.wrote(binding("1", false));
        bindings.note(binding("1", false));
        assert!(wishes.try_recv().is_err(), "its own write, and the watch that repeats it");
        assert_eq!(decisions.try_recv().unwrap(), "w");
        bindings.note(binding("2", true));
        assert_eq!(wishes.try_recv().unwrap(), ("n".to_owned(), "w".to_owned()));
        // The placer answers it, and the watch is behind.
        bindings.wrote(binding("4", false));
        bindings.note(binding("3", true));
        assert!(wishes.try_recv().is_err());
        assert_eq!(bindings.get("w").unwrap().resource_version().as_deref(), Some("4"));
        bindings.forget("w".into(), &binding("4", false));
        assert!(wishes.try_recv().is_ok(), "one that is taken away is written anew");
    }

    #[test]
    fn a_binding_is_named_as_karmada_names_it_unless_another_object_has_the_name() {
        let object = |api_version: &str, kind: &str, name: &str| Identity {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: "n".into(),
            name: name.into(),
            ..Identity::default()
        };
        let bindings = Bindings::default();
        let (core, knative) =
            (object("v1", "Service", "web"), object("serving.knative.dev/v1", "Service", "web"));
        assert_eq!(bindings.name_for(&core, "1"), "web-service");
        let other = bindings.name_for(&knative, "2");
        assert!(other.starts_with("web-service-") && other.len() == "web-service-".len() + 8, "{other}");
        assert_eq!(bindings.name_for(&core, "1"), "web-service", "whoever had it keeps it");
        assert_eq!(bindings.name_for(&knative, "2"), other);
        // Other versions of a group are the same objects.
        assert_eq!(bindings.name_for(&object("apps/v1", "Deployment", "web"), "w"), "web-deployment");
        assert_eq!(bindings.name_for(&object("apps/v1beta1", "Deployment", "web"), "w"), "web-deployment");
        // Names that are written alike are not the same.
        assert_eq!(bindings.name_for(&object("a/v1", "Role", "x:y"), "3"), "x.y-role");
        assert_ne!(bindings.name_for(&object("a/v1", "Role", "x.y"), "4"), "x.y-role");
        // One that somebody else made keeps its name, and what goes gives it back.
        let mut named = binding("1", false);
        named.metadata.name = Some("mine".into());
        bindings.note(named);
        assert_eq!(bindings.name_for(&object("apps/v1", "Deployment", "web"), "w"), "mine");
        let mut gone = binding("1", false);
        gone.metadata.name = Some("web-service".into());
        gone.spec.resource.api_version = "v1".into();
        gone.spec.resource.kind = "Service".into();
        bindings.forget("1".into(), &gone);
        assert_eq!(bindings.name_for(&knative, "2"), "web-service");
    }
}
