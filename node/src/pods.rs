//! Drives a provider from the host's pods.
//!
//! In the order in which a pod passes through: [`HostPods`] is the one watch of the host's pods; it puts the names of
//! those that changed into a queue per node; a [`PodController`] takes them out, decides with [`crate::decide`], and
//! acts on the provider and on the host.

mod controller;
mod events;
mod host;
mod notes;
mod packed;
mod queue;
mod references;
mod report;
mod sync;
mod view;

pub use controller::{PodController, PodSettings};
pub use events::Events;
pub use references::References;
pub use view::{HostPods, NodePods, Scope};

#[cfg(test)]
mod tests;
