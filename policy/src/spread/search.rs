//! Sets of clusters that meet constraints of any kind at once.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{Candidate, Key, Need, at_least, at_most};
use crate::api::SpreadConstraint;

/// The first set that meets all constraints. Clusters in use are preferred; if those have too little room, room alone
/// decides; and if the roomiest do not go together, every set is looked at, as far as there is time.
pub(super) fn select(
    constraints: &[SpreadConstraint],
    candidates: &[Candidate<'_>],
    order: &[usize],
    need: Need,
) -> Option<Vec<usize>> {
    let rules: Vec<Rule> = constraints.iter().map(|constraint| Rule::new(constraint, candidates)).collect();
    let need = match need {
        Need::Each(_) => None,
        Need::Together(replicas) => Some(replicas),
    };
    let room: u64 = candidates.iter().map(|candidate| candidate.room).sum();
    if need.is_some_and(|need| room < need) {
        return None;
    }
    let mut by_room = order.to_vec();
    by_room.sort_by_key(|&index| (Reverse(candidates[index].room), candidates[index].name()));
    let found = [order, &by_room].into_iter().find_map(|order| {
        Search { rules: &rules, candidates, order, need, budget: SEARCH_BUDGET, seen: BTreeSet::new() }.run()
    });
    found.or_else(|| {
        let mut search =
            Thorough { rules: &rules, candidates, order: &by_room, need: need?, budget: THOROUGH_BUDGET };
        let mut chosen = search.with_or_without(0, &mut vec![], 0)?;
        chosen.sort_unstable();
        Some(chosen)
    })
}

/// How many sets are looked at. Only constraints that pull in different directions need more than a few, and
/// a search among a hundred clusters must not hold up the decisions for other workloads.
const SEARCH_BUDGET: u32 = 2_000;

/// How many clusters are taken in or left out when every set is looked at.
const THOROUGH_BUDGET: u32 = 20_000;

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
            min: at_least(constraint),
            max: at_most(constraint),
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

/// Looks at every set in turn, the largest and roomiest first.
struct Thorough<'a> {
    rules: &'a [Rule],
    candidates: &'a [Candidate<'a>],
    order: &'a [usize],
    need: u64,
    budget: u32,
}

impl Thorough<'_> {
    /// Decides about the cluster at this place of the order, and all after it.
    fn with_or_without(&mut self, at: usize, chosen: &mut Vec<usize>, room: u64) -> Option<Vec<usize>> {
        self.budget = self.budget.checked_sub(1)?;
        let rest = self.order[at..].iter().map(|&index| self.candidates[index].room).sum::<u64>();
        if room.saturating_add(rest) < self.need {
            return None;
        }
        let used: Vec<_> = self.rules.iter().map(|rule| rule.used(chosen)).collect();
        let Some(&index) = self.order.get(at) else {
            let enough = self.rules.iter().zip(&used).all(|(rule, used)| used.len() as u64 >= rule.min);
            return enough.then(|| chosen.clone());
        };
        if self.rules.iter().zip(&used).all(|(rule, used)| rule.allows(used, index)) {
            chosen.push(index);
            let found =
                self.with_or_without(at + 1, chosen, room.saturating_add(self.candidates[index].room));
            chosen.pop();
            if found.is_some() {
                return found;
            }
        }
        self.with_or_without(at + 1, chosen, room)
    }
}
