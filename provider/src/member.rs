//! How a member is reached.
//!
//! A Cluster and its Secret say where the member is and who we are there: [`Way`] reads both, and refuses what could
//! make this process run a program or read a file. [`Access`] makes clients of it. They take the bearer token anew for
//! each request, so that a rotated one is used at once, and they pass a [`Gate`] that sees to it that the cluster at
//! the other end is still the one that joined.

mod access;
mod endpoint;
mod gate;
mod kubeconfig;
mod streaming;
mod trouble;
mod way;

pub use access::{Access, MemberFacts};
pub use endpoint::Endpoint;
pub use gate::{Gate, Identity, IdentityError};
pub use trouble::{Trouble, TroubleReason};
pub use way::{CA_KEY, KUBECONFIG_KEY, TOKEN_KEY, Token, Way, WayError};
