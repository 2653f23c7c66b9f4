//! Which pod has which position.

use std::collections::{BTreeMap, BTreeSet};

/// A pod that counts, in the order in which it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seat {
    /// Its cluster; none while it is gated.
    pub(super) cluster: Option<String>,
    /// Its position, from one; none if it does not say.
    pub(super) position: Option<u32>,
    /// The position that its name stands for, in a stateful set.
    pub(super) ordinal: Option<u32>,
}

/// What to do with pods, by their index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    /// These go to a cluster, with a position.
    pub(super) pins: Vec<(usize, String, u32)>,
    /// These stay where they are and get another position.
    pub(super) renumber: Vec<(usize, u32)>,
    /// These are more than their cluster should have.
    pub(super) surplus: Vec<usize>,
}

/// Gives positions of `sequence` to pods, of which there are as many.
///
/// Who has a position of its own cluster keeps it. New pods get the lowest that are free. Positions beyond the sequence
/// are for those that are too many: they are taken away first.
pub(super) fn assign(sequence: &[String], seats: &[Seat]) -> Assignment {
    if seats.iter().any(|seat| seat.ordinal.is_some()) {
        return by_ordinal(sequence, seats);
    }
    let mut free: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (index, cluster) in sequence.iter().enumerate() {
        free.entry(cluster).or_default().insert(index as u32 + 1);
    }
    let mut assignment = Assignment::default();
    let mut others = vec![];
    for (index, seat) in seats.iter().enumerate() {
        let Some(cluster) = seat.cluster.as_deref() else { continue };
        let own = free.get_mut(cluster).zip(seat.position);
        if !own.is_some_and(|(free, position)| free.remove(&position)) {
            others.push((index, cluster));
        }
    }
    // Those with the lowest positions were there first and stay.
    others.sort_by_key(|(index, _)| (seats[*index].position.unwrap_or(u32::MAX), *index));
    let mut beyond = sequence.len() as u32;
    for (index, cluster) in others {
        match free.get_mut(cluster).and_then(BTreeSet::pop_first) {
            Some(position) => assignment.renumber.push((index, position)),
            None => {
                beyond += 1;
                assignment.surplus.push(index);
                if seats[index].position.is_none_or(|position| position <= sequence.len() as u32) {
                    assignment.renumber.push((index, beyond));
                }
            }
        }
    }
    let mut left: Vec<u32> = free.into_values().flatten().collect();
    left.sort_unstable();
    let gated = seats.iter().enumerate().filter(|(_, seat)| seat.cluster.is_none());
    for ((index, _), position) in gated.zip(left) {
        assignment.pins.push((index, sequence[position as usize - 1].clone(), position));
    }
    assignment
}

/// A stateful set takes away the highest name whatever we say, so the name is the position.
fn by_ordinal(sequence: &[String], seats: &[Seat]) -> Assignment {
    let mut assignment = Assignment::default();
    for (index, seat) in seats.iter().enumerate() {
        let Some(ordinal) = seat.ordinal else { continue };
        let Some(wanted) = sequence.get(ordinal as usize) else { continue };
        match &seat.cluster {
            None => assignment.pins.push((index, wanted.clone(), ordinal + 1)),
            Some(cluster) if cluster != wanted => assignment.surplus.push(index),
            Some(_) => {}
        }
    }
    assignment
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        divide::{Method, Shares, webster},
        placer::sequence::sequence,
    };

    fn order(total: u32, weights: &[(&str, u64)]) -> Vec<String> {
        let divided = webster::divide(total, weights, webster::TieBreak::FirstName);
        let shares: Shares = weights.iter().map(|(name, _)| (*name).to_owned()).zip(divided).collect();
        sequence(Method::StaticWeights, &shares, weights, webster::TieBreak::FirstName)
    }

    /// Does what was said.
    fn act(seats: &mut [Seat], assignment: &Assignment) {
        for (index, cluster, position) in &assignment.pins {
            seats[*index].cluster = Some(cluster.clone());
            seats[*index].position = Some(*position);
        }
        for (index, position) in &assignment.renumber {
            seats[*index].position = Some(*position);
        }
    }

    fn counts(seats: &[Seat]) -> Vec<u32> {
        let count =
            |name: &str| seats.iter().filter(|seat| seat.cluster.as_deref() == Some(name)).count() as u32;
        vec![count("a"), count("b"), count("c")]
    }

    const WEIGHTS: [(&str, u64); 3] = [("a", 1), ("b", 2), ("c", 4)];

    #[test]
    fn names_of_stateful_sets_are_positions() {
        let order = order(3, &WEIGHTS[..2]);
        let seat = |ordinal, cluster: Option<&str>| Seat {
            cluster: cluster.map(str::to_owned),
            ordinal: Some(ordinal),
            position: None,
        };
        let assignment = assign(&order, &[seat(2, None), seat(0, Some("b")), seat(1, Some("b"))]);
        assert_eq!(assignment.pins, [(0, order[2].clone(), 3)]);
        assert_eq!((order[0].as_str(), order[1].as_str()), ("b", "a"));
        assert_eq!(assignment.surplus, [2]);
    }

    #[test]
    fn nothing_is_to_do_when_all_have_their_position() {
        let order = order(7, &WEIGHTS);
        let mut seats = vec![Seat::default(); 7];
        let first = assign(&order, &seats);
        act(&mut seats, &first);
        assert_eq!(counts(&seats), [1, 2, 4]);
        assert_eq!(assign(&order, &seats), Assignment::default());
    }

    proptest! {
        /// Scaled up and down as a ReplicaSet does it, divisions are exact and nothing is written twice.
        #[test]
        fn scaling_is_exact_and_moves_nothing(steps in prop::collection::vec(0..40u32, 1..12)) {
            let mut seats: Vec<Seat> = vec![];
            for total in steps {
                let missing = (total as usize).saturating_sub(seats.len());
                seats.extend(std::iter::repeat_n(Seat::default(), missing));
                // The least cost goes first, and our cost is the position with a minus.
                seats.sort_by_key(|seat| seat.position.unwrap_or(u32::MAX));
                seats.truncate(total as usize);
                let assignment = assign(&order(total, &WEIGHTS), &seats);
                prop_assert!(assignment.renumber.is_empty() && assignment.surplus.is_empty());
                act(&mut seats, &assignment);
                prop_assert_eq!(counts(&seats), webster::divide(total, &WEIGHTS, webster::TieBreak::FirstName));
            }
        }

        /// Whoever is lost, moving the surplus makes it exact again, and then nothing is left to do.
        #[test]
        fn losses_are_made_good(
            total in 1..30usize,
            lost in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            again in 0..3usize,
        ) {
            let mut seats = vec![Seat::default(); total];
            let first = assign(&order(total as u32, &WEIGHTS), &seats);
            act(&mut seats, &first);
            for index in lost {
                if !seats.is_empty() {
                    seats.swap_remove(index.index(seats.len()));
                }
            }
            seats.extend(std::iter::repeat_n(Seat::default(), again));
            let order = order(seats.len() as u32, &WEIGHTS);
            let mut rounds = 0;
            loop {
                let assignment = assign(&order, &seats);
                let pinned: BTreeSet<u32> = assignment.pins.iter().map(|(_, _, position)| *position).collect();
                prop_assert_eq!(pinned.len(), assignment.pins.len());
                act(&mut seats, &assignment);
                if assignment == Assignment::default() {
                    break;
                }
                for index in assignment.surplus {
                    seats[index] = Seat::default();
                }
                rounds += 1;
                prop_assert!(rounds < 4, "it does not come to rest");
            }
            let expected = webster::divide(seats.len() as u32, &WEIGHTS, webster::TieBreak::FirstName);
            prop_assert_eq!(counts(&seats), expected);
        }
    }
}
