//! Tiers of clusters: filled in order, and so emptied in reverse.

use super::{Candidate, DivideError, Division, Shares};

/// The clusters of one tier, the preferred tier first.
pub type Tier = Vec<Candidate>;

impl Division<'_> {
    /// Divides replicas among tiers: a tier gets what the tiers before it have no room for, with those that are there
    /// already. So replicas come back when an earlier tier has room again. A cluster that is in several tiers counts in
    /// the first.
    pub fn among_tiers(&self, tiers: &[Tier]) -> Result<Shares, DivideError> {
        let tiers = distinct(tiers);
        if tiers.is_empty() {
            return self.among(&[]);
        }
        let now = |one: &Candidate| u64::from(self.previous.get(&one.name).copied().unwrap_or(0));
        let (mut shares, mut left, mut room) = (Shares::new(), self.total, 0);
        for tier in &tiers {
            let fits: u64 = tier.iter().map(|one| u64::from(one.free) + now(one)).sum();
            let taken = u32::try_from(fits).unwrap_or(u32::MAX).min(left);
            shares.extend(Division { total: taken, ..*self }.among(tier)?);
            left -= taken;
            room += fits;
        }
        if left > 0 {
            return Err(DivideError::TooLittleRoom { needed: self.total, room });
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
