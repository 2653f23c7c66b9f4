//! Which clusters a pod on the fleet's node has copies in: those that the binding of its workload records.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use federlet_node::contract::{Pod, ProviderError};
use federlet_provider::{
    clusters::{REACHABLE, READY},
    fleet::{Choice, Chosen},
};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use crate::{
    api::{Cluster, ResourceBinding},
    owners::Owner,
    stamp::{DELETION_COST, Workload, ordinal, position},
    store::{Bindings, Store},
};

/// Says it from what was recorded.
pub struct Copies {
    store: Arc<Store>,
    bindings: Arc<Bindings>,
}

impl Copies {
    pub(crate) const fn new(store: Arc<Store>, bindings: Arc<Bindings>) -> Self {
        Self { store, bindings }
    }
}

impl Choice for Copies {
    fn workload(&self, pod: &Pod) -> Result<String, ProviderError> {
        let Some(workload) = Workload::of(pod.json()) else {
            let message = "only pods of workloads that a policy duplicates run on this node";
            return Err(ProviderError::rejected("NotDuplicated", message));
        };
        Ok(if workload.uid.is_empty() { pod.uid().to_owned() } else { workload.uid })
    }

    fn chosen(&self, pod: &Pod) -> Result<Chosen, ProviderError> {
        let workload = self.workload(pod)?;
        if !self.store.view().complete || !self.bindings.is_complete() {
            return Err(ProviderError::unavailable("what was decided is not read yet"));
        }
        let Some(binding) = self.bindings.get(&workload) else {
            return Err(ProviderError::unavailable("nothing was decided for its workload yet"));
        };
        let clusters = clusters(&binding, rank(pod.json(), binding.spec.first_ordinal));
        let held = held(&binding, &clusters);
        Ok(Chosen { owner: owner(&binding), clusters, held, uncounted: binding.spec.autoscaled })
    }

    fn reach(&self) -> BTreeMap<String, bool> {
        let view = self.store.view();
        view.clusters.iter().map(|(name, cluster)| (name.clone(), is_reachable(cluster))).collect()
    }

    fn resources(&self) -> BTreeSet<String> {
        let view = self.store.view();
        let summaries = view.clusters.values().filter_map(|cluster| cluster.status.as_ref());
        let amounts = summaries.filter_map(|status| status.resource_summary.as_ref());
        amounts.flat_map(|summary| summary.allocatable.keys().cloned()).collect()
    }

    fn decisions(&self) -> broadcast::Receiver<String> {
        self.bindings.decisions()
    }

    fn clusters(&self) -> watch::Receiver<u64> {
        self.store.changes()
    }
}

/// The clusters that have a copy of a pod of this rank. A cluster with fewer copies than there are pods has those of the
/// first of them. One that the workload is leaving keeps its copies as long as they are to wait for others.
fn clusters(binding: &ResourceBinding, rank: Option<u32>) -> BTreeSet<String> {
    let all = binding.spec.replicas;
    let has =
        |replicas: i32| replicas >= all || rank.is_none_or(|rank| i64::from(rank) <= i64::from(replicas));
    let targets = binding.spec.clusters.iter().filter(|target| has(target.replicas));
    let kept = binding.spec.graceful_eviction_tasks.iter().filter(|task| task.keeps_old());
    targets.map(|target| target.name.clone()).chain(kept.map(|task| task.from_cluster.clone())).collect()
}

/// Those of the clusters that get nothing for now.
fn held(binding: &ResourceBinding, clusters: &BTreeSet<String>) -> BTreeSet<String> {
    let Some(suspension) = &binding.spec.suspension else { return BTreeSet::new() };
    clusters.iter().filter(|cluster| suspension.dispatching.holds_back(cluster)).cloned().collect()
}

/// Which of the pods of its workload this is, from one; none if they have no order. One from before the first is on its
/// way out, and last.
fn rank(pod: &Value, first: i32) -> Option<u32> {
    let owner = Owner::of(pod);
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if let Some(ordinal) = ordinal(owner.as_ref(), name) {
        let before = u32::try_from(first).unwrap_or(0);
        return Some(ordinal.checked_sub(before).map_or(u32::MAX, |place| place.saturating_add(1)));
    }
    let cost = pod.pointer("/metadata/annotations")?.get(DELETION_COST)?.as_str()?.parse().ok()?;
    position(cost)
}

fn owner(binding: &ResourceBinding) -> Value {
    json!({
        "apiVersion": ResourceBinding::api_version(&()), "kind": ResourceBinding::kind(&()),
        "name": binding.name_any(), "uid": binding.uid(), "controller": true,
    })
}

fn is_reachable(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let says = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    says(REACHABLE).or_else(|| says(READY)).is_some_and(|condition| condition.status == "True")
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::tests::cluster;

    fn binding(clusters: Value) -> ResourceBinding {
        serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "web-deployment", "uid": "b1"},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "replicas": 3, "clusters": clusters},
        }))
        .unwrap()
    }

    #[test]
    fn a_cluster_with_fewer_copies_has_those_of_the_first_pods() {
        let binding = binding(json!([{"name": "a", "replicas": 3}, {"name": "b", "replicas": 1}]));
        let of = |rank| clusters(&binding, rank).into_iter().collect::<Vec<_>>();
        assert_eq!(of(None), ["a", "b"]);
        assert_eq!(of(Some(1)), ["a", "b"]);
        assert_eq!(of(Some(2)), ["a"]);
        assert_eq!(of(Some(4)), ["a"], "where all are, their order does not matter");
    }

    #[test]
    fn a_suspended_cluster_is_held() {
        let mut binding = binding(json!([{"name": "a", "replicas": 3}, {"name": "b", "replicas": 3}]));
        let all = clusters(&binding, None);
        assert!(held(&binding, &all).is_empty());
        binding.spec.suspension =
            serde_json::from_value(json!({"dispatchingOnClusters": {"clusterNames": ["b", "x"]}})).unwrap();
        assert_eq!(held(&binding, &all), ["b".to_owned()].into());
        binding.spec.suspension = serde_json::from_value(json!({"dispatching": true})).unwrap();
        assert_eq!(held(&binding, &all), all);
    }

    #[test]
    fn a_cluster_that_is_being_left_keeps_its_copies_while_they_wait() {
        for (task, kept) in [
            (json!({"purgeMode": "Gracefully"}), true),
            (json!({}), true),
            (json!({"purgeMode": "Directly"}), false),
            (json!({"purgeMode": "Never", "suppressDeletion": true}), true),
            (json!({"purgeMode": "Never", "suppressDeletion": false}), false),
        ] {
            let mut binding = binding(json!([{"name": "a", "replicas": 3}]));
            let mut whole = json!({"fromCluster": "b", "reason": "r", "producer": "p"});
            whole.as_object_mut().unwrap().extend(task.as_object().unwrap().clone());
            binding.spec.graceful_eviction_tasks = serde_json::from_value(json!([whole])).unwrap();
            assert_eq!(clusters(&binding, None).contains("b"), kept, "{task}");
        }
    }

    #[test]
    fn pods_have_a_rank_by_name_or_by_cost() {
        let from = |first: i32, name: &str, kind: &str, cost: Option<&str>| {
            let mut pod = json!({"metadata": {"name": name,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": true}]}});
            if let Some(cost) = cost {
                pod["metadata"]["annotations"] = json!({DELETION_COST: cost});
            }
            rank(&pod, first)
        };
        let pod = |name: &str, kind: &str, cost: Option<&str>| from(0, name, kind, cost);
        assert_eq!(pod("db-2", "StatefulSet", None), Some(3));
        assert_eq!(pod("web-x-2", "ReplicaSet", None), None);
        assert_eq!(pod("web-x-2", "ReplicaSet", Some("-2")), Some(2));
        assert_eq!(pod("web-x-2", "ReplicaSet", Some("5")), None, "that a person wrote");
        assert_eq!(from(100, "db-100", "StatefulSet", None), Some(1), "names may begin with any number");
        assert_eq!(from(100, "db-3", "StatefulSet", None), Some(u32::MAX));
    }

    #[test]
    fn a_cluster_is_reachable_if_it_says_so() {
        let with = |conditions: &[(&str, &str)]| {
            let mut cluster = cluster("a", json!({}), json!({}));
            let conditions: Vec<Value> = conditions
                .iter()
                .map(|(kind, status)| {
                    json!({"type": kind, "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
                })
                .collect();
            cluster.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
            is_reachable(&cluster)
        };
        assert!(with(&[("Ready", "True"), ("MemberReachable", "True")]));
        assert!(
            !with(&[("Ready", "True"), ("MemberReachable", "False")]),
            "one that keeps its pods is Ready"
        );
        assert!(with(&[("Ready", "True")]) && !with(&[]));
    }
}
