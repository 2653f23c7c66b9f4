//! A virtual kubelet.
//!
//! This crate holds the kubelet's side of Federlet: the contracts that a provider implements, the controllers
//! that drive it, and the HTTPS API that the host's API server calls. It knows nothing of clusters.

pub mod api;
pub mod client;
pub mod contract;
pub mod decide;
pub mod memory;
pub mod metrics;
pub mod node;
pub mod pods;
mod virtual_node;

pub use virtual_node::{VirtualNode, VirtualNodeSettings};
