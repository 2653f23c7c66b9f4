use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::affinity::tests::cluster;

fn constraints(value: serde_json::Value) -> Vec<SpreadConstraint> {
    serde_json::from_value(value).unwrap()
}

/// Clusters in regions, zones, with providers and racks.
fn fleet() -> Vec<Cluster> {
    vec![
        cluster("a", json!({"rack": "1"}), json!({"region": "north", "zones": ["n1"], "provider": "p"})),
        cluster(
            "b",
            json!({"rack": "2"}),
            json!({"region": "north", "zones": ["n1", "n2"], "provider": "q"}),
        ),
        cluster("c", json!({"rack": "2"}), json!({"region": "south", "zones": ["s1"], "provider": "p"})),
        cluster("d", json!({}), json!({"region": "west", "zones": [], "provider": "p"})),
    ]
}

#[test]
fn tables() {
    let fleet = fleet();
    let by_cluster =
        |min: u32, max: u32| json!({"spreadByField": "cluster", "minGroups": min, "maxGroups": max});
    let by =
        |field: &str, min: u32, max: u32| json!({"spreadByField": field, "minGroups": min, "maxGroups": max});
    // Rooms of a..d are 1, 5, 3, 9; the workload is in `a`.
    for (given, need, expected) in [
        (json!([]), None, Some("abcd")),
        (json!([{}]), None, Some("abcd")),
        (json!([by_cluster(1, 2)]), None, Some("ad")),
        (json!([by_cluster(1, 2)]), Some(11), Some("bd")),
        (json!([by_cluster(1, 2)]), Some(15), None),
        (json!([by_cluster(5, 0)]), None, None),
        // The north has two clusters, one of them in use; south and west weigh the same, so the name decides.
        (json!([by_cluster(2, 2), by("region", 2, 2)]), None, Some("ac")),
        (json!([by_cluster(1, 0), by("region", 1, 1)]), None, Some("ab")),
        (json!([by_cluster(1, 1), by("region", 1, 1)]), None, Some("a")),
        // One region has room for nine, and it is not the one in use.
        (json!([by_cluster(1, 0), by("region", 1, 1)]), Some(9), Some("d")),
        (json!([by_cluster(1, 0), by("region", 2, 2)]), Some(12), Some("abd")),
        (json!([by_cluster(4, 0), by("region", 1, 3)]), None, Some("abcd")),
        (json!([by_cluster(3, 3), by("region", 1, 2)]), None, Some("abc")),
        (json!([by_cluster(4, 0), by("region", 1, 2)]), None, None),
        (json!([by_cluster(1, 0), by("zone", 1, 1)]), None, Some("a")),
        (json!([by_cluster(1, 0), by("zone", 3, 3)]), None, Some("abc")),
        (json!([by_cluster(1, 0), by("zone", 4, 0)]), None, None),
        (json!([by_cluster(1, 1), by("provider", 2, 0)]), None, None),
        (json!([by_cluster(2, 2), by("provider", 2, 0)]), None, Some("ab")),
        (json!([{"spreadByLabel": "rack", "maxGroups": 1}]), None, Some("a")),
        (json!([{"spreadByLabel": "rack", "maxGroups": 1}]), Some(8), Some("bc")),
        (json!([{"spreadByLabel": "shelf"}]), None, None),
    ] {
        let rooms = [1, 5, 3, 9];
        let candidates: Vec<_> = fleet
            .iter()
            .zip(rooms)
            .map(|(cluster, room)| Candidate {
                cluster,
                tier: 0,
                current: cluster.metadata.name.as_deref() == Some("a"),
                room,
            })
            .collect();
        let wanted = need.map_or(Need::Each(0), Need::Together);
        let found = select(&constraints(given.clone()), &candidates, wanted).ok();
        let names = found
            .map(|found| found.into_iter().map(|index| "abcd".as_bytes()[index] as char).collect::<String>());
        assert_eq!(names.as_deref(), expected, "{given} {need:?}");
    }
}

#[test]
fn it_says_what_is_missing() {
    let fleet = fleet();
    let candidates: Vec<_> =
        fleet.iter().map(|cluster| Candidate { cluster, tier: 0, current: false, room: 0 }).collect();
    let given = constraints(json!([{"spreadByField": "region", "minGroups": 4}]));
    let error = select(&given, &candidates, Need::Each(0));
    assert_eq!(
        error.unwrap_err().to_string(),
        "at least 4 groups by region are asked for, the candidates are in 3"
    );
}

/// Whether a set of candidates meets the constraints, by the definition.
fn meets(
    constraints: &[SpreadConstraint],
    candidates: &[Candidate<'_>],
    chosen: &[usize],
    need: Option<u64>,
) -> bool {
    let room: u64 = chosen.iter().map(|&index| candidates[index].room).sum();
    need.is_none_or(|need| room >= need)
        && constraints.iter().all(|constraint| {
            let key = Key::of(constraint);
            let each: Vec<_> = chosen.iter().map(|&index| key.groups(candidates[index].cluster)).collect();
            let used = each.iter().flatten().collect::<BTreeSet<_>>().len() as i64;
            let max = if constraint.max_groups == 0 { i64::MAX } else { constraint.max_groups };
            each.iter().all(|groups| !groups.is_empty())
                && used >= constraint.min_groups.max(1)
                && used <= max
        })
}

fn constraint() -> impl Strategy<Value = SpreadConstraint> {
    let field = prop::sample::select(vec![SpreadField::Cluster, SpreadField::Region, SpreadField::Zone]);
    constraint_of(field)
}

fn constraint_of(field: impl Strategy<Value = SpreadField>) -> impl Strategy<Value = SpreadConstraint> {
    (field, 0..3i64, 0..4i64).prop_map(|(field, min, more)| SpreadConstraint {
        spread_by_field: Some(field),
        spread_by_label: String::new(),
        min_groups: min,
        max_groups: if more == 0 { 0 } else { min.max(1) + more - 1 },
    })
}

proptest! {
    /// The answer meets the constraints, and there is an answer whenever one exists.
    #[test]
    fn it_finds_a_set_if_there_is_one(
        drawn in prop::collection::vec((0..3u8, prop::collection::btree_set(0..3u8, 0..3), 0..5u64, any::<bool>()), 1..6),
        mut constraints in prop::collection::vec(constraint(), 0..3),
        zones in constraint_of(Just(SpreadField::Zone)),
        need in prop::option::of(0..8u64),
    ) {
        constraints.push(zones);
        let clusters: Vec<_> = drawn
            .iter()
            .enumerate()
            .map(|(index, (region, zones, ..))| {
                let zones: Vec<String> = zones.iter().map(|zone| format!("z{zone}")).collect();
                cluster(&format!("c{index}"), json!({}), json!({"region": format!("r{region}"), "zones": zones}))
            })
            .collect();
        let candidates: Vec<_> = clusters
            .iter()
            .zip(&drawn)
            .map(|(cluster, (_, _, room, current))| Candidate { cluster, tier: 0, current: *current, room: *room })
            .collect();
        let possible = (1u32..1 << candidates.len()).any(|set| {
            let chosen: Vec<_> = (0..candidates.len()).filter(|index| set & (1 << index) != 0).collect();
            meets(&constraints, &candidates, &chosen, need)
        });
        match select(&constraints, &candidates, need.map_or(Need::Each(0), Need::Together)) {
            Ok(chosen) => prop_assert!(meets(&constraints, &candidates, &chosen, need)),
            Err(_) => prop_assert!(!possible),
        }
    }
}

/// Rooms of `a` to `d`, which of them are in use, how many clusters, how many replicas; all in one region.
#[test]
fn places_are_given_up_from_the_last() {
    for (rooms, used, max, need, expected) in [
        // The best of the others takes the place of the last, whatever it scores.
        ([40, 30, 60, 0], "ab", 2, 80, Some("ac")),
        ([40, 30, 30, 0], "ab", 2, 71, None),
        ([10, 10, 20, 20], "ab", 2, 35, Some("cd")),
        // Enough as it is: nobody moves.
        ([40, 30, 60, 0], "ab", 2, 70, Some("ab")),
        ([0, 0, 0, 0], "", 3, 0, Some("abc")),
    ] {
        let fleet = fleet();
        let candidates: Vec<_> = fleet
            .iter()
            .zip(rooms)
            .map(|(cluster, room)| {
                let name = cluster.metadata.name.as_deref().unwrap();
                Candidate { cluster, tier: 0, current: used.contains(name), room }
            })
            .collect();
        let given = constraints(json!([{"maxGroups": max}]));
        let found = select(&given, &candidates, Need::Together(need)).ok();
        let names = found
            .map(|found| found.into_iter().map(|index| "abcd".as_bytes()[index] as char).collect::<String>());
        assert_eq!(names.as_deref(), expected, "{rooms:?} {need}");
    }
}

#[test]
fn an_earlier_tier_comes_first() {
    let fleet = fleet();
    let candidates: Vec<_> = fleet
        .iter()
        .zip([2, 1, 0, 0])
        .map(|(cluster, tier)| Candidate { cluster, tier, current: tier > 0, room: 9 })
        .collect();
    let found = select(&constraints(json!([{"maxGroups": 2}])), &candidates, Need::Together(9));
    assert_eq!(found, Ok(vec![2, 3]));
}
