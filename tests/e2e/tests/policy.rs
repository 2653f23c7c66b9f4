//! Karmada's policies on a real host: which pods go where, and what happens when anything changes.

#[path = "policy/changes.rs"]
mod changes;
#[path = "policy/copies.rs"]
mod copies;
#[path = "policy/copies_life.rs"]
mod copies_life;
#[path = "policy/division.rs"]
mod division;
#[path = "policy/faults.rs"]
mod faults;
#[path = "policy/kinds.rs"]
mod kinds;
#[path = "policy/object_kinds.rs"]
mod object_kinds;
#[path = "policy/object_rules.rs"]
mod object_rules;
#[path = "policy/objects.rs"]
mod objects;
#[path = "policy/overriding.rs"]
mod overriding;
#[path = "policy/refusals.rs"]
mod refusals;
#[path = "policy/scene.rs"]
mod scene;
