//! The taints of the nodes of clusters: what drives pods out, whoever put it there.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use kube::{Api, Client, ResourceExt, runtime::watcher};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    tainted::{Departure, Tainted},
    watching,
};

/// What is known of them.
#[derive(Debug)]
pub(super) struct Nodes {
    known: Mutex<Known>,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// The taints of each node that drive pods out.
    taints: BTreeMap<String, Vec<Taint>>,
    since: Tainted,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self { known: Mutex::default(), changes: watch::Sender::new(()) }
    }

    /// The clusters that pods which tolerate this have to leave.
    pub(super) fn departure(&self, tolerations: &[Toleration], now: Timestamp) -> Departure {
        let known = self.known.lock();
        known.since.departure(places(&known.taints), tolerations, now)
    }

    /// Tells when taints came or went.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Keeps it current until told to stop.
    pub(super) async fn run(&self, client: Client, stop: CancellationToken) {
        let api: Api<Node> = Api::all(client);
        let config = watcher::Config::default().labels("type=virtual-kubelet");
        let mut relisted = BTreeMap::new();
        watching::follow(api, config, "nodes of clusters", &stop, |event| match event {
            watcher::Event::Init => relisted.clear(),
            watcher::Event::InitApply(node) => relisted.extend([(node.name_any(), driving_out(&node))]),
            watcher::Event::InitDone => self.set(|known| known.clone_from(&relisted)),
            watcher::Event::Apply(node) => {
                self.set(|known| drop(known.insert(node.name_any(), driving_out(&node))));
            }
            watcher::Event::Delete(node) => self.set(|known| drop(known.remove(&node.name_any()))),
        })
        .await;
    }

    fn set(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<Taint>>)) {
        let mut known = self.known.lock();
        let before = known.taints.clone();
        change(&mut known.taints);
        if before != known.taints {
            let Known { taints, since } = &mut *known;
            since.note(places(taints), Timestamp::now());
            self.changes.send_replace(());
        }
    }
}

fn places(taints: &BTreeMap<String, Vec<Taint>>) -> impl Iterator<Item = (&str, &[Taint])> {
    taints.iter().map(|(name, taints)| (name.as_str(), taints.as_slice()))
}

fn driving_out(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn taints_that_drive_out_are_known_by_cluster() {
        let nodes = Nodes::new();
        let changes = nodes.changes();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "m1"}, "spec": {"taints": [
            {"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"}, {"key": "down", "effect": "NoExecute"}]}}))
        .unwrap();
        nodes.set(|known| drop(known.insert("m1".into(), driving_out(&node))));
        assert!(changes.has_changed().unwrap());
        let tolerates: Vec<Toleration> =
            serde_json::from_value(json!([{"key": "down", "operator": "Exists"}])).unwrap();
        let now = Timestamp::now();
        assert_eq!(nodes.departure(&tolerates, now), Departure::default());
        assert!(nodes.departure(&[], now).due.contains("m1"));
    }
}
