use std::{collections::BTreeMap, str::FromStr};

use super::Resources;
use crate::quantity::{Quantity, QuantityError};

/// The most that the owner of a member grants, by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits(BTreeMap<String, Limit>);

/// The most of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Thousandths of what the machines have to give.
    Share(u16),
    /// So much.
    Amount(Quantity),
}

/// Why some text is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Not a share.
    #[error("{0:?} is not a share: write 0% to 100%, with at most one decimal")]
    Share(String),
    /// Less than nothing.
    #[error("a limit cannot be negative")]
    Negative,
    /// Not a quantity either.
    #[error(transparent)]
    Amount(#[from] QuantityError),
}

impl FromStr for Limit {
    type Err = LimitError;

    /// Reads `50%`, `12.5%` or a quantity.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let Some(share) = text.trim().strip_suffix('%') else {
            let amount: Quantity = text.trim().parse()?;
            return if amount.is_negative() { Err(LimitError::Negative) } else { Ok(Self::Amount(amount)) };
        };
        let wrong = || LimitError::Share(text.chars().take(40).collect());
        let (whole, tenth) = share.split_once('.').unwrap_or((share, "0"));
        let digits = |part: &str, most: usize| {
            let fits = (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            fits.then(|| part.parse::<u16>().ok()).flatten().ok_or_else(wrong)
        };
        match digits(whole, 3)? * 10 + digits(tenth, 1)? {
            permille @ 0..=1000 => Ok(Self::Share(permille)),
            _ => Err(wrong()),
        }
    }
}

impl Limits {
    /// Limits by the name of the resource.
    pub fn new(limits: impl IntoIterator<Item = (String, Limit)>) -> Self {
        Self(limits.into_iter().collect())
    }

    /// Cuts amounts to limits that do not depend on how many machines there are.
    pub(super) fn cap_amounts(&self, amounts: &mut Resources) {
        for (resource, limit) in &self.0 {
            if let (Limit::Amount(most), true) = (limit, amounts.has(resource)) {
                amounts.set(resource, amounts.get(resource).min(*most));
            }
        }
    }

    /// Cuts each amount to its limit; shares are of `gross`.
    pub(super) fn cap(&self, amounts: &mut Resources, gross: &Resources) {
        for (resource, limit) in &self.0 {
            if !amounts.has(resource) {
                continue;
            }
            let most = match limit {
                Limit::Amount(amount) => *amount,
                Limit::Share(permille) => whole(resource, gross.get(resource).share(*permille)),
            };
            amounts.set(resource, amounts.get(resource).min(most));
        }
    }
}

/// CPUs are handed out in thousandths, everything else whole.
fn whole(resource: &str, amount: Quantity) -> Quantity {
    if resource == "cpu" {
        Quantity::milli(amount.steps_down(Quantity::milli(1)))
    } else {
        amount.floor_units()
    }
}
