//! Namespaces that a policy covers get a label, by which the host knows to ask us about their pods.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use federlet_provider::errors::brief;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
    runtime::watcher,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    matching::Reserved,
    object::Identity,
    propagate::kinds::may_have_pods,
    stamp::COVERED,
    store::{Bindings, Store, View},
    watching,
};

/// How often it is looked at, whether or not anything changed.
const EVERY: Duration = Duration::from_secs(30);

/// Keeps the labels.
pub(super) struct Cover {
    client: Client,
    watch: Client,
    store: Arc<Store>,
    bindings: Arc<Bindings>,
    pub(super) own: &'static str,
    /// Each namespace, and whether it has the label.
    namespaces: Mutex<HashMap<String, bool>>,
    changed: Notify,
}

impl Cover {
    pub(super) fn new(
        client: &Client,
        watch: &Client,
        store: &Arc<Store>,
        bindings: &Arc<Bindings>,
        own: &'static str,
    ) -> Self {
        Self {
            client: client.clone(),
            watch: watch.clone(),
            store: store.clone(),
            bindings: bindings.clone(),
            own,
            namespaces: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// The namespaces of the host.
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        self.namespaces.lock().keys().cloned().collect()
    }

    pub(super) async fn run(&self, stop: CancellationToken) {
        tokio::join!(self.follow(&stop), self.keep(&stop));
    }

    async fn follow(&self, stop: &CancellationToken) {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(self.watch.clone());
        let (label, value) = COVERED;
        let mut relisted = HashMap::new();
        let read = |object: &PartialObjectMeta<Namespace>| {
            let labels = object.metadata.labels.as_ref();
            let covered = labels.and_then(|labels| labels.get(label)).is_some_and(|there| there == value);
            (object.metadata.name.clone().unwrap_or_default(), covered)
        };
        watching::follow(api, watcher::Config::default(), "namespaces", stop, |event| {
            match event {
                watcher::Event::Init => relisted.clear(),
                watcher::Event::InitApply(object) => relisted.extend([read(&object)]),
                watcher::Event::InitDone => self.namespaces.lock().clone_from(&relisted),
                watcher::Event::Apply(object) => self.namespaces.lock().extend([read(&object)]),
                watcher::Event::Delete(object) => drop(self.namespaces.lock().remove(&read(&object).0)),
            }
            self.changed.notify_one();
        })
        .await;
    }

    async fn keep(&self, stop: &CancellationToken) {
        let mut changes = self.store.changes();
        loop {
            self.look().await;
            tokio::select! {
                () = stop.cancelled() => return,
                _ = changes.changed() => {}
                () = self.changed.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    async fn look(&self) {
        let namespaces = self.namespaces.lock().clone();
        let wanted = covered(&self.store.view(), namespaces.keys(), self.bindings.namespaces(), self.own);
        let api: Api<Namespace> = Api::all(self.client.clone());
        let (label, value) = COVERED;
        for (name, has) in namespaces.iter().filter(|(name, has)| wanted.contains(*name) != **has) {
            let new = if *has { None } else { Some(value) };
            let patch = json!({ "metadata": { "labels": { label: new } } });
            match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => {
                    tracing::info!(
                        namespace = name,
                        covered = !has,
                        "policies cover a namespace, or do not any more"
                    );
                    self.namespaces.lock().insert(name.clone(), !has);
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    tracing::warn!(namespace = name, error = brief(&error), "cannot label a namespace");
                    // The next look tries again.
                }
            }
        }
    }
}

/// The namespaces in which some policy may select something, or has.
pub(super) fn covered<'a>(
    view: &View,
    all: impl Iterator<Item = &'a String>,
    decided: impl IntoIterator<Item = String>,
    own: &str,
) -> BTreeSet<String> {
    let reserved = Reserved::default();
    let mut named: BTreeSet<String> = decided.into_iter().collect();
    let mut everywhere = false;
    for policy in view.propagation.iter().filter(|policy| !policy.deleting) {
        let selectors = policy.spec.resource_selectors.iter();
        let mut selectors = selectors.filter(|one| may_have_pods(&one.api_version, &one.kind)).peekable();
        match &policy.namespace {
            Some(namespace) => named.extend(selectors.peek().map(|_| namespace.clone())),
            None => {
                for selector in selectors {
                    everywhere |= selector.namespace.is_empty();
                    named.extend(Some(selector.namespace.clone()).filter(|name| !name.is_empty()));
                }
            }
        }
    }
    let held = |name: &str| {
        let object = Identity { namespace: name.to_owned(), ..Identity::default() };
        name == own || reserved.holds(&object)
    };
    all.filter(|name| (everywhere || named.contains(*name)) && !held(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::{ClusterPropagationPolicy, PropagationPolicy},
        store::Propagation,
    };

    fn policy(namespace: Option<&str>, selected: &str) -> Arc<Propagation> {
        let object = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": selected}]}});
        let read = |object: Value| -> Propagation {
            match namespace {
                Some(_) => serde_json::from_value::<PropagationPolicy>(object).unwrap().into(),
                None => {
                    let mut object = object;
                    object["kind"] = "ClusterPropagationPolicy".into();
                    serde_json::from_value::<ClusterPropagationPolicy>(object).unwrap().into()
                }
            }
        };
        Arc::new(read(object))
    }

    #[test]
    fn only_where_a_policy_is() {
        let all = ["a", "b", "c", "kube-system", "federlet-system"].map(str::to_owned);
        let found = |policies: Vec<Arc<Propagation>>, decided: &[&str]| {
            let view = View { propagation: policies, ..View::default() };
            let decided = decided.iter().map(|name| (*name).to_owned());
            covered(&view, all.iter(), decided, "federlet-system").into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(vec![], &[]), "");
        assert_eq!(found(vec![policy(Some("a"), "")], &[]), "a");
        assert_eq!(found(vec![policy(None, "b")], &["c", "gone"]), "b c");
        assert_eq!(found(vec![policy(None, "")], &[]), "a b c");
        assert_eq!(found(vec![policy(None, "kube-system")], &[]), "");
        // Where only objects without pods are selected, pods are not our business.
        let mut objects = Propagation::clone(&policy(None, ""));
        objects.spec.resource_selectors[0].api_version = "rbac.authorization.k8s.io/v1".into();
        assert_eq!(found(vec![Arc::new(objects)], &[]), "");
    }
}
