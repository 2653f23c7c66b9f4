use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::affinity::tests::cluster;

fn candidates(free: &[u32]) -> Vec<Candidate> {
    let named = ["a", "b", "c", "d", "e", "f"].into_iter().zip(free);
    named.map(|(name, free)| Candidate { name: name.into(), free: *free, weight: 1 }).collect()
}

fn shares(counts: &[u32]) -> Shares {
    candidates(counts).into_iter().map(|one| (one.name, one.free)).collect()
}

fn divide(method: Method, total: u32, free: &[u32], previous: &[u32]) -> Result<Vec<u32>, DivideError> {
    let previous = shares(previous);
    let division = Division { method, total, previous: &previous, ties: TieBreak::FirstName, fresh: false };
    Ok(division.among(&candidates(free))?.into_values().collect())
}

#[test]
fn the_method_of_a_placement() {
    for (scheduling, expected) in [
        (json!(null), Method::Duplicated),
        (json!({}), Method::StaticWeights),
        (json!({"replicaSchedulingType": "Duplicated"}), Method::Duplicated),
        (json!({"replicaDivisionPreference": "Aggregated"}), Method::Aggregated),
        (json!({"replicaDivisionPreference": "Weighted"}), Method::StaticWeights),
        (json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}}), Method::DynamicWeights),
        (
            json!({"weightPreference": {"dynamicWeight": "AvailableReplicas", "staticWeightList": [{"targetCluster": {}, "weight": 1}]}}),
            Method::DynamicWeights,
        ),
    ] {
        let placement: Placement = serde_json::from_value(json!({"replicaScheduling": scheduling})).unwrap();
        assert_eq!(Method::of(&placement), expected, "{scheduling}");
    }
}

#[test]
fn static_weights_of_clusters() {
    let clusters = ["a", "b", "c"].map(|name| cluster(name, json!({"env": "x"}), json!({})));
    let clusters: Vec<&Cluster> = clusters.iter().collect();
    for (rules, expected) in [
        (json!([]), vec![1, 1, 1]),
        (json!([{"targetCluster": {"clusterNames": ["a"]}, "weight": 2}]), vec![2, 0, 0]),
        (
            json!([
                {"targetCluster": {"clusterNames": ["a", "b"]}, "weight": 2},
                {"targetCluster": {"clusterNames": ["b"]}, "weight": 1},
                {"targetCluster": {"clusterNames": ["c"]}, "weight": 5},
            ]),
            vec![2, 2, 5],
        ),
        (json!([{"targetCluster": {"clusterNames": ["z"]}, "weight": 2}]), vec![1, 1, 1]),
    ] {
        let rules: Vec<StaticClusterWeight> = serde_json::from_value(rules).unwrap();
        assert_eq!(static_weights(&rules, &clusters), expected);
    }
}

#[test]
fn tables() {
    use Method::{Aggregated, Duplicated, DynamicWeights, StaticWeights};
    for (method, total, free, previous, expected) in [
        (Duplicated, 3, vec![0, 0], vec![], vec![3, 3]),
        // Capacity is ignored, and so is where replicas are.
        (StaticWeights, 5, vec![0, 0], vec![0, 5], vec![3, 2]),
        (DynamicWeights, 12, vec![6, 12, 18], vec![], vec![2, 4, 6]),
        // Growth divides only what is new; what is there stays.
        (DynamicWeights, 8, vec![2, 2], vec![6, 0], vec![7, 1]),
        (DynamicWeights, 6, vec![9, 0], vec![0, 6], vec![0, 6]),
        // Shrinking divides by what is there.
        (DynamicWeights, 3, vec![99, 0], vec![2, 4], vec![1, 2]),
        (Aggregated, 5, vec![4, 9, 3], vec![], vec![0, 5, 0]),
        (Aggregated, 12, vec![4, 9, 3], vec![], vec![4, 8, 0]),
        // Clusters in use come first.
        (Aggregated, 4, vec![4, 9, 3], vec![0, 0, 2], vec![0, 0, 4]),
        (Aggregated, 7, vec![4, 9, 3], vec![0, 0, 2], vec![0, 4, 3]),
        (Aggregated, 0, vec![4, 9, 3], vec![0, 0, 2], vec![0, 0, 0]),
        // Shrinking gives up the clusters with the fewest first.
        (Aggregated, 3, vec![99, 0, 0], vec![3, 1, 2], vec![3, 0, 0]),
        (Aggregated, 4, vec![99, 0, 0], vec![3, 1, 2], vec![2, 0, 2]),
    ] {
        let found = divide(method, total, &free, &previous);
        assert_eq!(found, Ok(expected), "{method:?} {total} into {free:?} after {previous:?}");
    }
    assert_eq!(
        divide(DynamicWeights, 9, &[2, 2], &[2, 2]),
        Err(DivideError::TooLittleRoom { needed: 5, room: 4 })
    );
    assert_eq!(divide(Aggregated, 1, &[], &[]), Err(DivideError::NoClusters(1)));
    assert_eq!(divide(Aggregated, 0, &[], &[]), Ok(vec![]));
}

#[test]
fn a_fresh_decision_forgets_where_replicas_are() {
    let previous = shares(&[6, 0]);
    let division = Division {
        method: Method::DynamicWeights,
        total: 6,
        previous: &previous,
        ties: TieBreak::FirstName,
        fresh: true,
    };
    assert_eq!(division.among(&candidates(&[0, 6])), Ok(shares(&[3, 3])));
}

#[test]
fn replicas_of_a_lost_cluster_are_placed_again() {
    let previous = Shares::from([("a".into(), 2), ("z".into(), 3)]);
    let division = Division {
        method: Method::Aggregated,
        total: 5,
        previous: &previous,
        ties: TieBreak::FirstName,
        fresh: false,
    };
    assert_eq!(division.among(&candidates(&[1, 9])), Ok(shares(&[2, 3])));
}

#[test]
fn tiers_fill_in_order_and_empty_in_reverse() {
    let tier = |named: &[(&str, u32)]| -> Tier {
        named.iter().map(|(name, free)| Candidate { name: (*name).into(), free: *free, weight: 1 }).collect()
    };
    for (total, previous, expected) in [
        (3, vec![], Ok(vec![2, 1, 0, 0])),
        (8, vec![], Ok(vec![4, 2, 2, 0])),
        (10, vec![], Ok(vec![4, 2, 3, 1])),
        (11, vec![], Err(DivideError::TooLittleRoom { needed: 11, room: 10 })),
        // The first tier has room again, so what overflowed comes back.
        (7, vec![4, 2, 3, 1], Ok(vec![5, 2, 0, 0])),
        (14, vec![4, 2, 3, 1], Ok(vec![8, 4, 2, 0])),
        (21, vec![4, 2, 3, 1], Err(DivideError::TooLittleRoom { needed: 21, room: 20 })),
        (3, vec![4, 2, 3, 1], Ok(vec![2, 1, 0, 0])),
    ] {
        let previous = shares(&previous);
        let division = Division {
            method: Method::DynamicWeights,
            total,
            previous: &previous,
            ties: TieBreak::FirstName,
            fresh: false,
        };
        let found = division.among_tiers(&[
            tier(&[("a", 4), ("b", 2)]),
            tier(&[("c", 3), ("a", 9)]),
            tier(&[("d", 1)]),
        ]);
        assert_eq!(
            found.map(|shares| shares.into_values().collect::<Vec<_>>()),
            expected,
            "{total} after {previous:?}"
        );
    }
}

fn sticky() -> impl Strategy<Value = Method> {
    prop_oneof![Just(Method::DynamicWeights), Just(Method::Aggregated)]
}

fn clusters() -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
    (1usize..6).prop_flat_map(|n| (prop::collection::vec(0..50u32, n), prop::collection::vec(0..50u32, n)))
}

proptest! {
    #[test]
    fn every_replica_has_a_place(method in sticky(), total in 0..400u32, (free, previous) in clusters()) {
        match divide(method, total, &free, &previous) {
            Ok(shares) => prop_assert_eq!(shares.iter().sum::<u32>(), total),
            Err(_) => prop_assert!(previous.iter().sum::<u32>() + free.iter().sum::<u32>() < total),
        }
    }

    /// Growth removes nothing and overfills nothing; shrinking adds nothing.
    #[test]
    fn what_is_there_stays(method in sticky(), total in 0..400u32, (free, previous) in clusters()) {
        let placed: u32 = previous.iter().sum();
        let Ok(shares) = divide(method, total, &free, &previous) else { return Ok(()) };
        for ((now, before), free) in shares.iter().zip(&previous).zip(&free) {
            if total >= placed {
                prop_assert!(before <= now && *now <= before + free);
            } else {
                prop_assert!(now <= before);
            }
        }
    }

    /// Scaling by one, in either direction, changes one cluster by one.
    #[test]
    fn scaling_by_one_moves_at_most_one(method in sticky(), up in any::<bool>(), (free, previous) in clusters()) {
        let placed: u32 = previous.iter().sum();
        let total = if up { placed + 1 } else { placed.saturating_sub(1) };
        let Ok(shares) = divide(method, total, &free, &previous) else { return Ok(()) };
        let moved: u32 = shares.iter().zip(&previous).map(|(now, before)| now.abs_diff(*before)).sum();
        prop_assert_eq!(moved, total.abs_diff(placed));
    }

    /// An aggregated division that starts from nothing could not do with one cluster less.
    #[test]
    fn aggregated_uses_the_fewest_clusters(total in 1..200u32, free in prop::collection::vec(0..50u32, 1..6)) {
        let Ok(shares) = divide(Method::Aggregated, total, &free, &[]) else { return Ok(()) };
        let used = shares.iter().filter(|share| **share > 0).count();
        let mut sorted = free;
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        prop_assert!(sorted.iter().take(used.saturating_sub(1)).sum::<u32>() < total);
    }

    /// A later tier has replicas only if the earlier ones are full.
    #[test]
    fn tiers_are_filled_first(method in sticky(), total in 0..400u32, (free, later) in clusters()) {
        let nothing = Shares::new();
        let division = Division { method, total, previous: &nothing, ties: TieBreak::FirstName, fresh: false };
        let rename = |one: Candidate| Candidate { name: format!("z{}", one.name), ..one };
        let second: Tier = candidates(&later).into_iter().map(rename).collect();
        let Ok(shares) = division.among_tiers(&[candidates(&free), second]) else { return Ok(()) };
        prop_assert_eq!(shares.values().sum::<u32>(), total);
        let first: u32 = shares.iter().filter(|(name, _)| !name.starts_with('z')).map(|(_, share)| share).sum();
        prop_assert_eq!(first, total.min(free.iter().sum()));
    }
}
