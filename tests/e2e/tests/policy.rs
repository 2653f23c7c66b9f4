//! Karmada's policies on a real host: which pods go where, and what happens when anything changes.

#[path = "policy/changes.rs"]
mod changes;
#[path = "policy/division.rs"]
mod division;
#[path = "policy/examples.rs"]
mod examples;
#[path = "policy/failover.rs"]
mod failover;
#[path = "policy/faults.rs"]
mod faults;
#[path = "policy/kinds.rs"]
mod kinds;
#[path = "policy/overriding.rs"]
mod overriding;
#[path = "policy/played.rs"]
mod played;
#[path = "policy/refusals.rs"]
mod refusals;
#[path = "policy/room.rs"]
mod room;
#[path = "policy/thousand.rs"]
mod thousand;
#[path = "policy/words.rs"]
mod words;
