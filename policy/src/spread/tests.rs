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
        (json!([by_cluster(2, 2), by("region", 2, 2)]), None, Some("ad")),
        (json!([by_cluster(1, 0), by("region", 1, 1)]), None, Some("ab")),
        // One region has room for nine, and it is not the one in use.
        (json!([by_cluster(1, 0), by("region", 1, 1)]), Some(9), Some("d")),
        (json!([by_cluster(1, 0), by("region", 2, 2)]), Some(12), Some("abd")),
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
                current: cluster.metadata.name.as_deref() == Some("a"),
                room,
            })
            .collect();
        let found = select(&constraints(given.clone()), &candidates, need).ok();
        let names = found
            .map(|found| found.into_iter().map(|index| "abcd".as_bytes()[index] as char).collect::<String>());
        assert_eq!(names.as_deref(), expected, "{given} {need:?}");
    }
}

#[test]
fn it_says_what_is_missing() {
    let fleet = fleet();
    let candidates: Vec<_> =
        fleet.iter().map(|cluster| Candidate { cluster, current: false, room: 0 }).collect();
    let error = select(&constraints(json!([{"spreadByField": "region", "minGroups": 4}])), &candidates, None);
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
    (field, 0..3i64, 0..4i64).prop_map(|(field, min, more)| SpreadConstraint {
        spread_by_field: Some(field),
        spread_by_label: String::new(),
        min_groups: min,
        max_groups: if more == 0 { 0 } else { min.max(1) + more - 1 },
    })
}

proptest! {
    /// The answer meets the constraints; without a need for room there is an answer whenever one exists.
    #[test]
    fn it_finds_a_set_if_there_is_one(
        drawn in prop::collection::vec((0..3u8, prop::collection::btree_set(0..3u8, 0..3), 0..5u64, any::<bool>()), 1..6),
        constraints in prop::collection::vec(constraint(), 1..4),
        need in prop::option::of(0..8u64),
    ) {
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
            .map(|(cluster, (_, _, room, current))| Candidate { cluster, current: *current, room: *room })
            .collect();
        let possible = (1u32..1 << candidates.len()).any(|set| {
            let chosen: Vec<_> = (0..candidates.len()).filter(|index| set & (1 << index) != 0).collect();
            meets(&constraints, &candidates, &chosen, None)
        });
        match select(&constraints, &candidates, need) {
            Ok(chosen) => prop_assert!(meets(&constraints, &candidates, &chosen, need)),
            Err(_) if need.is_none() => prop_assert!(!possible),
            Err(_) => {}
        }
    }
}
