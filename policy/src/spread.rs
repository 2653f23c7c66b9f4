//! How many clusters, regions, zones, providers or labelled groups a workload uses.
//!
//! A limit that is not given is no limit. Clusters and regions are chosen exactly as Karmada chooses them; it knows
//! no other groups, so where zones, providers or labels matter too, a search looks for a set that meets all.

mod clusters;
mod regions;
mod search;

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
    /// Which tier of an overflow it is in; a cluster of an earlier tier comes first.
    pub tier: usize,
    /// Whether replicas of the workload are there already.
    pub current: bool,
    /// How many replicas it can hold, with those that are there already.
    pub room: u64,
}

impl Candidate<'_> {
    fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    /// What it is worth that replicas are there already.
    fn score(&self) -> u64 {
        if self.current { 100 } else { 0 }
    }
}

/// What the chosen clusters are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Each runs so many replicas, whether it has room for them or not.
    Each(u64),
    /// Together they run so many replicas.
    Together(u64),
}

/// Chooses clusters, as indexes of `candidates` in ascending order.
///
/// Clusters in use are preferred, then those with most room; as many are chosen as the constraints allow. If
/// the preferred ones have too little room together, those with more take the places of the last.
pub fn select(
    constraints: &[SpreadConstraint],
    candidates: &[Candidate<'_>],
    need: Need,
) -> Result<Vec<usize>, SpreadError> {
    if constraints.is_empty() {
        return Ok((0..candidates.len()).collect());
    }
    for constraint in constraints {
        let key = Key::of(constraint);
        let found = candidates.iter().flat_map(|one| key.groups(one.cluster)).collect::<BTreeSet<_>>().len();
        let (min, found) = (at_least(constraint), found as u64);
        if found < min {
            return Err(SpreadError::TooFewGroups { by: key.to_string(), min, found });
        }
    }
    let by = |field: SpreadField| constraints.iter().find(|one| Key::of(one) == Key::Field(field));
    let (cluster, region) = (by(SpreadField::Cluster), by(SpreadField::Region));
    let known = usize::from(cluster.is_some()) + usize::from(region.is_some());
    let order = in_order(candidates);
    let mut chosen = match (cluster, region) {
        _ if known < constraints.len() => search::select(constraints, candidates, &order, need),
        (cluster, Some(region)) => regions::select(cluster, region, candidates, &order, need),
        (Some(cluster), None) => clusters::select(cluster, candidates, &order, need),
        (None, None) => search::select(constraints, candidates, &order, need),
    }
    .ok_or(SpreadError::Unsatisfiable)?;
    chosen.sort_unstable();
    Ok(chosen)
}

/// Whether clusters are in more groups than one of the constraints allows.
pub(crate) fn exceeded(constraints: &[SpreadConstraint], clusters: &[&Cluster]) -> bool {
    constraints.iter().any(|constraint| {
        let key = Key::of(constraint);
        let used: BTreeSet<String> = clusters.iter().flat_map(|cluster| key.groups(cluster)).collect();
        used.len() as u64 > at_most(constraint)
    })
}

/// Candidates as indexes, the preferred first.
fn in_order(candidates: &[Candidate<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|&index| {
        let one = &candidates[index];
        (one.tier, Reverse(one.score()), Reverse(one.room), one.name())
    });
    order
}

/// Fewest groups to use.
fn at_least(constraint: &SpreadConstraint) -> u64 {
    u64::try_from(constraint.min_groups).unwrap_or(0).max(1)
}

/// Most groups to use.
fn at_most(constraint: &SpreadConstraint) -> u64 {
    u64::try_from(constraint.max_groups).ok().filter(|max| *max > 0).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
