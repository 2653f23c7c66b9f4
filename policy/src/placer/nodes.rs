//! The taints of the nodes of clusters: what drives pods out or keeps them out, whoever put it there.

use std::collections::BTreeMap;

use federlet_provider::target::TAINT;
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

/// The taint of a node that is cordoned.
pub(super) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// What is known of them.
#[derive(Debug)]
pub(super) struct Nodes {
    known: Mutex<Known>,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<String, Standing>,
    since: Tainted,
}

/// What a node has against pods.
#[derive(Clone, Debug, Default, PartialEq)]
struct Standing {
    /// The taints that drive pods out.
    drives_out: Vec<Taint>,
    /// What people put on it that keeps new pods out, a cordon among them.
    keeps_out: Vec<Taint>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self { known: Mutex::default(), changes: watch::Sender::new(()) }
    }

    /// The clusters that pods which tolerate this have to leave.
    pub(super) fn departure(&self, tolerations: &[Toleration], now: Timestamp) -> Departure {
        let known = self.known.lock();
        known.since.departure(places(&known.nodes), tolerations, now)
    }

    /// The clusters from which taints that people put there drive pods that tolerate this.
    pub(super) fn driven(&self, tolerations: &[Toleration], now: Timestamp) -> Departure {
        let known = self.known.lock();
        let nodes = known.nodes.iter().map(|(name, node)| (name.as_str(), node.keeps_out.as_slice()));
        known.since.departure(nodes, tolerations, now)
    }

    /// What keeps new pods out of each cluster whose node has something of the kind.
    pub(super) fn keeping_out(&self) -> BTreeMap<String, Vec<Taint>> {
        let known = self.known.lock();
        let closed = known.nodes.iter().filter(|(_, node)| !node.keeps_out.is_empty());
        closed.map(|(name, node)| (name.clone(), node.keeps_out.clone())).collect()
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
            watcher::Event::InitApply(node) => relisted.extend([(node.name_any(), Standing::of(&node))]),
            watcher::Event::InitDone => self.set(|known| known.clone_from(&relisted)),
            watcher::Event::Apply(node) => {
                self.set(|known| drop(known.insert(node.name_any(), Standing::of(&node))));
            }
            watcher::Event::Delete(node) => self.set(|known| drop(known.remove(&node.name_any()))),
        })
        .await;
    }

    fn set(&self, change: impl FnOnce(&mut BTreeMap<String, Standing>)) {
        let mut known = self.known.lock();
        let before = known.nodes.clone();
        change(&mut known.nodes);
        if before != known.nodes {
            let Known { nodes, since } = &mut *known;
            since.note(places(nodes), Timestamp::now());
            self.changes.send_replace(());
        }
    }
}

fn places(nodes: &BTreeMap<String, Standing>) -> impl Iterator<Item = (&str, &[Taint])> {
    nodes.iter().map(|(name, node)| (name.as_str(), node.drives_out.as_slice()))
}

impl Standing {
    fn of(node: &Node) -> Self {
        let taints = || node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let drives_out = taints().filter(|taint| taint.effect == "NoExecute").cloned().collect();
        let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        // As the host's scheduler sees a cordon, before its taint is there, too.
        let cordon = cordoned.then(|| Taint {
            key: UNSCHEDULABLE.into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
        let keeps_out = taints().filter(|taint| is_by_people(taint)).cloned().chain(cordon).collect();
        Self { drives_out, keeps_out }
    }
}

/// Whether a taint is there because somebody wants new pods elsewhere. How the node is, the host says by taints of its
/// own, and what follows from that goes by whether the cluster is Ready; ours are on every node of the kind.
fn is_by_people(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
        && taint.key != TAINT
        && !["node.kubernetes.io/", "federlet.io/"].iter().any(|prefix| taint.key.starts_with(prefix))
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
        nodes.set(|known| drop(known.insert("m1".into(), Standing::of(&node))));
        assert!(changes.has_changed().unwrap());
        let tolerates: Vec<Toleration> =
            serde_json::from_value(json!([{"key": "down", "operator": "Exists"}])).unwrap();
        let now = Timestamp::now();
        assert_eq!(nodes.departure(&tolerates, now), Departure::default());
        assert!(nodes.departure(&[], now).due.contains("m1"));
    }

    #[test]
    fn what_people_put_on_a_node_keeps_pods_out() {
        let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"});
        let ours = json!({"key": "virtual-kubelet.io/provider", "value": "federlet", "effect": "NoSchedule"});
        let away = json!({"key": "federlet.io/member-unreachable", "effect": "NoSchedule"});
        let cordon = json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"});
        let taint = |effect: &str| json!({"key": "work", "effect": effect});
        for (spec, expected) in [
            (json!({}), vec![]),
            (json!({"taints": [not_ready, ours, away]}), vec![]),
            (json!({"taints": [taint("PreferNoSchedule")]}), vec![]),
            (json!({"unschedulable": true}), vec![UNSCHEDULABLE]),
            (json!({"unschedulable": true, "taints": [cordon]}), vec![UNSCHEDULABLE]),
            (json!({"taints": [taint("NoSchedule")]}), vec!["work"]),
            (json!({"taints": [taint("NoExecute")]}), vec!["work"]),
        ] {
            let nodes = Nodes::new();
            let changes = nodes.changes();
            let node: Node =
                serde_json::from_value(json!({"metadata": {"name": "m1"}, "spec": spec})).unwrap();
            nodes.set(|known| drop(known.insert("m1".into(), Standing::of(&node))));
            let found = nodes.keeping_out();
            let keys: Vec<&str> = found.values().flatten().map(|taint| taint.key.as_str()).collect();
            assert_eq!(keys, expected, "{spec}");
            let driven = nodes.driven(&[], Timestamp::now()).due;
            assert_eq!(!driven.is_empty(), spec["taints"][0] == taint("NoExecute"), "{spec}");
            assert!(changes.has_changed().unwrap());
        }
    }
}
