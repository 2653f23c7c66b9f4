//! Which workloads a HorizontalPodAutoscaler scales.
//!
//! It takes every pod with the labels of its workload for one of the replicas, so copies must not have them there: with
//! copies in two clusters it would count three pods for each replica, and ask for three times as many.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Api, Client, ResourceExt, runtime::watcher};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{object::Identity, watching};

/// A workload, as an autoscaler names it: namespace, group, kind and name.
type Target = (String, String, String, String);

/// What is known of autoscalers.
#[derive(Debug)]
pub(super) struct Scalers {
    /// The target of each, by its namespace and name; none before they were listed once.
    known: Mutex<Option<BTreeMap<(String, String), Target>>>,
    changes: watch::Sender<()>,
}

impl Scalers {
    pub(super) fn new() -> Self {
        Self { known: Mutex::default(), changes: watch::Sender::new(()) }
    }

    /// Whether one of them scales this workload; none if nobody knows yet.
    pub(super) fn scale(&self, workload: &Identity) -> Option<bool> {
        let wanted = (
            workload.namespace.clone(),
            group(&workload.api_version).to_owned(),
            workload.kind.clone(),
            workload.name.clone(),
        );
        Some(self.known.lock().as_ref()?.values().any(|target| *target == wanted))
    }

    /// Tells when other workloads are scaled than before.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Keeps it current until told to stop.
    pub(super) async fn run(&self, client: Client, stop: CancellationToken) {
        let api: Api<HorizontalPodAutoscaler> = Api::all(client);
        let mut relisted = BTreeMap::new();
        let key =
            |scaler: &HorizontalPodAutoscaler| (scaler.namespace().unwrap_or_default(), scaler.name_any());
        watching::follow(api, watcher::Config::default(), "autoscalers", &stop, |event| match event {
            watcher::Event::Init => relisted.clear(),
            watcher::Event::InitApply(scaler) => relisted.extend([(key(&scaler), target(&scaler))]),
            watcher::Event::InitDone => self.set(|known| known.clone_from(&relisted)),
            watcher::Event::Apply(scaler) => {
                self.set(|known| drop(known.insert(key(&scaler), target(&scaler))));
            }
            watcher::Event::Delete(scaler) => self.set(|known| drop(known.remove(&key(&scaler)))),
        })
        .await;
    }

    /// Its status changes all the time; whom it scales, hardly ever.
    fn set(&self, change: impl FnOnce(&mut BTreeMap<(String, String), Target>)) {
        let mut known = self.known.lock();
        let before = known.clone();
        change(known.get_or_insert_default());
        let targets = |all: &Option<BTreeMap<_, Target>>| {
            all.as_ref().map(|all| all.values().cloned().collect::<BTreeSet<Target>>())
        };
        if targets(&before) != targets(&known) {
            self.changes.send_replace(());
        }
    }
}

fn target(scaler: &HorizontalPodAutoscaler) -> Target {
    let of = &scaler.spec.scale_target_ref;
    let version = of.api_version.as_deref().unwrap_or_default();
    (scaler.namespace().unwrap_or_default(), group(version).to_owned(), of.kind.clone(), of.name.clone())
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scaler(name: &str, target: &str) -> HorizontalPodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
        }))
        .unwrap()
    }

    fn workload(namespace: &str, kind: &str) -> Identity {
        let metadata = json!({"namespace": namespace, "name": "web"});
        Identity::of(&json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata}))
    }

    #[test]
    fn a_workload_is_scaled_by_whoever_names_it() {
        let scalers = Scalers::new();
        assert_eq!(scalers.scale(&workload("shop", "Deployment")), None, "nobody looked yet");
        let mut changes = scalers.changes();
        let note = |scaler: &HorizontalPodAutoscaler| {
            scalers.set(|known| drop(known.insert(("shop".into(), scaler.name_any()), target(scaler))));
        };
        note(&scaler("a", "web"));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        note(&scaler("a", "web"));
        assert!(!changes.has_changed().unwrap(), "it is the same");
        assert_eq!(scalers.scale(&workload("shop", "Deployment")), Some(true));
        assert_eq!(scalers.scale(&workload("shop", "StatefulSet")), Some(false));
        assert_eq!(scalers.scale(&workload("else", "Deployment")), Some(false));
        note(&scaler("a", "api"));
        assert_eq!(scalers.scale(&workload("shop", "Deployment")), Some(false));
    }
}
