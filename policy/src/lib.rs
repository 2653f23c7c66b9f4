//! Karmada's PropagationPolicy and OverridePolicy, expressed in what Kubernetes itself offers.
//!
//! The crate starts with the words of the API ([`api`]) and with decisions over them. Every decision is a
//! function without a client: it takes objects and gives back what shall be, so tables and properties can
//! test it, and a controller, a webhook and an offline simulation give the same answer.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "a table reads better with `json!` than with `&json!`")
)]

pub mod affinity;
pub mod api;
pub mod claim;
mod conditions;
pub mod conflict;
pub mod control;
pub mod copies;
mod daemon;
pub mod decide;
pub mod depend;
mod digest;
pub mod divide;
pub mod effect;
pub mod estimate;
pub mod govern;
pub mod health;
pub mod inventory;
pub mod labels;
pub mod matching;
pub mod object;
pub mod overrides;
pub mod owners;
pub mod place;
pub mod placer;
pub mod propagate;
pub mod prune;
mod record;
pub mod render;
pub mod retain;
pub mod rewrite;
pub mod spread;
pub mod stamp;
pub mod status;
pub mod steer;
pub mod store;
pub mod survey;
mod tainted;
pub mod taints;
pub mod tell;
pub mod validate;
mod watching;
pub mod webhook;
pub mod workload;
pub mod yaml;
