//! Clusters whose nodes are cordoned, drained or tainted by people.

use super::*;

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
}

fn closed_plan(placement: Value, view: &View, pods: &[SeenPod], taint: Taint) -> Plan {
    closed_again(placement, view, pods, taint, None)
}

/// The same, of a workload for which something was decided before.
fn closed_again(
    placement: Value,
    view: &View,
    pods: &[SeenPod],
    taint: Taint,
    binding: Option<&ResourceBinding>,
) -> Plan {
    Situation {
        governed: &governed(placement),
        identity: &web(),
        uid: "w",
        pods,
        view,
        binding,
        peers: &Peers::default(),
        fleet_node: Some("fleet"),
        leaving: &BTreeSet::new(),
        kept: &BTreeSet::new(),
        unsettled: None,
        driven: &BTreeSet::new(),
        closed: &BTreeMap::from([("b".into(), vec![taint])]),
    }
    .plan()
}

fn pinned(plan: &Plan) -> Vec<&str> {
    plan.pins.iter().map(|pin| pin.cluster.as_str()).collect()
}

fn cordon() -> Taint {
    taint("node.kubernetes.io/unschedulable", "NoSchedule")
}

#[test]
fn what_comes_for_drained_pods_goes_elsewhere_and_what_runs_stays() {
    let clusters = view(&["a", "b"]);
    let drained = [
        pod("one", "r", Some("a"), Some(-2)),
        pod("two", "r", Some("b"), Some(-1)),
        pod("three", "r", None, None),
        pod("four", "r", None, None),
    ];
    for why in [cordon(), taint("work", "NoSchedule"), taint("work", "NoExecute")] {
        let plan = closed_plan(weighted(), &clusters, &drained, why);
        assert_eq!(pinned(&plan), ["a", "a"]);
        assert!(plan.misfits.is_empty() && plan.surplus.is_empty() && plan.waiting.is_none(), "{plan:?}");
        assert_eq!(plan.shares, Shares::from([("a".into(), 3), ("b".into(), 1)]));
    }
    // What is only cordoned loses nothing, and once it is open again it gets its share back.
    let there: Vec<SeenPod> =
        (1..=3).map(|n| pod(&n.to_string(), "r", Some(if n == 2 { "a" } else { "b" }), Some(-n))).collect();
    let still = closed_plan(weighted(), &clusters, &there, cordon());
    assert!(still.misfits.is_empty() && still.surplus.is_empty() && still.pins.is_empty(), "{still:?}");
    let moved: Vec<SeenPod> = (1..=3).map(|n| pod(&n.to_string(), "r", Some("a"), Some(-n))).collect();
    assert!(closed_plan(weighted(), &clusters, &moved, cordon()).surplus.is_empty());
    assert_eq!(plan(weighted(), &clusters, &moved, None).surplus.len(), 2);
}

#[test]
fn one_that_was_meant_for_a_node_before_it_was_cordoned_is_made_again() {
    let mut stranded = pod("one", "r", Some("b"), Some(-1));
    stranded.bound = false;
    let running = pod("two", "r", Some("b"), Some(-2));
    let plan = closed_plan(weighted(), &view(&["a", "b"]), &[stranded, running], cordon());
    assert_eq!(plan.misfits, [0]);
}

#[test]
fn who_tolerates_it_may_come_and_who_can_be_nowhere_else_waits() {
    let clusters = view(&["a", "b"]);
    let mut tolerant = pod("one", "r", None, None);
    tolerant.tolerates = serde_json::from_value(json!([{"key": "work", "operator": "Exists"}])).unwrap();
    let work = || taint("work", "NoSchedule");
    assert_eq!(pinned(&closed_plan(weighted(), &clusters, &[tolerant], work())), ["b"]);
    let fresh = [pod("one", "r", None, None)];
    let alone = closed_plan(weighted(), &view(&["b"]), &fresh, work()).waiting.unwrap();
    assert!(alone.message.contains("b: it has the taint work:NoSchedule"), "{}", alone.message);
    // What the Cluster says itself keeps out only who is not there yet.
    let mut said = clusters;
    Arc::make_mut(said.clusters.get_mut("b").unwrap()).spec.taints = vec![work()];
    let there =
        [pod("one", "r", Some("b"), Some(-1)), pod("two", "r", None, None), pod("three", "r", None, None)];
    let plan = closed_plan(weighted(), &said, &there, work());
    assert_eq!(plan.shares, Shares::from([("a".into(), 1), ("b".into(), 2)]));
}

#[test]
fn names_that_run_stay_while_another_cluster_is_closed() {
    let db = |ordinal: u32, cluster: Option<&str>| SeenPod {
        owner: Some(Owner { kind: "StatefulSet".into(), uid: "s".into(), ..Owner::default() }),
        ordinal: Some(ordinal),
        ..pod(&format!("db-{ordinal}"), "s", cluster, None)
    };
    let equal = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let clusters = view(&["a", "b", "c"]);
    let named = plan(equal.clone(), &clusters, &[db(0, None), db(1, None), db(2, None)], None);
    let mut pods: Vec<SeenPod> =
        named.pins.iter().zip(0..).map(|(pin, ordinal)| db(ordinal, Some(&pin.cluster))).collect();
    let drained = pods.iter().position(|pod| pod.cluster.as_deref() == Some("b")).unwrap();
    pods[drained] = db(u32::try_from(drained).unwrap(), None);
    let plan = closed_plan(equal, &clusters, &pods, cordon());
    assert!(plan.surplus.is_empty() && plan.misfits.is_empty(), "{plan:?}");
    assert_eq!(plan.pins.len(), 1);
    assert_ne!(plan.pins[0].cluster, "b");
}

#[test]
fn divisions_by_room_leave_out_what_stays_in_a_closed_cluster() {
    let measured = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Aggregated"}});
    let mut clusters = view(&["a", "b"]);
    for (name, free) in [("a", "1"), ("b", "9")] {
        let cluster = Arc::make_mut(clusters.clusters.get_mut(name).unwrap());
        let annotations = cluster.metadata.annotations.get_or_insert_default();
        annotations.insert(crate::estimate::AVAILABLE_REPLICAS.into(), free.into());
    }
    let mut pods: Vec<SeenPod> = (1..=3).map(|n| pod(&n.to_string(), "r", Some("b"), Some(-n))).collect();
    pods.push(pod("new", "r", None, None));
    let plan = closed_plan(measured, &clusters, &pods, cordon());
    assert_eq!(pinned(&plan), ["a"], "room for one is enough for the one that comes: {plan:?}");
}

#[test]
fn copies_stay_in_a_closed_cluster_and_new_ones_do_not_come() {
    let pods = [pod("one", "r", Some("fleet"), None)];
    let replan = |recorded: &ResourceBinding| {
        closed_again(json!({}), &view(&["a", "b"]), &pods, cordon(), Some(recorded)).shares
    };
    assert_eq!(replan(&recorded(&["a"])), Shares::from([("a".into(), 1)]));
    assert_eq!(replan(&recorded(&["a", "b"])), Shares::from([("a".into(), 1), ("b".into(), 1)]));
}
