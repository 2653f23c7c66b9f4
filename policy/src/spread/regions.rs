//! So many regions, and so many clusters in them.
//!
//! Each region has a value, the number of its clusters, and a weight, how well it could run the workload. Of all sets of
//! regions with enough clusters the heaviest is taken, or the part of it that would do alone.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Candidate, Need, at_least, at_most};
use crate::api::SpreadConstraint;

/// The best cluster of each chosen region, then the best of all the others, as many as the constraint on clusters
/// allows.
pub(super) fn select(
    cluster: Option<&SpreadConstraint>,
    region: &SpreadConstraint,
    candidates: &[Candidate<'_>],
    order: &[usize],
    need: Need,
) -> Option<Vec<usize>> {
    let (least, most) = cluster.map_or((1, u64::MAX), |one| (at_least(one), at_most(one)));
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for &index in order {
        let name = candidates[index].cluster.spec.region.as_str();
        if !name.is_empty() {
            members.entry(name).or_default().push(index);
        }
    }
    let regions: Vec<Region<'_>> = members
        .into_iter()
        .map(|(name, members)| {
            let weight = weight(&members, candidates, need, at_least(region), least);
            Region { name, weight, members }
        })
        .collect();
    let picked = pick(&regions, at_least(region), at_most(region), least)?;
    let mut chosen: Vec<usize> = picked.iter().filter_map(|region| region.members.first().copied()).collect();
    let others =
        |index: &usize| !chosen.contains(index) && picked.iter().any(|one| one.members.contains(index));
    let rest: Vec<usize> = order.iter().copied().filter(others).collect();
    let places = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(chosen.len());
    chosen.extend(rest.into_iter().take(places));
    Some(chosen)
}

struct Region<'a> {
    name: &'a str,
    weight: u64,
    members: Vec<usize>,
}

impl Region<'_> {
    fn value(&self) -> u64 {
        self.members.len() as u64
    }
}

/// What a replica weighs against a point of a cluster's score, which is at most a hundred: replicas come first.
const UNIT: u64 = 1000;

/// How well a region could run the workload: by the number of its clusters that have room for a whole copy, or by how
/// much of its part of the replicas it has room for; then by how many of those clusters are in use.
fn weight(members: &[usize], candidates: &[Candidate<'_>], need: Need, regions: u64, clusters: u64) -> u64 {
    let scores = |members: &[usize]| members.iter().map(|&index| candidates[index].score()).sum::<u64>();
    match need {
        Need::Each(replicas) => {
            let roomy: Vec<usize> =
                members.iter().copied().filter(|&index| candidates[index].room >= replicas).collect();
            let count = roomy.len() as u64;
            count.saturating_mul(UNIT).saturating_add(scores(&roomy).checked_div(count).unwrap_or(0))
        }
        Need::Together(replicas) => {
            let part = replicas.div_ceil(regions.max(1));
            let clusters = clusters.max(regions);
            let (mut room, mut used) = (0u64, 0usize);
            for &index in members {
                room = room.saturating_add(candidates[index].room);
                used += 1;
                if used as u64 >= clusters && room >= part {
                    break;
                }
            }
            let average = scores(&members[..used]).checked_div(used as u64).unwrap_or(0);
            room.min(part).saturating_mul(UNIT).saturating_add(average)
        }
    }
}

/// How many steps are spent on sets of regions, so that a hundred of them do not hold up everything else.
const BUDGET: usize = 200_000;

/// A set of regions, and when it was found.
struct Set {
    regions: Vec<usize>,
    weight: u64,
    value: u64,
    found: usize,
}

/// The regions to use: at least `min` and at most `max`, with at least `clusters` clusters.
fn pick<'r, 'a>(regions: &'r [Region<'a>], min: u64, max: u64, clusters: u64) -> Option<Vec<&'r Region<'a>>> {
    let mut small_first: Vec<usize> = (0..regions.len()).collect();
    small_first.sort_by_key(|&at| (regions[at].value(), Reverse(regions[at].weight), regions[at].name));
    let mut walk =
        Walk { regions, order: &small_first, min, max, clusters, path: vec![], sets: vec![], steps: 0 };
    walk.go(0, 0);
    let mut sets = walk.sets;
    sets.sort_by_key(|set| (Reverse(set.weight), Reverse(set.value), set.found));
    let mut best = sets.first()?;
    // A shorter set that begins like it would do as well, with fewer regions.
    for set in &sets[1..] {
        if set.regions.len() < best.regions.len() && best.regions.starts_with(&set.regions) {
            best = set;
        }
    }
    Some(best.regions.iter().map(|&at| &regions[at]).collect())
}

/// Goes through the sets of regions; a set that suffices is not made larger.
struct Walk<'r, 'a> {
    regions: &'r [Region<'a>],
    order: &'r [usize],
    min: u64,
    max: u64,
    clusters: u64,
    path: Vec<usize>,
    sets: Vec<Set>,
    steps: usize,
}

impl Walk<'_, '_> {
    fn go(&mut self, value: u64, begin: usize) {
        self.steps += 1;
        let length = self.path.len() as u64;
        if value >= self.clusters && length >= self.min && length <= self.max {
            self.keep(value);
            return;
        }
        if length >= self.max {
            return;
        }
        for next in begin..self.order.len() {
            if self.steps >= BUDGET {
                return;
            }
            let region = self.order[next];
            self.path.push(region);
            self.go(value + self.regions[region].value(), next + 1);
            self.path.pop();
        }
    }

    fn keep(&mut self, value: u64) {
        let mut regions = self.path.clone();
        regions.sort_by_key(|&at| (Reverse(self.regions[at].weight), self.regions[at].name));
        let weight = regions.iter().map(|&at| self.regions[at].weight).fold(0, u64::saturating_add);
        self.sets.push(Set { regions, weight, value, found: self.sets.len() });
    }
}
