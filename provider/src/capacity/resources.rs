use std::collections::BTreeMap;

use serde_json::Value;

use crate::{json::members, quantity::Quantity, translate::amount};

/// Amounts by the name of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<Box<str>, Quantity>);

impl Resources {
    /// Reads a resource list. An amount that cannot be read is not there: API servers let none through.
    pub fn read(list: Option<&Value>) -> Self {
        Self(members(list).filter_map(|(name, value)| Some((name.as_str().into(), amount(value)?))).collect())
    }

    /// How much of one resource.
    pub fn get(&self, resource: &str) -> Quantity {
        self.0.get(resource).copied().unwrap_or_default()
    }

    /// Whether the resource is there at all.
    pub fn has(&self, resource: &str) -> bool {
        self.0.contains_key(resource)
    }

    /// Sets one resource.
    pub fn set(&mut self, resource: &str, amount: Quantity) {
        self.0.insert(resource.into(), amount);
    }

    /// One by one, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            // Mostly it is there, and a new key would be made for nothing.
            match self.0.get_mut(name) {
                Some(own) => *own += amount,
                None => self.set(name, amount),
            }
        }
    }

    /// Takes back what was added before. What nothing is left of is not there any more.
    pub fn take_back(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if let Some(own) = self.0.get_mut(name) {
                *own -= amount;
                if own.is_zero() {
                    self.0.remove(name);
                }
            }
        }
    }

    /// Raises each amount to that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let own = self.0.entry(name.into()).or_insert(amount);
            *own = amount.max(*own);
        }
    }

    /// Lowers each amount to that of `other`.
    pub fn cut_to(&mut self, other: &Self) {
        for (name, own) in &mut self.0 {
            *own = other.get(name).min(*own);
        }
    }

    /// These resources without `other`, none below nothing. What only `other` has is not owed by anyone.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.iter().map(|(name, amount)| (name, (amount - other.get(name)).or_zero())).collect()
    }

    /// As a resource list for the API.
    pub fn to_json(&self) -> Value {
        Value::Object(
            self.iter().map(|(name, amount)| (name.to_owned(), amount.to_string().into())).collect(),
        )
    }
}

impl<'a> FromIterator<(&'a str, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (&'a str, Quantity)>>(all: I) -> Self {
        Self(all.into_iter().map(|(name, amount)| (name.into(), amount)).collect())
    }
}
