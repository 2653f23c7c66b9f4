use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::affinity::tests::cluster;

fn shares(named: &[(&str, u32)]) -> Shares {
    named.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect()
}

/// `a` and `b` in the north, `c` in the south with a taint, `d` without the API; rooms 4, 2, 6, 9.
fn fleet() -> Vec<(Cluster, u32)> {
    let mut d = cluster("d", json!({}), json!({"region": "west"}));
    d.status = serde_json::from_value(json!({"apiEnablements": [
        {"groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]},
    ]}))
    .unwrap();
    vec![
        (cluster("a", json!({}), json!({"region": "north"})), 4),
        (cluster("b", json!({}), json!({"region": "north"})), 2),
        (
            cluster(
                "c",
                json!({}),
                json!({"region": "south", "taints": [{"key": "edge", "effect": "NoSchedule"}]}),
            ),
            6,
        ),
        (d, 9),
    ]
}

struct Case {
    placement: Value,
    replicas: Option<u32>,
    previous: Shares,
    observed: Option<&'static str>,
    leaving: BTreeSet<String>,
    peers: Peers,
    fresh: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            placement: json!({}),
            replicas: Some(5),
            previous: Shares::new(),
            observed: None,
            leaving: BTreeSet::new(),
            peers: Peers::default(),
            fresh: false,
        }
    }
}

fn run(case: &Case) -> Result<Placed, PlaceError> {
    let fleet = fleet();
    let members: Vec<_> = fleet.iter().map(|(cluster, free)| Member { cluster, free: *free }).collect();
    let placement: Placement = serde_json::from_value(case.placement.clone()).unwrap();
    let request = Request {
        api_version: "apps/v1",
        kind: "Deployment",
        uid: "",
        replicas: case.replicas,
        placement: &placement,
        previous: &case.previous,
        observed_affinity: case.observed,
        leaving: &case.leaving,
        peers: &case.peers,
        fresh: case.fresh,
    };
    place(&request, &members)
}

fn placed(case: Case) -> Vec<(String, u32)> {
    run(&case).unwrap().shares.into_iter().collect()
}

fn is(found: Vec<(String, u32)>, expected: &[(&str, u32)]) {
    assert_eq!(found.into_iter().collect::<Shares>(), shares(expected));
}

#[test]
fn nothing_said_means_everywhere() {
    is(placed(Case::default()), &[("a", 5), ("b", 5)]);
    is(placed(Case { replicas: None, ..Case::default() }), &[("a", 0), ("b", 0)]);
    let tolerant = json!({"clusterTolerations": [{"operator": "Exists"}]});
    is(placed(Case { placement: tolerant, ..Case::default() }), &[("a", 5), ("b", 5), ("c", 5)]);
}

#[test]
fn each_rejection_says_why() {
    let case = Case {
        placement: json!({"clusterAffinity": {"exclude": ["a"]}}),
        leaving: BTreeSet::from(["b".to_owned()]),
        ..Case::default()
    };
    let PlaceError::NoClusterFit { rejected } = run(&case).unwrap_err() else { panic!("another error") };
    assert_eq!(
        rejected.into_values().collect::<Vec<_>>(),
        [
            Rejection::Affinity(affinity::Mismatch::Excluded),
            Rejection::Leaving,
            Rejection::Taint("edge:NoSchedule".into()),
            Rejection::NoApi("apps/v1 Deployment".into()),
        ]
    );
}

#[test]
fn where_it_is_it_may_stay() {
    let previous = shares(&[("c", 5), ("d", 5)]);
    is(
        placed(Case { previous: previous.clone(), ..Case::default() }),
        &[("a", 5), ("b", 5), ("c", 5), ("d", 5)],
    );
    let placement = json!({"clusterAffinity": {"exclude": ["c"]}});
    is(placed(Case { previous, placement, ..Case::default() }), &[("a", 5), ("b", 5), ("d", 5)]);
}

#[test]
fn peers() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let near = Peers { near: vec![set(&["a", "b"]), set(&["b", "c"])], apart: BTreeSet::new() };
    is(placed(Case { peers: near, ..Case::default() }), &[("b", 5)]);
    let apart = Peers { near: vec![], apart: set(&["b"]) };
    is(placed(Case { peers: apart, ..Case::default() }), &[("a", 5)]);
}

#[test]
fn weights_ignore_spread_and_room() {
    let placement = json!({
        "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}],
        "replicaScheduling": {"weightPreference": {"staticWeightList": [
            {"targetCluster": {"clusterNames": ["a"]}, "weight": 1},
            {"targetCluster": {"clusterNames": ["b"]}, "weight": 2},
        ]}},
    });
    is(placed(Case { placement, replicas: Some(30), ..Case::default() }), &[("a", 10), ("b", 20)]);
}

#[test]
fn ordered_groups() {
    let groups = json!({
        "replicaScheduling": {"replicaDivisionPreference": "Aggregated"},
        "clusterTolerations": [{"operator": "Exists"}],
        "clusterAffinities": [
            {"affinityName": "first", "clusterNames": ["b"]},
            {"affinityName": "second", "clusterNames": ["a"]},
            {"affinityName": "third", "clusterNames": ["c"]},
        ],
    });
    let case = |replicas, observed, fresh| Case {
        placement: groups.clone(),
        replicas: Some(replicas),
        observed,
        fresh,
        ..Case::default()
    };
    for (replicas, observed, fresh, expected) in [
        (2, None, false, ("first", "b")),
        (4, None, false, ("second", "a")),
        (6, None, false, ("third", "c")),
        // Never back by itself; a person can ask for it.
        (1, Some("second"), false, ("second", "a")),
        (1, Some("second"), true, ("first", "b")),
        (1, Some("gone"), false, ("first", "b")),
    ] {
        let found = run(&case(replicas, observed, fresh)).unwrap();
        assert_eq!(found.affinity.as_deref(), Some(expected.0));
        is(found.shares.into_iter().collect(), &[(expected.1, replicas)]);
    }
    let error = run(&case(7, None, false)).unwrap_err();
    assert_eq!(error, PlaceError::Divide(DivideError::TooLittleRoom { needed: 7, room: 2 }));
    assert_eq!(error.reason(), "Unschedulable");
}

#[test]
fn overflow() {
    let placement = |scheduling: Value| {
        json!({
            "replicaScheduling": scheduling,
            "clusterAffinities": [{
                "affinityName": "home", "clusterNames": ["b"],
                "overflowAffinities": [{"affinityName": "away", "clusterNames": ["a"]}],
            }],
        })
    };
    let aggregated = placement(json!({"replicaDivisionPreference": "Aggregated"}));
    is(placed(Case { placement: aggregated.clone(), replicas: Some(2), ..Case::default() }), &[("b", 2)]);
    is(placed(Case { placement: aggregated.clone(), ..Case::default() }), &[("a", 3), ("b", 2)]);
    // What has no replicas does not overflow.
    is(placed(Case { placement: aggregated, replicas: None, ..Case::default() }), &[("b", 0)]);
}

/// As what has no replicas at all: everywhere that the policy allows.
#[test]
fn scaled_to_nothing_it_is_everywhere() {
    for scheduling in [json!(null), json!({}), json!({"replicaDivisionPreference": "Aggregated"})] {
        for previous in [shares(&[("a", 3)]), shares(&[])] {
            let placement = json!({"replicaScheduling": scheduling});
            is(
                placed(Case { placement, replicas: Some(0), previous, ..Case::default() }),
                &[("a", 0), ("b", 0)],
            );
        }
    }
}

/// What decides how many clusters are used also decides it for what has no replicas.
#[test]
fn when_spread_is_ignored() {
    let limit = json!([{"spreadByField": "cluster", "maxGroups": 1}]);
    let listed = json!({"staticWeightList": [{"targetCluster": {"clusterNames": ["b"]}, "weight": 2}]});
    for (scheduling, replicas, expected) in [
        (json!({"weightPreference": listed}), None, vec![("a", 0), ("b", 0)]),
        (json!({"weightPreference": listed}), Some(4), vec![("b", 4)]),
        (json!({}), None, vec![("a", 0), ("b", 0)]),
        (json!({}), Some(4), vec![("a", 2), ("b", 2)]),
        // A list without weights decides nothing.
        (json!({"weightPreference": {}}), Some(4), vec![("a", 4)]),
        (json!({"replicaSchedulingType": "Duplicated"}), None, vec![("a", 0)]),
        (json!(null), Some(4), vec![("a", 4)]),
    ] {
        let placement = json!({"spreadConstraints": limit, "replicaScheduling": scheduling});
        is(placed(Case { placement, replicas, ..Case::default() }), &expected);
    }
}

/// A cluster that does not say its region is out, even if weights decide.
#[test]
fn clusters_say_where_they_are() {
    let placement = json!({
        "spreadConstraints": [{"spreadByField": "cluster"}, {"spreadByField": "provider"}],
        "replicaScheduling": {},
    });
    let error = run(&Case { placement, ..Case::default() }).unwrap_err();
    let PlaceError::NoClusterFit { rejected } = error else { panic!("another error") };
    assert_eq!(rejected["a"], Rejection::NoGroup("provider".into()));
}

/// Clusters in use are preferred only if replicas are there, also when a person asks for a fresh decision.
#[test]
fn what_is_in_use_comes_first() {
    let placement = json!({"spreadConstraints": [{"maxGroups": 1}]});
    for (previous, fresh, expected) in [
        (shares(&[("b", 1)]), false, "b"),
        (shares(&[("b", 1)]), true, "b"),
        (shares(&[("b", 0)]), false, "a"),
    ] {
        let case =
            Case { placement: placement.clone(), replicas: Some(1), previous, fresh, ..Case::default() };
        is(placed(case), &[(expected, 1)]);
    }
}

#[test]
fn spread_keeps_to_its_number() {
    let placement = json!({
        "clusterTolerations": [{"operator": "Exists"}],
        "spreadConstraints": [{"maxGroups": 1}],
        "replicaScheduling": {"weightPreference": {"dynamicWeight": "AvailableReplicas"}},
    });
    is(placed(Case { placement: placement.clone(), ..Case::default() }), &[("c", 5)]);
    let previous = shares(&[("a", 1)]);
    is(placed(Case { placement: placement.clone(), previous, ..Case::default() }), &[("a", 5)]);
    let error = run(&Case { placement, replicas: Some(7), ..Case::default() }).unwrap_err();
    assert_eq!(error, PlaceError::Spread(SpreadError::Unsatisfiable));
}

proptest! {
    /// Every cluster is either chosen or has a reason, never both; divided replicas add up.
    #[test]
    fn every_cluster_has_an_answer(
        replicas in prop::option::of(0..12u32),
        kind in 0..4usize,
        max in 0..4i64,
        previous in prop::collection::btree_map("[a-e]", 0..4u32, 0..4),
    ) {
        let scheduling = [
            json!(null),
            json!({}),
            json!({"replicaDivisionPreference": "Aggregated"}),
            json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}}),
        ][kind].clone();
        let placement = json!({"spreadConstraints": [{"maxGroups": max}], "replicaScheduling": scheduling});
        let case = Case { placement, replicas, previous, ..Case::default() };
        if let Ok(placed) = run(&case) {
            for name in ["a", "b", "c", "d"] {
                prop_assert!(placed.shares.contains_key(name) != placed.rejected.contains_key(name));
            }
            let sum: u32 = placed.shares.values().sum();
            match replicas {
                None => prop_assert_eq!(sum, 0),
                Some(total) if kind == 0 => prop_assert_eq!(sum, total * placed.shares.len() as u32),
                Some(total) => prop_assert_eq!(sum, total),
            }
        }
    }
}
