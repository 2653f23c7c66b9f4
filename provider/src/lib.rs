//! A member cluster, or a region of one, behind the contracts of the virtual kubelet.
//!
//! Most of it decides and does nothing: no client, no clock, no I/O. Reading that part in the order of a pod's life:
//! [`names`] says where a pod goes, [`translate`] what is sent there, [`references`] what must be there first, [`copy`]
//! what that looks like there, [`update`] what may change later, [`status`] what comes back, and [`capacity`] how much
//! room there is. [`site`] is where both clusters meet. [`fleet`] is the node whose pods have a copy in each of several
//! clusters.

pub mod api;
pub mod capacity;
pub mod cluster;
pub mod clusters;
pub mod copied;
pub mod copy;
pub mod errors;
pub mod fleet;
pub mod follow;
pub mod join;
mod json;
pub mod marks;
pub mod member;
pub mod names;
pub mod quantity;
pub mod references;
pub mod rights;
pub mod selector;
pub mod settings;
pub mod site;
pub mod status;
pub mod target;
pub mod translate;
pub mod update;
pub mod usage;
pub mod version;
pub mod watch;
