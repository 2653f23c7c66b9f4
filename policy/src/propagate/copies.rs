//! The copies of one kind in one member, as its API server tells of them.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
};

use federlet_provider::{marks, target::Target};
use futures::StreamExt;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::RwLock;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    job::{Job, Jobs},
    templates::{code, said},
};
use crate::{inventory::Key, object::whole, store::Kind};

/// A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

/// The copies of one kind in a member, as its API server tells of them.
#[derive(Default)]
pub(super) struct Copies {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    listed: bool,
    objects: HashMap<(String, String), Arc<Value>>,
    trouble: Option<Trouble>,
}

/// Why the copies in a member are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) code: Option<u16>,
    pub(super) message: String,
}

/// What is known of a copy.
#[derive(Clone, Debug)]
pub(super) enum There {
    /// Nothing is known yet.
    Unknown,
    /// Nobody can tell.
    Trouble(Trouble),
    /// This copy of ours, or none.
    Known(Option<Arc<Value>>),
}

impl Copies {
    /// The host's names of all of them, as far as they are known.
    pub(super) fn keys(&self, kind: &Kind, target: &Target) -> Vec<Key> {
        self.state.read().objects.values().filter_map(|copy| host_key(copy, kind, target)).collect()
    }

    /// Whether the member does not serve the kind, as far as it said.
    pub(super) fn are_not_served(&self) -> bool {
        self.state.read().trouble.as_ref().is_some_and(|trouble| trouble.code == Some(404))
    }

    /// What is known of the copy of an object of the host.
    pub(super) fn find(&self, key: &Key, target: &Target) -> There {
        let state = self.state.read();
        if let Some(trouble) = &state.trouble {
            return There::Trouble(trouble.clone());
        }
        if !state.listed {
            return There::Unknown;
        }
        let Some(place) = member_place(key, target) else { return There::Known(None) };
        There::Known(state.objects.get(&place).cloned())
    }

    /// Remembers what was just written, before the watch says so.
    pub(super) fn put(&self, copy: Value) {
        let place = place(&copy);
        self.state.write().objects.insert(place, Arc::new(copy));
    }

    /// The copy was just taken away.
    pub(super) fn forget(&self, copy: &Value) {
        self.state.write().objects.remove(&place(copy));
    }
}

/// Keeps the copies of one kind in one member current.
pub(super) struct Follow {
    pub(super) copies: Arc<Copies>,
    pub(super) cluster: Arc<str>,
    pub(super) resource: ApiResource,
    pub(super) target: Arc<Target>,
    pub(super) jobs: Jobs,
}

impl Follow {
    pub(super) async fn run(&self, client: Client, stop: CancellationToken) {
        let target = &self.target;
        let ours =
            format!("{}={},{}={},{}", marks::HOST, target.host, marks::NODE, target.node, marks::PROPAGATED);
        let api: Api<DynamicObject> = Api::all_with(client, &self.resource);
        let config = watcher::Config::default().labels(&ours).timeout(WATCH_SECONDS);
        let mut events = pin!(watcher(api, config).default_backoff());
        let kind = (self.resource.api_version.clone(), self.resource.kind.clone());
        let mut relisted: HashSet<(String, String)> = HashSet::new();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            let mut state = self.copies.state.write();
            match event {
                Some(Ok(watcher::Event::Init)) => relisted.clear(),
                Some(Ok(watcher::Event::InitApply(object))) => {
                    let copy = whole(&self.resource, object);
                    relisted.insert(place(&copy));
                    state.objects.insert(place(&copy), Arc::new(copy));
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    state.objects.retain(|place, _| relisted.contains(place));
                    (state.listed, state.trouble) = (true, None);
                    drop(state);
                    self.jobs.look_at_kind(kind.clone());
                }
                Some(Ok(watcher::Event::Apply(object))) => {
                    let copy = whole(&self.resource, object);
                    state.trouble = None;
                    // What we wrote since is not undone by older news.
                    if state.objects.get(&place(&copy)).is_some_and(|known| is_newer(known, &copy)) {
                        continue;
                    }
                    state.objects.insert(place(&copy), Arc::new(copy.clone()));
                    drop(state);
                    self.changed(&copy, &kind);
                }
                Some(Ok(watcher::Event::Delete(object))) => {
                    let copy = whole(&self.resource, object);
                    state.objects.remove(&place(&copy));
                    drop(state);
                    self.changed(&copy, &kind);
                }
                Some(Err(error)) => {
                    let trouble = Trouble { code: code(&error), message: said(&error) };
                    let news = state.trouble.as_ref() != Some(&trouble);
                    // What a member said before it fell silent still holds; what it refuses to say does not.
                    if !state.listed || trouble.code.is_some() {
                        state.trouble = Some(trouble);
                    }
                    drop(state);
                    if news {
                        tracing::debug!(cluster = &*self.cluster, kind = kind.1, %error, "watching copies failed, trying again");
                        self.jobs.look_at_kind(kind.clone());
                    }
                }
                None => return,
            }
        }
    }

    fn changed(&self, copy: &Value, kind: &Kind) {
        if let Some(key) = host_key(copy, kind, &self.target) {
            self.jobs.soon(Job::Send(Arc::new(key), self.cluster.clone()));
        }
    }
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn place(copy: &Value) -> (String, String) {
    (text(copy, "/metadata/namespace").to_owned(), text(copy, "/metadata/name").to_owned())
}

/// Whether one is a later form of the same object. Versions of one kind can be compared.
fn is_newer(one: &Value, than: &Value) -> bool {
    let version = |copy: &Value| text(copy, "/metadata/resourceVersion").parse::<u64>().unwrap_or(0);
    text(one, "/metadata/uid") == text(than, "/metadata/uid") && version(one) > version(than)
}

/// Whether a kind is that of namespaces, whose names are where others have their namespace.
pub(super) fn is_namespace(kind: &Kind) -> bool {
    kind.0 == "v1" && kind.1 == "Namespace"
}

/// Where the copy of an object of the host is: namespace and name.
fn member_place(key: &Key, target: &Target) -> Option<(String, String)> {
    let kind = (key.api_version.clone(), key.kind.clone());
    let mapped = |host: &str| Some(target.namespaces.map(host).ok()?.as_str().to_owned());
    if is_namespace(&kind) {
        return Some((String::new(), mapped(&key.name)?));
    }
    let namespace = if key.namespace.is_empty() { String::new() } else { mapped(&key.namespace)? };
    Some((namespace, key.name.clone()))
}

/// The object of the host that a copy was made from; none if it says something that cannot be.
pub(super) fn host_key(copy: &Value, kind: &Kind, target: &Target) -> Option<Key> {
    let annotations = copy.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    let (namespace, name) = place(copy);
    let back = |member: &str| target.namespaces.host_namespace(member, annotations);
    let (namespace, name) = if is_namespace(kind) {
        (String::new(), back(&name)?)
    } else if namespace.is_empty() {
        (namespace, name)
    } else {
        (back(&namespace)?, name)
    };
    Some(Key { api_version: kind.0.clone(), kind: kind.1.clone(), namespace, name })
}

#[cfg(test)]
mod tests {
    use federlet_provider::{
        names::{HostId, MemberName, NamespaceMap},
        target::ApiAccess,
        version::Version,
    };

    use serde_json::json;

    use super::*;

    fn target(namespaces: NamespaceMap) -> Target {
        let (host, node) = (HostId::new("h").unwrap(), MemberName::new("m").unwrap());
        Target { namespaces, ..Target::new(host, node, Version::v1(35), ApiAccess::None) }
    }

    #[test]
    fn older_news_of_the_same_object_is_no_news() {
        let copy = |uid: &str, version: &str| json!({"metadata": {"uid": uid, "resourceVersion": version}});
        for (known, told, expected) in [
            (("a", "10"), ("a", "9"), true),
            (("a", "10"), ("a", "10"), false),
            (("a", "10"), ("a", "11"), false),
            (("a", "10"), ("b", "9"), false),
        ] {
            assert_eq!(
                is_newer(&copy(known.0, known.1), &copy(told.0, told.1)),
                expected,
                "{known:?} {told:?}"
            );
        }
    }

    #[test]
    fn a_copy_leads_back_to_what_it_was_made_from() {
        for (map, kind, namespace, name, place) in [
            (NamespaceMap::same(), "ConfigMap", "shop", "c", ("shop", "c")),
            (NamespaceMap::suffix("-ke").unwrap(), "ConfigMap", "shop", "c", ("shop-ke", "c")),
            (NamespaceMap::suffix("-ke").unwrap(), "Namespace", "", "shop", ("", "shop-ke")),
            (NamespaceMap::suffix("-ke").unwrap(), "ClusterThing", "", "c", ("", "c")),
        ] {
            let target = target(map);
            let key = Key {
                api_version: "v1".into(),
                kind: kind.into(),
                namespace: namespace.into(),
                name: name.into(),
            };
            let there = member_place(&key, &target).unwrap();
            assert_eq!((there.0.as_str(), there.1.as_str()), place);
            let host = if kind == "Namespace" { name } else { namespace };
            let copy = json!({"metadata": {"namespace": there.0, "name": there.1, "annotations": {marks::HOST_NAMESPACE: host}}});
            assert_eq!(host_key(&copy, &("v1".into(), kind.into()), &target), Some(key));
        }
        // Somebody in the member wrote a name that does not lead here.
        let copy = json!({"metadata": {"namespace": "shop-ke", "name": "c", "annotations": {marks::HOST_NAMESPACE: "other"}}});
        let target = target(NamespaceMap::suffix("-ke").unwrap());
        assert_eq!(host_key(&copy, &("v1".into(), "ConfigMap".into()), &target), None);
    }
}
