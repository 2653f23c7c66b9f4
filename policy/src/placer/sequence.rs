//! Replicas in an order in which they come, and against which they go.
//!
//! Each replica of a workload has a position. The first `n` positions are the division of `n` replicas, so if new pods
//! take the lowest free position and the highest is taken away first, every division is exact without moving a pod.

use crate::divide::{
    Method, Shares,
    webster::{self, TieBreak},
};

/// The cluster of each position. `weights` are the static ones, used if the method goes by them.
pub(super) fn sequence(
    method: Method,
    shares: &Shares,
    weights: &[(&str, u64)],
    ties: TieBreak,
) -> Vec<String> {
    let total: u32 = shares.values().sum();
    match method {
        // As few clusters as possible: the smallest one is emptied first.
        Method::Aggregated | Method::Duplicated => {
            let mut order: Vec<_> = shares.iter().collect();
            order.sort_by(|(a, many), (b, few)| few.cmp(many).then_with(|| a.cmp(b)));
            order
                .into_iter()
                .flat_map(|(name, count)| std::iter::repeat_n(name.clone(), *count as usize))
                .collect()
        }
        Method::StaticWeights => by_weights(total, weights, ties),
        // Shrinking divides by what is there.
        Method::DynamicWeights => {
            let there: Vec<_> =
                shares.iter().map(|(name, share)| (name.as_str(), u64::from(*share))).collect();
            by_weights(total, &there, ties)
        }
    }
}

fn by_weights(total: u32, weights: &[(&str, u64)], ties: TieBreak) -> Vec<String> {
    let mut seats = vec![0; weights.len()];
    let mut order = Vec::with_capacity(total as usize);
    for _ in 0..total {
        let Some(next) = webster::next(weights, &seats, ties) else { break };
        seats[next] += 1;
        order.push(weights[next].0.to_owned());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_is_a_division() {
        let weights = [("a", 1), ("b", 2)];
        let shares = Shares::from([("a".into(), 3), ("b".into(), 6)]);
        let order = sequence(Method::StaticWeights, &shares, &weights, TieBreak::FirstName);
        for total in 0..=9 {
            let divided = webster::divide(total, &weights, TieBreak::FirstName);
            let count = |name: &str| order[..total as usize].iter().filter(|one| *one == name).count() as u32;
            assert_eq!(divided, [count("a"), count("b")], "{total}");
        }
    }

    #[test]
    fn the_smallest_part_goes_first() {
        let shares = Shares::from([("a".into(), 1), ("b".into(), 3)]);
        assert_eq!(sequence(Method::Aggregated, &shares, &[], TieBreak::FirstName), ["b", "b", "b", "a"]);
        let order = sequence(Method::DynamicWeights, &shares, &[], TieBreak::FirstName);
        assert_eq!((order.len(), order.iter().filter(|one| *one == "b").count()), (4, 3));
    }
}
