//! A virtual kubelet.
//!
//! This crate holds the kubelet's side of Federlet: the contracts that a provider implements, the controllers
//! that drive it, and the HTTPS API that the host's API server calls. It knows nothing of clusters.

pub mod api;
pub mod client;
pub mod contract;
pub mod decide;
#[cfg(test)]
mod fake_api;
pub mod memory;
pub mod metrics;
pub mod node;
mod packed_json;
pub mod pods;
mod virtual_node;

/// The target of the spans that make a trace: one for each look at a pod, within it one for each call to the provider
/// and each write to the host.
pub const TRACE: &str = "federlet::trace";

/// What the documentation shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/providers.md")]
struct Providers;

pub use packed_json::PackedJson;
pub use virtual_node::{VirtualNode, VirtualNodeSettings};
