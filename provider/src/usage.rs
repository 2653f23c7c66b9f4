//! What pods and machines use, as the kubelets of the member say it, in the host's terms.
//!
//! Each kubelet of the member reports its own machine; the host asks the virtual node, which stands for all of them. So
//! amounts of machines are added up, pods get the host's names, and pods that are not ours are left out. One pod or one
//! machine about which nothing is known does not spoil the rest.

mod counters;
mod metrics;
mod summary;

pub(crate) use self::metrics::{Sample, samples};
pub use self::{counters::Counters, metrics::merge_metrics, summary::merge_summaries};

/// A pod on the host: namespace, name and UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The host's name for a pod of the member, by namespace and name there; none for pods of others.
pub trait Names: Fn(&str, &str) -> Option<HostName> {}

impl<F: Fn(&str, &str) -> Option<HostName>> Names for F {}
