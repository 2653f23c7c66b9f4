//! How many replicas each cluster gets.
//!
//! Static weights are divided from scratch each time: the method is house monotone, so one replica more
//! never moves another. Measured weights change by themselves, so what is there stays: growth divides only
//! what is new, shrinking divides by what is there, in both cases among as few clusters as possible if the policy
//! says so.

mod overflow;
pub mod webster;

use std::{cmp::Reverse, collections::BTreeMap};

pub use overflow::Tier;
pub use webster::TieBreak;

use crate::{
    affinity,
    api::{
        Cluster, Placement, ReplicaDivisionPreference, ReplicaScheduling, ReplicaSchedulingType,
        StaticClusterWeight,
    },
};

/// Replicas by name of the cluster.
pub type Shares = BTreeMap<String, u32>;

/// A cluster that replicas may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the cluster.
    pub name: String,
    /// How many more replicas it has room for.
    pub free: u32,
    /// Its static weight.
    pub weight: u64,
}

/// How replicas are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Each cluster gets all.
    Duplicated,
    /// By fixed weights, whatever room there is.
    StaticWeights,
    /// By room.
    DynamicWeights,
    /// As few clusters as have room.
    Aggregated,
}

impl Method {
    /// The method of a placement.
    #[must_use]
    pub fn of(placement: &Placement) -> Self {
        let Some(ReplicaScheduling {
            replica_scheduling_type,
            replica_division_preference,
            weight_preference,
        }) = &placement.replica_scheduling
        else {
            return Self::Duplicated;
        };
        let dynamic = weight_preference.as_ref().is_some_and(|weights| weights.dynamic_weight.is_some());
        match (replica_scheduling_type, replica_division_preference.unwrap_or_default()) {
            (ReplicaSchedulingType::Duplicated, _) => Self::Duplicated,
            (ReplicaSchedulingType::Divided, ReplicaDivisionPreference::Aggregated) => Self::Aggregated,
            (ReplicaSchedulingType::Divided, ReplicaDivisionPreference::Weighted) if dynamic => {
                Self::DynamicWeights
            }
            (ReplicaSchedulingType::Divided, ReplicaDivisionPreference::Weighted) => Self::StaticWeights,
        }
    }

    /// Whether room in the clusters matters.
    #[must_use]
    pub fn looks_at_room(self) -> bool {
        matches!(self, Self::DynamicWeights | Self::Aggregated)
    }
}

/// Why replicas cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DivideError {
    /// There is no cluster to divide among.
    #[error("there is no cluster to divide {0} replicas among")]
    NoClusters(u32),
    /// The clusters have too little room for what is new.
    #[error("the clusters have room for {room} more replicas, {needed} are needed")]
    TooLittleRoom {
        /// Replicas to be placed.
        needed: u32,
        /// Replicas that fit.
        room: u64,
    },
}

/// The static weights of clusters: the largest weight of the rules that match, none for a cluster that no rule
/// matches. If no rule matches any cluster, or there is no rule, all weigh the same.
#[must_use]
pub fn static_weights(rules: &[StaticClusterWeight], clusters: &[&Cluster]) -> Vec<u64> {
    let weight = |cluster: &Cluster| {
        let matching = rules.iter().filter(|rule| affinity::check(&rule.target_cluster, cluster).is_ok());
        matching.map(|rule| u64::try_from(rule.weight).unwrap_or(0)).max().unwrap_or(0)
    };
    let weights: Vec<u64> = clusters.iter().map(|cluster| weight(cluster)).collect();
    if weights.iter().all(|weight| *weight == 0) { vec![1; clusters.len()] } else { weights }
}

/// What is known when replicas are divided.
#[derive(Clone, Copy, Debug)]
pub struct Division<'a> {
    /// How.
    pub method: Method,
    /// How many replicas.
    pub total: u32,
    /// Where they are now. Clusters that are no candidates any more do not count.
    pub previous: &'a Shares,
    /// Decides between equals.
    pub ties: TieBreak,
    /// Whether to forget where replicas are, because a person asked for a fresh decision.
    pub fresh: bool,
}

impl Division<'_> {
    /// Divides replicas among clusters. Each candidate has an entry, which may be zero.
    pub fn among(&self, candidates: &[Candidate]) -> Result<Shares, DivideError> {
        if candidates.is_empty() {
            return if self.total == 0 {
                Ok(Shares::new())
            } else {
                Err(DivideError::NoClusters(self.total))
            };
        }
        match self.method {
            Method::Duplicated => Ok(candidates.iter().map(|one| (one.name.clone(), self.total)).collect()),
            Method::StaticWeights => {
                let weights: Vec<_> = candidates.iter().map(|one| (one.name.as_str(), one.weight)).collect();
                Ok(self.named(candidates, &webster::divide(self.total, &weights, self.ties)))
            }
            Method::DynamicWeights | Method::Aggregated => self.sticky(candidates),
        }
    }

    fn named(&self, candidates: &[Candidate], seats: &[u32]) -> Shares {
        candidates.iter().zip(seats).map(|(one, seats)| (one.name.clone(), *seats)).collect()
    }

    fn sticky(&self, candidates: &[Candidate]) -> Result<Shares, DivideError> {
        let now: Vec<u32> =
            candidates.iter().map(|one| self.previous.get(&one.name).copied().unwrap_or(0)).collect();
        if self.fresh {
            // What runs there now makes room for itself.
            let room = |(one, now): (&Candidate, &u32)| Candidate {
                free: one.free.saturating_add(*now),
                ..one.clone()
            };
            let roomy: Vec<Candidate> = candidates.iter().zip(&now).map(room).collect();
            return self.grow(&roomy, &vec![0; now.len()], self.total);
        }
        let placed: u64 = now.iter().map(|count| u64::from(*count)).sum();
        match u32::try_from(placed) {
            Ok(placed) if placed <= self.total => self.grow(candidates, &now, self.total - placed),
            _ => {
                // What is there is the room: nothing is moved, only taken away.
                let there = |(one, now): (&Candidate, &u32)| Candidate { free: *now, ..one.clone() };
                let there: Vec<Candidate> = candidates.iter().zip(&now).map(there).collect();
                Ok(self.named(&there, &self.by_room(&there, &vec![0; now.len()], self.total)))
            }
        }
    }

    /// Adds replicas to what is there.
    fn grow(&self, candidates: &[Candidate], now: &[u32], more: u32) -> Result<Shares, DivideError> {
        let room: u64 = candidates.iter().map(|one| u64::from(one.free)).sum();
        if room < u64::from(more) {
            return Err(DivideError::TooLittleRoom { needed: more, room });
        }
        let added = self.by_room(candidates, now, more);
        let sums: Vec<u32> = now.iter().zip(added).map(|(now, added)| now + added).collect();
        Ok(self.named(candidates, &sums))
    }

    /// Divides replicas in proportion to room, among as few clusters as possible if that is asked for.
    fn by_room(&self, candidates: &[Candidate], now: &[u32], count: u32) -> Vec<u32> {
        let used = match self.method {
            Method::Aggregated => fewest(candidates, now, count),
            _ => vec![true; candidates.len()],
        };
        let room = |(one, used): (&Candidate, bool)| if used { u64::from(one.free) } else { 0 };
        let rooms = candidates.iter().zip(used).map(room);
        let weights: Vec<_> = candidates.iter().map(|one| one.name.as_str()).zip(rooms).collect();
        webster::divide(count, &weights, self.ties)
    }
}

/// Which clusters an aggregated division uses: those in use first, then those with most room, then those that run
/// more, until there is room for all.
fn fewest(candidates: &[Candidate], now: &[u32], more: u32) -> Vec<bool> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| {
        let rank = |index: usize| {
            let one = &candidates[index];
            (now[index] == 0, Reverse(one.free), Reverse(now[index]), &one.name)
        };
        rank(a).cmp(&rank(b))
    });
    let mut used = vec![false; candidates.len()];
    let mut room = 0;
    for index in order {
        if room >= u64::from(more) {
            break;
        }
        used[index] = true;
        room += u64::from(candidates[index].free);
    }
    used
}

#[cfg(test)]
mod tests;
