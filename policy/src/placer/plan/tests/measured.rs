//! Divisions that look at room.

use super::*;

fn aggregated(spread: Value) -> Value {
    json!({"spreadConstraints": spread,
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}})
}

/// Clusters with room for so many more replicas.
fn with_room(rooms: &[(&str, &str)]) -> View {
    let mut view = view(&rooms.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, free) in rooms {
        let cluster = Arc::make_mut(view.clusters.get_mut(*name).unwrap());
        let annotations = cluster.metadata.annotations.get_or_insert_default();
        annotations.insert(crate::estimate::AVAILABLE_REPLICAS.into(), (*free).into());
    }
    view
}

#[test]
fn pods_move_when_they_are_in_more_clusters_than_a_policy_allows_by_now() {
    let there = |a: usize, b: usize| -> Vec<SeenPod> {
        let each = ["a"].repeat(a).into_iter().chain(["b"].repeat(b)).enumerate();
        each.map(|(n, cluster)| pod(&n.to_string(), "r", Some(cluster), Some(-(n as i64) - 1))).collect()
    };
    let most = |max: i64| aggregated(json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": max}]));
    let roomy = with_room(&[("a", "5"), ("b", "1")]);
    assert_eq!(plan(most(1), &roomy, &there(3, 2), None).misfits, [3, 4]);
    let dynamic = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    assert_eq!(plan(dynamic, &roomy, &there(3, 2), None).misfits, [3, 4]);
    // Those that are not too many stay, wherever there is more room by now.
    for (placement, pods) in
        [(most(2), there(3, 2)), (most(1), there(0, 5)), (aggregated(json!([])), there(3, 2))]
    {
        let stay = plan(placement.clone(), &with_room(&[("a", "90"), ("b", "0")]), &pods, None);
        assert!(stay.misfits.is_empty() && stay.surplus.is_empty(), "{placement}: {stay:?}");
    }
    // Without room elsewhere nobody moves, and neither does anybody for a policy that is gone.
    let full = plan(most(1), &with_room(&[("a", "0"), ("b", "0")]), &there(3, 2), None);
    assert!(full.misfits.is_empty(), "{full:?}");
    let former = Governed { current: false, ..governed(most(1)) };
    assert!(replan(&former, &roomy, &there(3, 2), &recorded(&[])).misfits.is_empty());
    // A cluster that is in no group cannot be used.
    let by_region = aggregated(json!([{"spreadByField": "cluster"}, {"spreadByLabel": "rack"}]));
    let mut racks = roomy;
    for cluster in racks.clusters.values_mut().take(1) {
        Arc::make_mut(cluster).metadata.labels.get_or_insert_default().insert("rack".into(), "r1".into());
    }
    assert_eq!(plan(by_region, &racks, &there(3, 2), None).misfits, [3, 4]);
}

#[test]
fn stateful_sets_grow_where_there_is_room() {
    let db = |ordinal: u32, cluster: Option<&str>| SeenPod {
        owner: Some(Owner { kind: "StatefulSet".into(), uid: "s".into(), ..Owner::default() }),
        ordinal: Some(ordinal),
        ..pod(&format!("db-{ordinal}"), "s", cluster, None)
    };
    let pins = |plan: &Plan| -> Vec<(usize, String)> {
        plan.pins.iter().map(|pin| (pin.pod, pin.cluster.clone())).collect()
    };
    let to = |pods: &[usize], cluster: &str| -> Vec<(usize, String)> {
        pods.iter().map(|pod| (*pod, cluster.to_owned())).collect()
    };
    let dynamic = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted", "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    for placement in [aggregated(json!([])), dynamic] {
        let mut pods: Vec<SeenPod> = (0..6).map(|n| db(n, (n < 2).then_some("a"))).collect();
        let grown = plan(placement.clone(), &with_room(&[("a", "0"), ("b", "10")]), &pods, None);
        assert_eq!(pins(&grown), to(&[2, 3, 4, 5], "b"), "{placement}");
        assert!(grown.misfits.is_empty() && grown.surplus.is_empty() && grown.costs.is_empty(), "{grown:?}");
        assert_eq!(grown.shares, Shares::from([("a".into(), 2), ("b".into(), 4)]));
        // They come back where there is room, whatever their names.
        pods.truncate(3);
        pods[0] = db(0, None);
        pods[2] = db(2, Some("b"));
        let back = plan(placement.clone(), &with_room(&[("a", "0"), ("b", "1")]), &pods, None);
        assert_eq!(pins(&back), to(&[0], "b"), "{placement}");
        // Room is needed for those that are there, not for those that their names make one think of.
        let high: Vec<SeenPod> = (100..103).map(|n| db(n, None)).collect();
        let few = plan(placement.clone(), &with_room(&[("a", "0"), ("b", "3")]), &high, None);
        assert_eq!(pins(&few), to(&[0, 1, 2], "b"), "{placement}: {:?}", few.waiting);
    }
    // Fixed weights go by names, so that every size is exact.
    let pods: Vec<SeenPod> = (0..3).map(|n| db(n, None)).collect();
    let fixed = plan(weighted(), &view(&["a", "b"]), &pods, None);
    assert_eq!(fixed.shares, Shares::from([("a".into(), 1), ("b".into(), 2)]));
}

#[test]
fn measured_division_moves_nothing() {
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
    let pods = [pod("one", "r", Some("a"), Some(-1)), pod("two", "r", Some("b"), Some(-2))];
    let plan = plan(placement, &view(&["a", "b"]), &pods, None);
    assert!(plan.surplus.is_empty() && plan.misfits.is_empty() && plan.pins.is_empty());
}

#[test]
fn pods_that_come_one_after_the_other_are_divided_as_if_they_came_together() {
    let view = with_room(&[("a", "10"), ("b", "5")]);
    let governed = governed(aggregated(json!([])));
    let at = |name: usize, cluster: Option<&str>, created: &str| SeenPod {
        created: created.into(),
        ..pod(&name.to_string(), "r", cluster, None)
    };
    let (before, now) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
    for (created, expected) in [(now, [("a", 10), ("b", 5)]), (before, [("a", 15), ("b", 0)])] {
        let pods: Vec<SeenPod> = (0..15).map(|n| at(n, (n < 8).then_some("a"), created)).collect();
        let plan = Situation {
            governed: &governed,
            identity: &web(),
            uid: "w",
            pods: &pods,
            view: &view,
            binding: None,
            peers: &Peers::default(),
            fleet_node: None,
            leaving: &BTreeSet::new(),
            kept: &BTreeSet::new(),
            unsettled: Some("2026-01-01T00:00:45Z"),
            driven: &BTreeSet::new(),
            closed: &BTreeMap::new(),
        }
        .plan();
        let expected = expected.into_iter().filter(|(_, count)| *count > 0);
        let expected: Shares = expected.map(|(name, count)| (name.to_owned(), count)).collect();
        assert_eq!(plan.shares, expected, "created at {created}");
    }
}
