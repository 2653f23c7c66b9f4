use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::{
    api::core::v1::{NodeCondition, NodeStatus, Taint},
    apimachinery::pkg::api::resource::Quantity,
};

use super::ProviderError;

/// The name of a virtual node: a DNS subdomain, as the API server demands.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(Arc<str>);

/// Why some text is not the name of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be the name of a node: use lower-case letters, digits, '-' and '.', \
     up to 63 characters, beginning and ending with a letter or digit"
)]
pub struct InvalidNodeName(String);

impl NodeName {
    /// Checks the name.
    ///
    /// The limit is 63 characters though the API server takes 253: the name is also the value of the label
    /// `kubernetes.io/hostname`.
    pub fn new(name: &str) -> Result<Self, InvalidNodeName> {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        let parts_are_whole =
            name.split('.').all(|part| edge(part.bytes().next()) && edge(part.bytes().next_back()));
        if name.len() <= 63 && name.bytes().all(inside) && parts_are_whole {
            Ok(Self(name.into()))
        } else {
            Err(InvalidNodeName(name.to_owned()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for NodeName {
    type Err = InvalidNodeName;

    fn from_str(name: &str) -> Result<Self, InvalidNodeName> {
        Self::new(name)
    }
}

/// Describes the node that the provider's pods run on.
#[async_trait]
pub trait NodeProvider: Send + Sync + 'static {
    /// Whether the provider can be reached, cheaply. Asked every few seconds, one question at a time, each with a
    /// timeout. Several failures in a row make the node NotReady with this error as its reason.
    async fn ping(&self) -> Result<(), ProviderError>;

    /// The conditions of the Node that another process left, or this one when it had the node before. Told before the first
    /// ping, so that a provider which speaks of itself in conditions need not change its mind at every restart.
    fn recall(&self, _conditions: &[NodeCondition]) {}

    /// What the node is like: first as it is now, then each time it changes.
    fn notify_node_status(&self) -> ReportStream;
}

/// What [`NodeProvider::notify_node_status`] returns.
pub type ReportStream = BoxStream<'static, NodeReport>;

/// A node as its provider sees it.
///
/// The controller adds what every virtual node has (labels, the taint, addresses, the kubelet's port, the Ready
/// condition), unless the report says it already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReport {
    /// Labels beyond those that every virtual node gets.
    pub labels: BTreeMap<String, String>,
    /// Labels that every virtual node gets and that are not true of this one: `kubernetes.io/arch` where machines of several
    /// kinds stand behind it.
    pub without: BTreeSet<String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Taints to register with. Afterwards taints belong to the people and controllers of the host.
    pub taints: Vec<Taint>,
    /// Capacity, allocatable, conditions, images, node info and so on.
    pub status: NodeStatus,
}

impl NodeReport {
    /// Says that the node has this much of a resource and that all of it can be used.
    #[must_use]
    pub fn with_capacity(mut self, resource: &str, amount: &str) -> Self {
        for amounts in [&mut self.status.capacity, &mut self.status.allocatable] {
            amounts.get_or_insert_default().insert(resource.to_owned(), Quantity(amount.to_owned()));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_what_the_api_server_takes() {
        for good in ["a", "member1", "ke-beijing-cluster", "a.b", "1"] {
            assert!(NodeName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", ".a", "a.", "a..b", "a.-b", "A", "a_b", "a/b", "ä", &"a".repeat(64)] {
            assert!(NodeName::new(bad).is_err(), "{bad}");
        }
    }
}
