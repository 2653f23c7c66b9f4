//! Decisions without I/O: what to do with a pod, what to write, what to look up first.
//!
//! Everything here is a function of what was seen. The controllers see and act; these say what follows.

mod backoff;
mod digest;
mod final_status;
mod references;
mod starting;
mod status;
mod step;

pub use backoff::Backoff;
pub use digest::{desired_digest, digest};
pub(crate) use final_status::seconds;
pub use final_status::{end_status, unready_patch, waiting_status};
pub use references::{Reference, ReferenceKind, references};
pub use starting::{OnTheWay, on_the_way};
pub use status::status_patch;
pub use step::{Rest, Seen, Step, next_step};
