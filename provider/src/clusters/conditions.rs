//! What a Cluster says about itself: `Ready` and `MemberReachable`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::capacity::NodeSummary;

/// Whether the node can be used.
pub const READY: &str = "Ready";
/// Whether the member answers.
pub const REACHABLE: &str = "MemberReachable";

/// What is to be said: one word and one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Say {
    /// Yes, no, or nobody knows.
    pub(super) status: Option<bool>,
    /// One word.
    pub(super) reason: String,
    /// For people.
    pub(super) message: String,
}

impl Say {
    /// It is so.
    pub(super) fn yes(reason: &str, message: impl Into<String>) -> Self {
        Self { status: Some(true), reason: reason.into(), message: message.into() }
    }

    /// It is not so.
    pub(super) fn no(reason: &str, message: impl Into<String>) -> Self {
        Self { status: Some(false), reason: word(reason), message: message.into() }
    }

    /// Nobody knows.
    pub(super) fn unknown(reason: &str, message: impl Into<String>) -> Self {
        Self { status: None, reason: reason.into(), message: message.into() }
    }

    /// As a condition, given those of before: a status that stays keeps its time.
    pub(super) fn condition(
        &self,
        kind: &str,
        before: &[Condition],
        generation: Option<i64>,
        now: Timestamp,
    ) -> Condition {
        let status = match self.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let since = before
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == status)
            .map_or_else(|| seconds(now), |condition| condition.last_transition_time.clone());
        Condition {
            type_: kind.into(),
            status: status.into(),
            reason: self.reason.clone(),
            message: self.message.chars().take(MESSAGE_LIMIT).collect(),
            observed_generation: generation,
            last_transition_time: since,
        }
    }
}

/// Whether the node of a member can be used, given whether the member answers and what machines it has, if that is known.
pub(super) fn ready(reachable: &Say, healthy: bool, machines: Option<NodeSummary>) -> Say {
    match reachable.status {
        Some(true) if healthy => Say::yes("ClusterReady", "the member answers and its node is served"),
        Some(true) if machines.is_some_and(|machines| machines.ready == 0) => {
            Say::no("ClusterNotReady", "the member answers, but none of its machines is Ready")
        }
        Some(true) => Say::no("ClusterNotReady", "the member answers, its node is not ready yet"),
        Some(false) => Say::no("ClusterNotReachable", reachable.message.clone()),
        None => Say::unknown("ClusterStatusUnknown", reachable.message.clone()),
    }
}

/// The API server refuses messages of 32 KiB; nobody reads more than this.
const MESSAGE_LIMIT: usize = 1024;

/// The API server keeps no parts of a second, and what differs would be written again and again.
fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// A reason is one word in the API; what comes from elsewhere may be anything.
fn word(reason: &str) -> String {
    let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let word: String = reason.chars().filter(is_word).take(64).collect();
    if word.starts_with(|c: char| c.is_ascii_alphabetic()) { word } else { "Unknown".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_stays_keeps_its_time() {
        let then: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
        let later: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let down = Say::no("NotReachable", "timeout").condition(REACHABLE, &[], Some(1), then);
        assert_eq!(down.last_transition_time.0.to_string(), "2026-01-01T00:00:00Z");
        let still =
            Say::no("Unauthorized", "no").condition(REACHABLE, std::slice::from_ref(&down), Some(2), later);
        assert_eq!(still.last_transition_time, down.last_transition_time);
        assert_eq!((still.reason.as_str(), still.observed_generation), ("Unauthorized", Some(2)));
        let up = Say::yes("Reachable", "").condition(REACHABLE, &[still], None, later);
        assert_eq!(up.last_transition_time.0, later);
    }

    #[test]
    fn a_member_that_answers_is_not_called_out_of_reach() {
        let (there, away) = (Say::yes("Reachable", "it answers"), Say::no("NotReachable", "timeout"));
        let machines = |ready| Some(NodeSummary { total: 2, ready });
        for (reachable, healthy, machines, reason, message) in [
            (&there, true, machines(2), "ClusterReady", "its node is served"),
            (&there, false, machines(0), "ClusterNotReady", "none of its machines is Ready"),
            (&there, false, machines(1), "ClusterNotReady", "not ready yet"),
            (&there, false, None, "ClusterNotReady", "not ready yet"),
            (&away, false, machines(2), "ClusterNotReachable", "timeout"),
            // A region that keeps its pods.
            (&away, true, machines(2), "ClusterNotReachable", "timeout"),
            (&Say::unknown("Connecting", "not yet"), false, None, "ClusterStatusUnknown", "not yet"),
        ] {
            let said = ready(reachable, healthy, machines);
            assert!(said.reason == reason && said.message.contains(message), "{said:?}");
        }
    }

    #[test]
    fn reasons_are_words() {
        for (given, word) in
            [("NoReadyNodes", "NoReadyNodes"), ("a b/c", "abc"), ("", "Unknown"), ("1", "Unknown")]
        {
            assert_eq!(Say::no(given, "").reason, word);
        }
    }
}
