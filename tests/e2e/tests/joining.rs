//! Joining and leaving, as a person does it, and everything that can be wrong with it.
//!
//! A member can be joined once, so these tests play one after the other, each on a host that nobody joined.

#[path = "joining/again.rs"]
mod again;
#[path = "joining/alone.rs"]
mod alone;
#[path = "joining/choices.rs"]
mod choices;
#[path = "joining/claims.rs"]
mod claims;
#[path = "joining/commands.rs"]
mod commands;
#[path = "joining/conditions.rs"]
mod conditions;
#[path = "joining/doctor.rs"]
mod doctor;
#[path = "joining/ground.rs"]
mod ground;
#[path = "joining/leaving.rs"]
mod leaving;
#[path = "joining/life.rs"]
mod life;
#[path = "joining/refusals.rs"]
mod refusals;
#[path = "joining/replicas.rs"]
mod replicas;
#[path = "joining/settings.rs"]
mod settings;
#[path = "joining/sharing.rs"]
mod sharing;
#[path = "joining/skewed.rs"]
mod skewed;
