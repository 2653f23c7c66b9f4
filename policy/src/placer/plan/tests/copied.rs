//! Pods that have a copy in each cluster.

use super::*;

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
fn copies_leave_a_cluster_that_drives_them_out() {
    let taint = |effect: &str| Taint { key: "k".into(), effect: effect.into(), ..Taint::default() };
    let pods = [pod("one", "r", Some("fleet"), None), pod("two", "r", None, None)];
    let shares = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 2)).collect::<Shares>();
    let for_a_time = json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]);
    for (effect, tolerations, driven, recorded_in, expected) in [
        ("NoExecute", json!([]), true, ["a", "b"].as_slice(), ["a"].as_slice()),
        ("NoExecute", json!([]), true, &["a"], &["a"]),
        // It is tolerated for some time, and then it neither stays nor comes back.
        ("NoExecute", for_a_time.clone(), false, &["a", "b"], &["a", "b"]),
        ("NoExecute", for_a_time.clone(), true, &["a", "b"], &["a"]),
        ("NoExecute", for_a_time, true, &["a"], &["a"]),
        ("NoSchedule", json!([]), false, &["a", "b"], &["a", "b"]),
    ] {
        let mut clusters = view(&["a", "b"]);
        Arc::make_mut(clusters.clusters.get_mut("b").unwrap()).spec.taints = vec![taint(effect)];
        let driven: BTreeSet<String> = driven.then(|| "b".to_owned()).into_iter().collect();
        let plan = Situation {
            governed: &governed(json!({"clusterTolerations": tolerations})),
            identity: &web(),
            uid: "w",
            pods: &pods,
            view: &clusters,
            binding: Some(&recorded(recorded_in)),
            peers: &Peers::default(),
            fleet_node: Some("fleet"),
            leaving: &BTreeSet::new(),
            kept: &BTreeSet::new(),
            unsettled: None,
            driven: &driven,
            closed: &BTreeMap::new(),
        }
        .plan();
        assert_eq!(plan.shares, shares(expected), "{effect} {tolerations} {recorded_in:?}");
        assert!(plan.misfits.is_empty() && plan.pins.len() == 1, "{plan:?}");
    }
}
