//! Every member of a host, served by one process or by several together.
//!
//! [`Clusters`] watches Clusters and their Secrets and gives each member a task. A task decides what to do (`plan`),
//! connects (`connection`), serves the node (`node`), keeps its labels and taints (`keeper`), says how it is
//! (`conditions`, `status`), and in the end leaves (`depart`). [`Replicas`] says which of several processes does it, and
//! `approve` lets the kubelet API of a new node be used at once.

mod alone;
mod approve;
mod conditions;
mod connection;
mod context;
mod controller;
mod depart;
mod fleet;
mod identity;
mod installation;
mod keeper;
mod member;
mod node;
mod plan;
mod replicas;
mod status;
mod tasks;

pub use alone::{Alone, AloneError, MemberFile};
pub use approve::Vouched;
pub use conditions::{REACHABLE, READY};
pub use context::{Certificates, HostContext, Ports, Serving};
pub use controller::Clusters;
pub use fleet::serve_fleet;
pub use keeper::UNREACHABLE_TAINT;
pub use plan::SERVED_BY;
pub use replicas::{Live, Replicas, any_live, live_replicas};
