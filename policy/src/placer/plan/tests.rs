use std::sync::Arc;

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

#[test]
fn copies_need_the_fleet_node_unless_there_is_one_cluster() {
    let pods = [pod("one", "r", None, None)];
    let several = plan(json!({}), &view(&["a", "b"]), &pods, None);
    assert_eq!(several.waiting.unwrap().reason, "NoFleetNode");
    let fleet = plan(json!({}), &view(&["a", "b"]), &pods, Some("fleet"));
    assert_eq!(fleet.pins, [Pin { pod: 0, cluster: "fleet".into(), cost: None }]);
    assert_eq!(fleet.shares, Shares::from([("a".into(), 1), ("b".into(), 1)]));
    // Another cluster may come, and then it gets its copies without anything being moved.
    let one = plan(json!({}), &view(&["a"]), &pods, Some("fleet"));
    assert_eq!((one.pins[0].cluster.as_str(), one.shares), ("fleet", Shares::from([("a".into(), 1)])));
    let single = plan(json!({}), &view(&["a"]), &pods, None);
    assert_eq!(single.pins, [Pin { pod: 0, cluster: "a".into(), cost: Some(-1) }]);
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
    }
    .plan()
}

#[test]
fn copies_follow_the_clusters_and_their_pods_stay() {
    let pods = [pod("one", "r", Some("fleet"), None), pod("two", "r", Some("fleet"), None)];
    let shares = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 2)).collect::<Shares>();
    let everywhere = governed(json!({}));
    let joined = replan(&everywhere, &view(&["a", "b", "c"]), &pods, &recorded(&["a", "b"]));
    assert_eq!((joined.shares, joined.misfits.len(), joined.pins.len()), (shares(&["a", "b", "c"]), 0, 0));
    let left = replan(&everywhere, &view(&["a"]), &pods, &recorded(&["a", "b"]));
    assert_eq!((left.shares, left.misfits.len()), (shares(&["a"]), 0));
    // One that is not ready keeps its copies, and gets no new ones.
    let mut down = view(&["a", "b"]);
    down.clusters.insert("b".into(), Arc::new(cluster("b", json!({}), json!({}))));
    assert_eq!(replan(&everywhere, &down, &pods, &recorded(&["a", "b"])).shares, shares(&["a", "b"]));
    assert_eq!(replan(&everywhere, &down, &pods, &recorded(&["a"])).shares, shares(&["a"]));
    // While a policy is held nothing changes; when nobody fits, nobody has copies.
    let mut held = governed(json!({}));
    held.hold = Some(crate::govern::Hold::Suspended(held.claim.policy.clone()));
    assert_eq!(replan(&held, &view(&["a", "b", "c"]), &pods, &recorded(&["a"])).shares, shares(&["a"]));
    let nowhere = governed(json!({"clusterAffinity": {"clusterNames": ["x", "y"]}}));
    let none = replan(&nowhere, &view(&["a"]), &pods, &recorded(&["a"]));
    assert!(none.shares.is_empty() && none.copied && none.misfits.is_empty(), "{none:?}");
}

#[test]
fn an_override_of_replicas_says_how_many_copies_a_cluster_has() {
    let fewer: crate::api::OverridePolicy = serde_json::from_value(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "o", "namespace": "n"},
        "spec": {"overrideRules": [{"targetCluster": {"clusterNames": ["b"]}, "overriders": {"plaintext": [
            {"path": "/spec/replicas", "operator": "replace", "value": 1}]}}]},
    }))
    .unwrap();
    let mut clusters = view(&["a", "b"]);
    clusters.overrides = vec![Arc::new(crate::store::Override::from(fewer))];
    let pods =
        [pod("one", "r", Some("fleet"), None), pod("two", "r", None, None), pod("three", "r", None, None)];
    let plan = replan(&governed(json!({})), &clusters, &pods, &recorded(&["a", "b"]));
    assert_eq!(plan.shares, Shares::from([("a".into(), 3), ("b".into(), 1)]));
    let mut costs: Vec<i64> = plan.pins.iter().filter_map(|pin| pin.cost).collect();
    costs.extend(plan.costs.iter().map(|(_, cost)| *cost));
    costs.sort_unstable();
    assert_eq!(costs, [-3, -2, -1], "each has a position, and they are written once");
    let placed: Vec<SeenPod> = (1..=3).map(|n| pod(&n.to_string(), "r", Some("fleet"), Some(-n))).collect();
    let still = replan(&governed(json!({})), &clusters, &placed, &recorded(&["a", "b"]));
    assert!(still.pins.is_empty() && still.costs.is_empty() && still.misfits.is_empty(), "{still:?}");
}

#[test]
fn pods_move_between_copies_and_single_clusters() {
    let on = |node: &str| [pod("one", "r", Some(node), None)];
    let clusters = view(&["a", "b"]);
    for (placement, node, moves) in [
        (json!({}), "fleet", false),
        (json!({}), "a", true),
        (weighted(), "fleet", true),
        (weighted(), "a", false),
        (json!({"clusterAffinity": {"clusterNames": ["a"]}}), "a", false),
        (json!({"clusterAffinity": {"clusterNames": ["a"]}}), "fleet", true),
    ] {
        let plan = replan(&governed(placement.clone()), &clusters, &on(node), &recorded(&["a", "b"]));
        assert_eq!(!plan.misfits.is_empty(), moves, "{placement} on {node}");
    }
}

#[test]
fn measured_division_moves_nothing() {
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
    let pods = [pod("one", "r", Some("a"), Some(-1)), pod("two", "r", Some("b"), Some(-2))];
    let plan = plan(placement, &view(&["a", "b"]), &pods, None);
    assert!(plan.surplus.is_empty() && plan.misfits.is_empty() && plan.pins.is_empty());
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
