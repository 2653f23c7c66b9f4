//! Whether the member can be reached, slow to change its mind.

use federlet_node::{
    contract::ProviderError,
    node::{Health, PingThresholds},
};
use jiff::Timestamp;

/// Whether a member can be reached, and since when that is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Whether it answers.
    pub reachable: bool,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            reachable: false,
            reason: "Connecting".into(),
            message: "the member has not answered yet".into(),
            since: Timestamp::UNIX_EPOCH,
        }
    }
}

/// Listens to answers.
#[derive(Debug)]
pub(super) struct Watcher {
    health: Health,
    reach: Reach,
    ever: bool,
}

impl Default for Watcher {
    fn default() -> Self {
        Self { health: Health::new(PingThresholds::default()), reach: Reach::default(), ever: false }
    }
}

impl Watcher {
    /// Takes in an answer. True if it changed our mind.
    pub(super) fn hear(&mut self, answer: &Result<(), ProviderError>) -> bool {
        self.ever |= answer.is_ok();
        if !self.health.hear(answer.is_ok()) {
            return false;
        }
        self.reach = match answer {
            Ok(()) => Reach {
                reachable: true,
                reason: "Reachable".into(),
                message: "the member answers".into(),
                since: Timestamp::now(),
            },
            Err(error) => Reach {
                reachable: false,
                reason: error.reason().to_owned(),
                message: error.to_string(),
                since: Timestamp::now(),
            },
        };
        true
    }

    /// It answered before, to another process.
    pub(super) const fn answered_before(&mut self) {
        self.ever = true;
    }

    /// Whether it ever answered.
    pub(super) const fn ever(&self) -> bool {
        self.ever
    }

    /// What we think now.
    pub(super) fn now(&self) -> Reach {
        self.reach.clone()
    }
}
