//! Webster's method (Sainte-Laguë): the next replica goes to the cluster with the largest
//! `weight / (2 · replicas + 1)`.
//!
//! Quotients are compared as fractions of whole numbers, so large weights lose nothing.

use std::cmp::Ordering;

use crate::digest;

/// Decides between clusters with equal quotients and equally many replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreak {
    /// The name that comes first.
    #[default]
    FirstName,
    /// The name that comes last.
    LastName,
}

impl TieBreak {
    /// By the workload's UID, so that the odd replicas of many workloads do not all go to one cluster.
    #[must_use]
    pub fn by_uid(uid: &str) -> Self {
        if !uid.is_empty() && digest::short(uid) % 2 == 1 { Self::LastName } else { Self::FirstName }
    }

    fn compare(self, a: &str, b: &str) -> Ordering {
        match self {
            Self::FirstName => a.cmp(b),
            Self::LastName => b.cmp(a),
        }
    }
}

/// The cluster that the next replica goes to, given what each has. None if nobody has any weight.
#[must_use]
pub fn next(weights: &[(&str, u64)], seats: &[u32], ties: TieBreak) -> Option<usize> {
    let quotient = |index: usize| (u128::from(weights[index].1), 2 * u128::from(seats[index]) + 1);
    let before = |&a: &usize, &b: &usize| {
        let ((weight_a, divisor_a), (weight_b, divisor_b)) = (quotient(a), quotient(b));
        (weight_b * divisor_a)
            .cmp(&(weight_a * divisor_b))
            .then(seats[a].cmp(&seats[b]))
            .then_with(|| ties.compare(weights[a].0, weights[b].0))
    };
    (0..weights.len().min(seats.len())).filter(|&index| weights[index].1 > 0).min_by(before)
}

/// Divides `total` by weights. The answer has an entry for each weight, and its sum is `total`, unless there
/// is no weight at all.
#[must_use]
pub fn divide(total: u32, weights: &[(&str, u64)], ties: TieBreak) -> Vec<u32> {
    let mut seats = head_start(total, weights);
    let given: u64 = seats.iter().map(|seats| u64::from(*seats)).sum();
    for _ in given..u64::from(total) {
        let Some(index) = next(weights, &seats, ties) else { break };
        seats[index] += 1;
    }
    seats
}

/// Replicas that the method is sure to give, computed at once, so that a million replicas cost no more than a
/// hundred.
///
/// All quotients above a threshold are given before any below it. With `W` the sum of the weights and `n` the
/// number of clusters, the threshold `W / (2 · total - n)` is passed by at most `total` quotients and by at
/// least `total - n`.
fn head_start(total: u32, weights: &[(&str, u64)]) -> Vec<u32> {
    let sum: u128 = weights.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let scale = (2 * u128::from(total)).saturating_sub(weights.len() as u128);
    if sum == 0 || scale == 0 {
        return vec![0; weights.len()];
    }
    // How many odd numbers `2s + 1` are below `weight · scale / sum`.
    let sure = |weight: u64| (u128::from(weight) * scale + sum - 1) / (2 * sum);
    weights.iter().map(|(_, weight)| u32::try_from(sure(*weight)).unwrap_or(u32::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    fn named(weights: &[u64]) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(weights.iter().copied()).collect()
    }

    /// The method as it is defined, one replica at a time.
    fn one_by_one(total: u32, weights: &[(&str, u64)], ties: TieBreak) -> Vec<u32> {
        let mut seats = vec![0; weights.len()];
        for _ in 0..total {
            let Some(index) = next(weights, &seats, ties) else { break };
            seats[index] += 1;
        }
        seats
    }

    #[test]
    fn tables() {
        let first = TieBreak::FirstName;
        for (total, weights, ties, expected) in [
            (12, vec![6, 12, 18], first, vec![2, 4, 6]),
            (3, vec![1, 1], first, vec![2, 1]),
            (3, vec![1, 1], TieBreak::LastName, vec![1, 2]),
            (5, vec![1, 1, 0], first, vec![3, 2, 0]),
            (7, vec![2, 1], first, vec![5, 2]),
            // A tie of quotients goes to the one with fewer: 3/3 and 1/1 after the first.
            (2, vec![3, 1], first, vec![1, 1]),
            (9, vec![0, 0], first, vec![0, 0]),
            (0, vec![3], first, vec![0]),
            (4, vec![], first, vec![]),
            (u32::MAX, vec![1, 1], first, vec![u32::MAX / 2 + 1, u32::MAX / 2]),
            (u32::MAX, vec![u64::MAX, 0], first, vec![u32::MAX, 0]),
        ] {
            assert_eq!(divide(total, &named(&weights), ties), expected, "{total} by {weights:?}");
        }
    }

    #[test]
    fn the_uid_decides_ties() {
        assert_eq!(TieBreak::by_uid(""), TieBreak::FirstName);
        // FNV-1a of "a" is e40c292c, of "b" e70c2de5.
        assert_eq!(TieBreak::by_uid("a"), TieBreak::FirstName);
        assert_eq!(TieBreak::by_uid("b"), TieBreak::LastName);
    }

    fn weights() -> impl Strategy<Value = Vec<u64>> {
        let weight = prop_oneof![Just(0u64), 1..10u64, 1..1000u64, any::<u64>()];
        prop::collection::vec(weight, 1..6)
    }

    fn ties() -> impl Strategy<Value = TieBreak> {
        prop_oneof![Just(TieBreak::FirstName), Just(TieBreak::LastName)]
    }

    proptest! {
        #[test]
        fn it_is_the_method(total in 0..300u32, weights in weights(), ties in ties()) {
            let weights = named(&weights);
            prop_assert_eq!(divide(total, &weights, ties), one_by_one(total, &weights, ties));
        }

        #[test]
        fn it_sums_to_the_total(total in any::<u32>(), weights in weights(), ties in ties()) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let sum: u64 = divide(total, &named(&weights), ties).into_iter().map(u64::from).sum();
            prop_assert_eq!(sum, u64::from(total));
        }

        #[test]
        fn one_more_moves_none(total in 0..100_000u32, weights in weights(), ties in ties()) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let weights = named(&weights);
            let (less, more) = (divide(total, &weights, ties), divide(total + 1, &weights, ties));
            prop_assert!(less.iter().zip(&more).all(|(less, more)| less <= more));
        }

        #[test]
        fn more_weight_never_means_fewer(
            total in 0..10_000u32,
            weights in weights(),
            which in any::<prop::sample::Index>(),
            by in 1..1_000_000u64,
            ties in ties(),
        ) {
            let which = which.index(weights.len());
            let mut heavier = weights.clone();
            heavier[which] = heavier[which].saturating_add(by);
            let before = divide(total, &named(&weights), ties)[which];
            prop_assert!(divide(total, &named(&heavier), ties)[which] >= before);
        }

        #[test]
        fn the_heavier_has_at_least_as_many(total in 0..10_000u32, weights in weights(), ties in ties()) {
            let seats = divide(total, &named(&weights), ties);
            for (a, weight_a) in weights.iter().enumerate() {
                for (b, weight_b) in weights.iter().enumerate() {
                    prop_assert!(weight_a <= weight_b || seats[a] >= seats[b]);
                }
            }
        }

        /// Room as weight never overfills.
        #[test]
        fn within_room_if_room_suffices(rooms in prop::collection::vec(0..1000u64, 1..6), part in 0.0..=1.0f64) {
            let total = (rooms.iter().sum::<u64>() as f64 * part) as u32;
            let seats = divide(total, &named(&rooms), TieBreak::FirstName);
            prop_assert!(seats.iter().zip(&rooms).all(|(seats, room)| u64::from(*seats) <= *room));
        }
    }
}
