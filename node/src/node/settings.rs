use std::time::Duration;

use tokio::sync::watch;

use super::{fence::Fence, health::PingThresholds};

/// How a [`NodeController`](super::NodeController) works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// How often the provider is asked whether it is well.
    pub ping_every: Duration,
    /// How long it may take to answer.
    pub ping_timeout: Duration,
    /// How many answers change our mind.
    pub thresholds: PingThresholds,
    /// How often the status is written when nothing changed.
    pub status_every: Duration,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
            thresholds: PingThresholds::default(),
            status_every: Duration::from_secs(300),
        }
    }
}

/// What others want to know about a node, as it changes.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Whether it is Ready; none while nobody can say.
    pub healthy: watch::Sender<Option<bool>>,
    /// The UID of the Node object, while there is one.
    pub uid: watch::Sender<Option<String>>,
    /// Whether it is being removed on purpose, and must not come back.
    pub leaving: watch::Sender<bool>,
    /// Whether this process may act for it.
    pub fence: Fence,
}

impl Default for NodeFacts {
    fn default() -> Self {
        let (healthy, uid) = (watch::Sender::new(None), watch::Sender::new(None));
        Self { healthy, uid, leaving: watch::Sender::new(false), fence: Fence::default() }
    }
}
