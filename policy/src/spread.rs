//! How many clusters, regions, zones, providers or labelled groups a workload uses.
//!
//! A limit that is not given is no limit. Every kind of group is honoured, also several kinds at once.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::api::{Cluster, SpreadConstraint, SpreadField};

/// Why no set of clusters will do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpreadError {
    /// There are fewer groups than asked for.
    #[error("at least {min} groups by {by} are asked for, the candidates are in {found}")]
    TooFewGroups {
        /// What makes a group.
        by: String,
        /// How many are asked for.
        min: u64,
        /// How many there are.
        found: u64,
    },
    /// Each constraint could be met, but not all at once, or not with room for all replicas.
    #[error("no set of clusters meets all spread constraints and has room for the replicas")]
    Unsatisfiable,
}

/// What makes a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A field of the cluster.
    Field(SpreadField),
    /// The value of a label of the cluster.
    Label(String),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(SpreadField::Cluster) => f.write_str("cluster"),
            Self::Field(SpreadField::Region) => f.write_str("region"),
            Self::Field(SpreadField::Zone) => f.write_str("zone"),
            Self::Field(SpreadField::Provider) => f.write_str("provider"),
            Self::Label(label) => write!(f, "label {label}"),
        }
    }
}

impl Key {
    /// What makes a group for this constraint; the cluster itself if it does not say.
    #[must_use]
    pub fn of(constraint: &SpreadConstraint) -> Self {
        match (constraint.spread_by_field, constraint.spread_by_label.as_str()) {
            (Some(field), _) => Self::Field(field),
            (None, "") => Self::Field(SpreadField::Cluster),
            (None, label) => Self::Label(label.to_owned()),
        }
    }

    /// The groups that a cluster is in. Only zones can be several; none means that the cluster cannot be used.
    #[must_use]
    pub fn groups(&self, cluster: &Cluster) -> BTreeSet<String> {
        let meta = &cluster.metadata;
        let groups: Vec<&str> = match self {
            Self::Field(SpreadField::Cluster) => meta.name.as_deref().into_iter().collect(),
            Self::Field(SpreadField::Region) => vec![&cluster.spec.region],
            Self::Field(SpreadField::Provider) => vec![&cluster.spec.provider],
            Self::Field(SpreadField::Zone) => cluster.spec.zones().collect(),
            Self::Label(label) => {
                meta.labels.iter().filter_map(|labels| labels.get(label)).map(String::as_str).collect()
            }
        };
        groups.into_iter().filter(|group| !group.is_empty()).map(str::to_owned).collect()
    }
}

/// A cluster that may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Whether the workload is there already.
    pub current: bool,
    /// How many replicas it can hold, with those that are there already.
    pub room: u64,
}

/// Chooses clusters, as indexes of `candidates` in ascending order. `need` is how many replicas they must hold
/// together, if that matters.
///
/// Clusters in use are preferred, then those with most room; as many are chosen as the constraints allow. If
/// the preferred ones have too little room, room alone decides.
pub fn select(
    constraints: &[SpreadConstraint],
    candidates: &[Candidate<'_>],
    need: Option<u64>,
) -> Result<Vec<usize>, SpreadError> {
    if constraints.is_empty() {
        return Ok((0..candidates.len()).collect());
    }
    let rules: Vec<Rule> = constraints.iter().map(|constraint| Rule::new(constraint, candidates)).collect();
    for (rule, constraint) in rules.iter().zip(constraints) {
        let found = rule.groups.iter().flatten().collect::<BTreeSet<_>>().len() as u64;
        if found < rule.min {
            return Err(SpreadError::TooFewGroups {
                by: Key::of(constraint).to_string(),
                min: rule.min,
                found,
            });
        }
    }
    let room: u64 = candidates.iter().map(|candidate| candidate.room).sum();
    if need.is_some_and(|need| room < need) {
        return Err(SpreadError::Unsatisfiable);
    }
    let name = |index: usize| candidates[index].cluster.metadata.name.as_deref().unwrap_or_default();
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|&index| (!candidates[index].current, Reverse(candidates[index].room), name(index)));
    let mut by_room = order.clone();
    by_room.sort_by_key(|&index| (Reverse(candidates[index].room), name(index)));
    [order, by_room]
        .iter()
        .find_map(|order| {
            Search { rules: &rules, candidates, order, need, budget: SEARCH_BUDGET, seen: BTreeSet::new() }
                .run()
        })
        .ok_or(SpreadError::Unsatisfiable)
}

/// How many sets are looked at. Only constraints that pull in different directions need more than a few, and
/// a search among a hundred clusters must not hold up the decisions for other workloads.
const SEARCH_BUDGET: u32 = 2_000;

/// One constraint, with the groups of each candidate.
struct Rule {
    min: u64,
    max: u64,
    groups: Vec<BTreeSet<String>>,
}

impl Rule {
    fn new(constraint: &SpreadConstraint, candidates: &[Candidate<'_>]) -> Self {
        let key = Key::of(constraint);
        Self {
            min: u64::try_from(constraint.min_groups).unwrap_or(0).max(1),
            max: u64::try_from(constraint.max_groups).ok().filter(|max| *max > 0).unwrap_or(u64::MAX),
            groups: candidates.iter().map(|candidate| key.groups(candidate.cluster)).collect(),
        }
    }

    fn used(&self, chosen: &[usize]) -> BTreeSet<&str> {
        chosen.iter().flat_map(|&index| &self.groups[index]).map(String::as_str).collect()
    }

    fn allows(&self, used: &BTreeSet<&str>, index: usize) -> bool {
        let new = self.groups[index].iter().filter(|group| !used.contains(group.as_str())).count();
        !self.groups[index].is_empty() && (used.len() + new) as u64 <= self.max
    }
}

/// Looks for a set that meets every minimum, then adds all that every maximum allows.
///
/// As long as a minimum is not met, any set that meets it has a cluster that adds a group to it: trying those
/// clusters in turn finds a set if there is one.
struct Search<'a> {
    rules: &'a [Rule],
    candidates: &'a [Candidate<'a>],
    order: &'a [usize],
    need: Option<u64>,
    budget: u32,
    /// Sets that were looked at, whatever the order in which they came together.
    seen: BTreeSet<Vec<usize>>,
}

impl Search<'_> {
    fn run(mut self) -> Option<Vec<usize>> {
        self.extend(&mut Vec::new())
    }

    fn extend(&mut self, chosen: &mut Vec<usize>) -> Option<Vec<usize>> {
        let mut set = chosen.clone();
        set.sort_unstable();
        if !self.seen.insert(set) {
            return None;
        }
        self.budget = self.budget.checked_sub(1)?;
        let (rules, order) = (self.rules, self.order);
        let used: Vec<_> = rules.iter().map(|rule| rule.used(chosen)).collect();
        let Some(open) = rules.iter().zip(&used).position(|(rule, used)| (used.len() as u64) < rule.min)
        else {
            return self.fill(chosen.clone());
        };
        for &index in order {
            let helps = rules[open].groups[index].iter().any(|group| !used[open].contains(group.as_str()));
            if helps && rules.iter().zip(&used).all(|(rule, used)| rule.allows(used, index)) {
                chosen.push(index);
                let found = self.extend(chosen);
                chosen.pop();
                if found.is_some() || self.budget == 0 {
                    return found;
                }
            }
        }
        None
    }

    fn fill(&self, mut chosen: Vec<usize>) -> Option<Vec<usize>> {
        let mut used: Vec<_> = self.rules.iter().map(|rule| rule.used(&chosen)).collect();
        for &index in self.order {
            let allowed = self.rules.iter().zip(&used).all(|(rule, used)| rule.allows(used, index));
            if allowed && !chosen.contains(&index) {
                chosen.push(index);
                for (rule, used) in self.rules.iter().zip(&mut used) {
                    used.extend(rule.groups[index].iter().map(String::as_str));
                }
            }
        }
        let room: u64 = chosen.iter().map(|&index| self.candidates[index].room).sum();
        chosen.sort_unstable();
        self.need.is_none_or(|need| room >= need).then_some(chosen)
    }
}

#[cfg(test)]
mod tests;
