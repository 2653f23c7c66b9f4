mod closed;
mod copied;
mod measured;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use super::*;
use crate::{
    affinity::tests::cluster,
    claim::{Claim, PolicyKey},
    owners::Owner,
    stamp::Workload,
};

fn ready(name: &str, labels: Value) -> Arc<Cluster> {
    let mut cluster = cluster(name, labels, json!({}));
    cluster.status = serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": "True",
        "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
    .unwrap();
    Arc::new(cluster)
}

fn view(names: &[&str]) -> View {
    let clusters =
        names.iter().map(|name| ((*name).to_owned(), ready(name, json!({"name": name})))).collect();
    View { complete: true, clusters, ..View::default() }
}

fn governed(placement: Value) -> Governed {
    Governed {
        claim: Claim { policy: PolicyKey { namespace: Some("n".into()), name: "p".into() }, id: "i".into() },
        placement: serde_json::from_value(placement).unwrap(),
        scheduler: None,
        priority_class: None,
        hold: None,
        current: true,
        spec: None,
    }
}

fn web() -> Identity {
    Identity {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        namespace: "n".into(),
        name: "web".into(),
        ..Identity::default()
    }
}

fn weighted() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": [
            {"targetCluster": {"clusterNames": ["a"]}, "weight": 1},
            {"targetCluster": {"clusterNames": ["b"]}, "weight": 2}]}}})
}

fn pod(name: &str, revision: &str, cluster: Option<&str>, cost: Option<i64>) -> SeenPod {
    SeenPod {
        name: name.into(),
        uid: name.into(),
        workload: Workload { uid: "w".into(), ..Workload::default() },
        owner: Some(Owner { kind: "ReplicaSet".into(), uid: revision.into(), ..Owner::default() }),
        gate: cluster.is_none().then_some(0),
        bound: cluster.is_some(),
        cluster: cluster.map(str::to_owned),
        cost,
        ready: true,
        ..SeenPod::default()
    }
}

fn plan(placement: Value, view: &View, pods: &[SeenPod], fleet_node: Option<&str>) -> Plan {
    let governed = governed(placement);
    Situation {
        governed: &governed,
        identity: &web(),
        uid: "w",
        pods,
        view,
        binding: None,
        peers: &Peers::default(),
        fleet_node,
        leaving: &BTreeSet::new(),
        kept: &BTreeSet::new(),
        unsettled: None,
        driven: &BTreeSet::new(),
        closed: &BTreeMap::new(),
    }
    .plan()
}

#[test]
fn each_revision_is_divided_on_its_own() {
    let pods: Vec<SeenPod> =
        (0..6).map(|n| pod(&n.to_string(), if n < 3 { "old" } else { "new" }, None, None)).collect();
    let plan = plan(weighted(), &view(&["a", "b"]), &pods, None);
    assert_eq!(plan.shares, Shares::from([("a".into(), 2), ("b".into(), 4)]));
    for revision in [0..3, 3..6] {
        let here = plan.pins.iter().filter(|pin| revision.contains(&pin.pod));
        let mut found: Vec<(&str, i64)> = here.map(|pin| (pin.cluster.as_str(), pin.cost.unwrap())).collect();
        found.sort();
        assert_eq!(found.iter().filter(|(cluster, _)| *cluster == "b").count(), 2, "{found:?}");
        let mut costs: Vec<i64> = found.iter().map(|(_, cost)| *cost).collect();
        costs.sort_unstable();
        assert_eq!(costs, [-3, -2, -1]);
    }
    assert!(plan.waiting.is_none() && plan.surplus.is_empty() && plan.misfits.is_empty());
}

#[test]
fn nobody_fits_and_says_why() {
    let placement = json!({"clusterAffinity": {"labelSelector": {"matchLabels": {"name": "x"}}}});
    let plan = plan(placement, &view(&["a"]), &[pod("one", "r", None, None)], None);
    let waiting = plan.waiting.unwrap();
    assert_eq!(waiting.reason, "NoClusterFit");
    assert!(waiting.message.contains("policy n/p") && waiting.message.contains("a: its labels do not match"));
    assert!(plan.pins.is_empty());
}

#[test]
fn a_cluster_that_is_named_must_be_as_the_policy_asks() {
    let named = |label: &str| json!({"clusterAffinity": {"clusterNames": ["a"], "labelSelector": {"matchLabels": {"name": label}}}});
    let pods = [pod("one", "r", None, None), pod("two", "r", Some("a"), None)];
    let fits = plan(named("a"), &view(&["a", "b"]), &pods, Some("fleet"));
    assert_eq!(fits.pins.iter().map(|pin| (pin.pod, pin.cluster.as_str())).collect::<Vec<_>>(), [(0, "a")]);
    assert!(fits.misfits.is_empty() && !fits.copied, "one cluster needs no copies: {fits:?}");
    let misses = plan(named("x"), &view(&["a", "b"]), &pods, Some("fleet"));
    assert_eq!(misses.waiting.unwrap().reason, "NoClusterFit");
    assert_eq!((misses.pins, misses.misfits), (vec![], vec![1]));
}

#[test]
fn a_pod_of_a_daemon_set_goes_from_a_node_that_is_not_meant_any_more() {
    let daemon = |name: &str, cluster: &str| SeenPod {
        owner: Some(Owner { kind: "DaemonSet".into(), uid: "d".into(), ..Owner::default() }),
        ..pod(name, "d", Some(cluster), None)
    };
    let pods = [daemon("one", "a"), daemon("two", "b")];
    let only = |name: &str| json!({"clusterAffinity": {"clusterNames": [name]}});
    assert_eq!(plan(only("a"), &view(&["a", "b"]), &pods, Some("fleet")).misfits, [1]);
    assert_eq!(plan(only("x"), &view(&["a", "b"]), &pods, Some("fleet")).misfits, [0, 1]);
    let all = plan(json!({}), &view(&["a", "b"]), &pods, Some("fleet"));
    assert!(all.misfits.is_empty() && all.pins.is_empty(), "{all:?}");
    assert_eq!(all.shares, Shares::from([("a".into(), 1), ("b".into(), 1)]));
}

#[test]
fn a_cluster_serves_the_kind_of_a_workload_or_pods_of_what_is_copied() {
    let mut clusters = view(&["a"]);
    for cluster in clusters.clusters.values_mut() {
        let status = Arc::make_mut(cluster).status.as_mut().unwrap();
        status.api_enablements = serde_json::from_value(json!([{"groupVersion": "v1",
            "resources": [{"name": "pods", "kind": "Pod"}]}]))
        .unwrap();
    }
    let rollout = Identity { api_version: "argoproj.io/v1alpha1".into(), kind: "Rollout".into(), ..web() };
    for (identity, pins) in [(rollout, 1), (web(), 0)] {
        let plan = Situation {
            governed: &governed(weighted()),
            identity: &identity,
            uid: "w",
            pods: &[pod("one", "r", None, None)],
            view: &clusters,
            binding: None,
            peers: &Peers::default(),
            fleet_node: None,
            leaving: &BTreeSet::new(),
            kept: &BTreeSet::new(),
            unsettled: None,
            driven: &BTreeSet::new(),
            closed: &BTreeMap::new(),
        }
        .plan();
        assert_eq!(plan.pins.len(), pins, "{} {plan:?}", identity.kind);
        if let Some(waiting) = plan.waiting {
            assert!(
                waiting.message.ends_with("a: it does not serve apps/v1 Deployment"),
                "{}",
                waiting.message
            );
        }
    }
}

#[test]
fn one_that_does_not_fit_any_more_moves_and_a_cluster_that_is_gone_is_none() {
    let placement = json!({"clusterAffinity": {"clusterNames": ["b", "c"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let pods = [
        pod("one", "r", Some("a"), Some(-1)),
        pod("two", "r", Some("gone"), Some(-2)),
        pod("three", "r", Some("b"), Some(-3)),
    ];
    let plan = plan(placement, &view(&["a", "b", "c"]), &pods, None);
    assert_eq!(plan.misfits, [0, 1]);
    assert!(plan.surplus.is_empty());
}

#[test]
fn one_that_is_meant_for_a_cluster_that_is_not_there_waits_for_it() {
    let mut waiting = pod("one", "r", Some("later"), None);
    waiting.bound = false;
    let plan = plan(json!({"clusterAffinity": {"clusterNames": ["later"]}}), &view(&["a"]), &[waiting], None);
    assert!(plan.misfits.is_empty(), "the next one would be sent there as well");
    assert_eq!(plan.waiting.unwrap().reason, "NoClusterFit");
}

#[test]
fn pods_of_daemon_sets_are_not_placed() {
    let mut daemon = pod("one", "r", None, None);
    daemon.gate = None;
    daemon.owner = Some(Owner { kind: "DaemonSet".into(), ..Owner::default() });
    assert_eq!(plan(weighted(), &view(&["a", "b"]), &[daemon], None), Plan::default());
}

fn recorded(clusters: &[&str]) -> ResourceBinding {
    let clusters: Vec<Value> = clusters.iter().map(|name| json!({"name": name, "replicas": 2})).collect();
    serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}, "clusters": clusters},
    }))
    .unwrap()
}

fn replan(governed: &Governed, view: &View, pods: &[SeenPod], binding: &ResourceBinding) -> Plan {
    Situation {
        governed,
        identity: &web(),
        uid: "w",
        pods,
        view,
        binding: Some(binding),
        peers: &Peers::default(),
        fleet_node: Some("fleet"),
        leaving: &BTreeSet::new(),
        kept: &BTreeSet::new(),
        unsettled: None,
        driven: &BTreeSet::new(),
        closed: &BTreeMap::new(),
    }
    .plan()
}

#[test]
fn too_many_in_one_cluster_are_surplus_and_go_first() {
    let pods: Vec<SeenPod> = (1..=3).map(|n| pod(&n.to_string(), "r", Some("a"), Some(-n))).collect();
    let plan = plan(weighted(), &view(&["a", "b"]), &pods, None);
    assert_eq!(plan.surplus.len(), 2);
    assert!(plan.costs.iter().all(|(_, cost)| *cost < 0));
}

#[test]
fn a_cluster_that_is_not_ready_takes_nothing_new_and_keeps_what_it_has() {
    let mut view = view(&["a", "b"]);
    view.clusters.insert("b".into(), Arc::new(cluster("b", json!({}), json!({}))));
    let fresh = plan(weighted(), &view, &[pod("one", "r", None, None)], None);
    assert_eq!(fresh.pins[0].cluster, "a");
    let there =
        [pod("one", "r", Some("b"), Some(-1)), pod("two", "r", None, None), pod("three", "r", None, None)];
    assert_eq!(
        plan(weighted(), &view, &there, None).shares,
        Shares::from([("a".into(), 1), ("b".into(), 2)])
    );
}

#[test]
fn pods_that_the_host_takes_out_of_a_cluster_do_not_come_back_to_it() {
    let mut down = view(&["a", "b"]);
    down.clusters.insert("b".into(), Arc::new(cluster("b", json!({}), json!({}))));
    let mut tainted = view(&["a", "b"]);
    let mut evil = (*tainted.clusters["b"]).clone();
    evil.spec.taints = vec![Taint { key: "k".into(), effect: "NoExecute".into(), ..Taint::default() }];
    tainted.clusters.insert("b".into(), Arc::new(evil));
    let (there, fresh) = (pod("one", "r", Some("b"), Some(-1)), pod("two", "r", None, None));
    let (mut ending, mut stranded) = (there.clone(), pod("three", "r", Some("b"), Some(-3)));
    ending.deleting = true;
    stranded.bound = false;
    for clusters in [down, tainted] {
        let of = |pods: &[SeenPod]| {
            let plan = plan(weighted(), &clusters, pods, None);
            let mut pins: Vec<String> = plan.pins.iter().map(|pin| pin.cluster.clone()).collect();
            pins.sort();
            (pins, plan.misfits)
        };
        assert_eq!(
            of(&[there.clone(), fresh.clone()]),
            (vec!["a".to_owned()], vec![]),
            "its share is a third"
        );
        let several = [there.clone(), fresh.clone(), pod("four", "r", None, None)];
        assert_eq!(of(&several).0, ["a", "b"], "what is only down for a moment keeps its share");
        assert_eq!(of(&[ending.clone(), fresh.clone()]).0, ["a"]);
        assert_eq!(of(&[ending.clone(), stranded.clone(), fresh.clone()]), (vec!["a".to_owned()], vec![1]));
    }
}

#[test]
fn pods_for_a_cluster_that_gets_nothing_for_now_wait() {
    let mut held = governed(weighted());
    held.spec = serde_json::from_value(json!({"resourceSelectors": [],
        "suspension": {"dispatchingOnClusters": {"clusterNames": ["b"]}}}))
    .unwrap();
    let pods: Vec<SeenPod> = (0..3).map(|n| pod(&n.to_string(), "r", None, None)).collect();
    let plan = replan(&held, &view(&["a", "b"]), &pods, &recorded(&[]));
    assert_eq!(plan.pins.iter().map(|pin| pin.cluster.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(plan.waiting.unwrap().message, "policy n/p suspends dispatching to b");
    assert_eq!(plan.shares, Shares::from([("a".into(), 1), ("b".into(), 2)]), "it was decided all the same");
}

#[test]
fn pods_move_out_of_a_cluster_that_is_being_left_if_they_can_be_elsewhere() {
    let pods: Vec<SeenPod> = (1..=3)
        .map(|n| pod(&n.to_string(), "r", Some(if n == 1 { "a" } else { "b" }), Some(-n)))
        .chain([pod("new", "r", None, None)])
        .collect();
    let both = view(&["a", "b"]);
    let leave = |names: &[&str], kept: &[&str], view: &View| {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        Situation {
            governed: &governed(weighted()),
            identity: &web(),
            uid: "w",
            pods: &pods,
            view,
            binding: None,
            peers: &Peers::default(),
            fleet_node: None,
            leaving: &set(names),
            kept: &set(kept),
            unsettled: None,
            driven: &BTreeSet::new(),
            closed: &BTreeMap::new(),
        }
        .plan()
    };
    let left = leave(&["b"], &[], &both);
    assert_eq!((left.misfits, left.pins[0].cluster.as_str()), (vec![1, 2], "a"));
    assert!(left.surplus.is_empty());
    let kept = leave(&["b"], &["b"], &both);
    assert!(kept.misfits.is_empty() && kept.surplus.is_empty(), "{kept:?}");
    assert_eq!(kept.pins[0].cluster, "a");
    // If nobody else fits, it is as if it did not leave.
    let nowhere = leave(&["a", "b"], &[], &both);
    assert!(
        nowhere.misfits.is_empty() && nowhere.waiting.is_none() && nowhere.pins.len() == 1,
        "{nowhere:?}"
    );
}
