//! Keeps a Node object on the host: registers it, renews its lease, reports its status.
//!
//! [`NodeController`] owns the object, [`NodeLease`] the heartbeat. They share nothing but the node's name, so a slow
//! status write never delays a heartbeat. What they write is computed in [`document`](self) functions without I/O.

mod controller;
mod document;
mod fence;
mod health;
mod lease;
mod reports;
mod settings;
mod version;

pub use controller::{NodeController, NodeError};
pub use document::{LEAVING_ANNOTATION, NodeTemplate, Readiness, metadata_document, status_document};
pub use fence::Fence;
pub use health::{Health, PingThresholds};
pub use lease::{Holding, NodeLease};
pub use settings::{NodeFacts, NodeSettings};
pub use version::HostVersion;
