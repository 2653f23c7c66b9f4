//! Tiers of clusters: filled in order, emptied in reverse.

use super::{Candidate, DivideError, Division, Shares};

/// The clusters of one tier, the preferred tier first.
pub type Tier = Vec<Candidate>;

impl Division<'_> {
    /// Divides replicas among tiers: a tier gets what the tiers before it have no room for. A cluster that is
    /// in several tiers counts in the first.
    pub fn among_tiers(&self, tiers: &[Tier]) -> Result<Shares, DivideError> {
        let tiers = distinct(tiers);
        let all: Vec<&Candidate> = tiers.iter().flatten().collect();
        if all.is_empty() {
            return self.among(&[]);
        }
        let now =
            |one: &Candidate| if self.fresh { 0 } else { self.previous.get(&one.name).copied().unwrap_or(0) };
        let room = |one: &Candidate| {
            let back = if self.fresh { self.previous.get(&one.name).copied().unwrap_or(0) } else { 0 };
            u64::from(one.free) + u64::from(back)
        };
        let placed: u64 = all.iter().map(|one| u64::from(now(one))).sum();
        let total = u64::from(self.total);
        let (mut more, mut fewer) = (total.saturating_sub(placed), placed.saturating_sub(total));
        let free: u64 = all.iter().map(|one| room(one)).sum();
        if more > free {
            let needed = u32::try_from(more).unwrap_or(u32::MAX);
            return Err(DivideError::TooLittleRoom { needed, room: free });
        }

        // How many replicas each tier ends up with: growth fills from the front, shrinking empties from the back.
        let mut totals: Vec<u64> =
            tiers.iter().map(|tier| tier.iter().map(|one| u64::from(now(one))).sum()).collect();
        for (tier, total) in tiers.iter().zip(&mut totals) {
            let added = more.min(tier.iter().map(&room).sum());
            *total += added;
            more -= added;
        }
        for total in totals.iter_mut().rev() {
            let removed = fewer.min(*total);
            *total -= removed;
            fewer -= removed;
        }

        let mut shares = Shares::new();
        for (tier, total) in tiers.iter().zip(totals) {
            let total = u32::try_from(total).unwrap_or(u32::MAX);
            shares.extend(Division { total, ..*self }.among(tier)?);
        }
        Ok(shares)
    }
}

/// The tiers, each cluster only in the first that has it.
fn distinct(tiers: &[Tier]) -> Vec<Tier> {
    let mut seen = std::collections::BTreeSet::new();
    tiers
        .iter()
        .map(|tier| tier.iter().filter(|one| seen.insert(one.name.as_str())).cloned().collect::<Tier>())
        .filter(|tier| !tier.is_empty())
        .collect()
}
