//! How a workload is in each of its clusters, and for how long it has not been well there.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use federlet_provider::clusters::{REACHABLE, READY};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::seen::{Group, SeenPod};
use crate::{api::Cluster, store::View};

/// Whoever begins to look sees what others left: nodes that are just being served again, pods that nobody reported for.
const SETTLE: Duration = Duration::from_secs(10);

/// How a workload is in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// All its pods are Ready.
    Well,
    /// One is not, and why.
    Ill(String),
}

/// How it is in the clusters of which anything can be told. A cluster that cannot be reached tells nothing, and neither
/// does a pod that its scheduler has not bound.
pub(super) fn health(pods: &[SeenPod], fleet: Option<&str>, view: &View) -> BTreeMap<String, Health> {
    let mut found: BTreeMap<String, Health> = BTreeMap::new();
    let mut note = |cluster: &str, pod: &SeenPod, well: bool| {
        if !view.clusters.get(cluster).is_some_and(|cluster| answers(cluster)) {
            return;
        }
        let health = found.entry(cluster.to_owned()).or_insert(Health::Well);
        if !well && *health == Health::Well {
            let why = pod.unready.as_deref().unwrap_or("it is not Ready");
            *health = Health::Ill(format!("pod {}: {why}", pod.name));
        }
    };
    for pod in pods.iter().filter(|pod| pod.counts() && pod.bound) {
        let Some(cluster) = pod.cluster.as_deref() else { continue };
        if fleet == Some(cluster) {
            for (cluster, well) in &pod.copies {
                if let Some(well) = well {
                    note(cluster, pod, *well);
                }
            }
        } else {
            note(cluster, pod, pod.ready);
        }
    }
    found
}

/// Whether what is known of the pods in a cluster is what they are.
fn answers(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let says = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    let holds = |kind: &str| says(kind).map(|condition| condition.status == "True");
    holds(READY) == Some(true) && holds(REACHABLE) != Some(false)
}

/// Since when workloads are ill. It is not written down: whoever places pods next begins to count anew.
pub(super) struct Illness {
    begun: Instant,
    since: Mutex<HashMap<Group, BTreeMap<String, Instant>>>,
}

impl Illness {
    pub(super) fn new(now: Instant) -> Self {
        Self { begun: now, since: Mutex::default() }
    }

    /// Takes how a workload is now. Returns for how long it has been ill, by cluster.
    pub(super) fn note(
        &self,
        group: &Group,
        health: &BTreeMap<String, Health>,
        now: Instant,
    ) -> BTreeMap<String, Duration> {
        let mut since = self.since.lock();
        let mut before = since.remove(group).unwrap_or_default();
        let first = now.max(self.begun + SETTLE);
        let ill: BTreeMap<String, Instant> = health
            .iter()
            .filter(|(_, health)| matches!(health, Health::Ill(_)))
            .map(|(cluster, _)| (cluster.clone(), before.remove(cluster).unwrap_or(first)))
            .collect();
        let times = ill
            .iter()
            .filter_map(|(cluster, since)| Some((cluster.clone(), now.checked_duration_since(*since)?)));
        let times = times.collect();
        if !ill.is_empty() {
            since.insert(group.clone(), ill);
        }
        times
    }

    /// The workload is gone.
    pub(super) fn forget(&self, group: &Group) {
        self.since.lock().remove(group);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::affinity::tests::cluster;

    fn view(clusters: &[(&str, &str, &str)]) -> View {
        let make = |(name, ready, reachable): &(&str, &str, &str)| {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let mut cluster = cluster(name, json!({}), json!({}));
            let conditions: Vec<Value> = vec![condition(READY, ready), condition(REACHABLE, reachable)];
            cluster.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
            ((*name).to_owned(), Arc::new(cluster))
        };
        View { complete: true, clusters: clusters.iter().map(make).collect(), ..View::default() }
    }

    fn pod(name: &str, node: &str, ready: bool) -> SeenPod {
        SeenPod { name: name.into(), cluster: Some(node.into()), bound: true, ready, ..SeenPod::default() }
    }

    fn ill(why: &str) -> Health {
        Health::Ill(why.into())
    }

    #[test]
    fn one_pod_that_is_not_ready_makes_its_cluster_ill() {
        let view = view(&[("a", "True", "True"), ("b", "True", "True")]);
        let mut pulls = pod("two", "a", false);
        pulls.unready = Some("ImagePullBackOff".into());
        let pods = [pod("one", "a", true), pulls, pod("three", "b", true)];
        let found = health(&pods, None, &view);
        assert_eq!(
            found,
            [("a".to_owned(), ill("pod two: ImagePullBackOff")), ("b".to_owned(), Health::Well)].into()
        );
    }

    #[test]
    fn what_nobody_can_tell_is_neither_well_nor_ill() {
        for (ready, reachable, told) in [
            ("True", "True", true),
            ("False", "True", false),
            ("True", "False", false),
            ("Unknown", "Unknown", false),
        ] {
            let found = health(&[pod("one", "a", false)], None, &view(&[("a", ready, reachable)]));
            assert_eq!(found.contains_key("a"), told, "{ready} {reachable}");
        }
        let view = view(&[("a", "True", "True")]);
        let (mut unbound, mut ending) = (pod("one", "a", false), pod("two", "a", false));
        unbound.bound = false;
        ending.deleting = true;
        assert!(health(&[unbound, ending, pod("three", "gone", false)], None, &view).is_empty());
    }

    #[test]
    fn pods_with_copies_say_how_those_are() {
        let view = view(&[("a", "True", "True"), ("b", "True", "True"), ("c", "True", "True")]);
        let mut parent = pod("one", "fleet", false);
        parent.copies = [("a", Some(true)), ("b", Some(false)), ("c", None)]
            .map(|(cluster, well)| (cluster.to_owned(), well))
            .into();
        let found = health(&[parent], Some("fleet"), &view);
        let expected = [("a".to_owned(), Health::Well), ("b".to_owned(), ill("pod one: it is not Ready"))];
        assert_eq!(found, expected.into());
    }

    #[test]
    fn time_counts_from_when_it_was_first_seen_and_ends_when_it_is_well() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let illness = Illness::new(begun);
        let group = Group { namespace: "n".into(), uid: "w".into() };
        let sick: BTreeMap<String, Health> =
            [("a".to_owned(), ill("x")), ("b".to_owned(), Health::Well)].into();
        let at = |seconds: u32, health: &BTreeMap<String, Health>| {
            illness.note(&group, health, begun + second * seconds).get("a").map(Duration::as_secs)
        };
        assert_eq!(at(1, &sick), None, "nothing is believed at once by who has just begun");
        assert_eq!((at(10, &sick), at(15, &sick)), (Some(0), Some(5)));
        let well: BTreeMap<String, Health> = [("a".to_owned(), Health::Well)].into();
        assert_eq!(at(16, &well), None);
        assert_eq!((at(20, &sick), at(21, &sick)), (Some(0), Some(1)));
        assert_eq!(at(22, &BTreeMap::new()), None, "of one that cannot be reached nothing is known");
        assert_eq!(at(23, &sick), Some(0));
        illness.forget(&group);
        assert_eq!(at(30, &sick), Some(0));
    }
}
