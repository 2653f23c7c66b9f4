//! Whether the member can be reached, slow to change its mind.

use federlet_node::{
    contract::ProviderError,
    node::{Health, PingThresholds},
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1::Time};

use super::REACHABLE;
use crate::settings::Offline;

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

impl Reach {
    /// Whether it is known that the member does not answer. Before it was first asked, it is not.
    pub fn is_away(&self) -> bool {
        !self.reachable && self.is_known()
    }

    /// As conditions word it.
    pub(super) const fn status(&self) -> &'static str {
        if self.reachable { "True" } else { "False" }
    }

    /// What the Node says of it.
    pub(super) fn condition(&self) -> NodeCondition {
        NodeCondition {
            type_: REACHABLE.into(),
            status: self.status().into(),
            reason: Some(self.reason.clone()),
            message: Some(self.message.clone()),
            last_transition_time: Some(Time(self.since)),
            last_heartbeat_time: None,
        }
    }

    /// Whether it was asked, or another process said how it is.
    pub(super) fn is_known(&self) -> bool {
        self.since > Timestamp::UNIX_EPOCH
    }
}

/// Whose word counts about a pod of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The member's.
    Members,
    /// The host's own, which is out of date: nobody can say whether the pod is Ready.
    OutOfReach,
    /// The host's own, until the member was asked: what was remembered of the pod may be old.
    Hosts,
}

impl Word {
    /// Where a member that does not answer makes its node NotReady, that says it all.
    pub(super) fn about(offline: Offline, reach: &Reach) -> Self {
        match offline {
            Offline::Keep if reach.is_away() => Self::OutOfReach,
            Offline::Keep if !reach.is_known() => Self::Hosts,
            _ => Self::Members,
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

    /// Goes on from what another process said of it last: one lost answer after a restart must not take traffic from pods.
    pub(super) fn recall(&mut self, said: &NodeCondition) {
        let reachable = match said.status.as_str() {
            "True" => true,
            "False" => false,
            _ => return,
        };
        let Some(since) = &said.last_transition_time else { return };
        self.health = Health::recalled(PingThresholds::default(), reachable);
        self.reach = Reach {
            reachable,
            reason: said.reason.clone().unwrap_or_default(),
            message: said.message.clone().unwrap_or_default(),
            since: since.0,
        };
        self.ever |= reachable;
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

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn reach(reachable: bool, since: Timestamp) -> Reach {
        Reach { reachable, since, ..Reach::default() }
    }

    fn said(status: &str, since: Option<Timestamp>) -> NodeCondition {
        NodeCondition {
            type_: "MemberReachable".into(),
            status: status.into(),
            reason: Some("Said".into()),
            last_transition_time: since.map(Time),
            ..NodeCondition::default()
        }
    }

    #[test]
    fn pods_are_called_out_of_reach_only_when_that_is_known() {
        let (never, away, there) = (Reach::default(), reach(false, THEN), reach(true, THEN));
        for (offline, reach, word) in [
            (Offline::Keep, &never, Word::Hosts),
            (Offline::Keep, &away, Word::OutOfReach),
            (Offline::Keep, &there, Word::Members),
            (Offline::Evict, &never, Word::Members),
            (Offline::Evict, &away, Word::Members),
            (Offline::Evict, &there, Word::Members),
        ] {
            assert_eq!(Word::about(offline, reach), word, "{offline:?} {reach:?}");
        }
    }

    #[test]
    fn a_restart_is_no_reason_to_change_our_mind() {
        let failed = || Err(ProviderError::unavailable("away"));
        // What was said before, the answers then, and what is thought after each.
        for (before, answers, thought) in [
            (Some("True"), vec![failed(), failed(), failed()], vec![true, true, false]),
            (Some("False"), vec![Ok(()), Ok(())], vec![false, true]),
            (Some("Unknown"), vec![failed()], vec![false]),
            (None, vec![Ok(())], vec![true]),
        ] {
            let mut watcher = Watcher::default();
            if let Some(status) = before {
                watcher.recall(&said(status, Some(THEN)));
            }
            let recalled = matches!(before, Some("True" | "False"));
            assert_eq!(watcher.now().is_known(), recalled, "{before:?}");
            if recalled {
                assert_eq!((watcher.now().since, &*watcher.now().reason), (THEN, "Said"));
            }
            for (answer, thought) in answers.iter().zip(thought) {
                watcher.hear(answer);
                assert_eq!(watcher.now().reachable, thought, "{before:?} {answers:?}");
            }
            assert!(watcher.now().is_known());
        }
        let mut watcher = Watcher::default();
        watcher.recall(&said("True", None));
        assert!(!watcher.now().is_known(), "it does not say since when");
    }
}
