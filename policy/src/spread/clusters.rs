//! So many clusters.

use super::{Candidate, Need, at_most};
use crate::api::SpreadConstraint;

/// The first clusters in order, as many as the constraint allows. While they have too little room together, the last
/// of them gives its place to the one with most room outside, if that has more; then the one before it, and so on.
pub(super) fn select(
    constraint: &SpreadConstraint,
    candidates: &[Candidate<'_>],
    order: &[usize],
    need: Need,
) -> Option<Vec<usize>> {
    let count = usize::try_from(at_most(constraint)).unwrap_or(usize::MAX).min(order.len());
    let (mut inside, mut outside) = (order[..count].to_vec(), order[count..].to_vec());
    let Need::Together(replicas) = need else { return Some(inside) };
    let room = |index: usize| candidates[index].room;
    let enough = |inside: &[usize]| inside.iter().map(|&index| room(index)).sum::<u64>() >= replicas;
    for place in (0..count).rev() {
        if enough(&inside) {
            break;
        }
        // Of several with as much room the first one comes.
        let mut best: Option<usize> = None;
        for (at, &index) in outside.iter().enumerate() {
            let most = best.map_or(room(inside[place]), |best| room(outside[best]));
            if room(index) > most {
                best = Some(at);
            }
        }
        if let Some(best) = best {
            std::mem::swap(&mut inside[place], &mut outside[best]);
        }
    }
    enough(&inside).then_some(inside)
}
