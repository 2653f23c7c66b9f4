//! Karmada's PropagationPolicy and OverridePolicy, expressed in what Kubernetes itself offers.
//!
//! The crate starts with the words of the API ([`api`]) and with decisions over them. Every decision is a
//! function without a client: it takes objects and gives back what shall be, so tables and properties can
//! test it, and a controller, a webhook and an offline simulation give the same answer.

pub mod affinity;
pub mod api;
pub mod claim;
pub mod divide;
pub mod labels;
pub mod matching;
pub mod object;
pub mod overrides;
pub mod place;
pub mod spread;
pub mod taints;
pub mod validate;
pub mod workload;
