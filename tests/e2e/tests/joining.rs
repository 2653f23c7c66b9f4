//! Joining and leaving, as a person does it, and everything that can be wrong with it.
//!
//! A member can be joined once, so these tests play one after the other, each on a host that nobody joined.

#[path = "joining/alone.rs"]
mod alone;
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
