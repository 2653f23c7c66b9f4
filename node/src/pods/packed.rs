use serde_json::Value;

use crate::{
    contract::{Phase, Pod},
    decide::desired_digest,
};

/// A pod at rest: its JSON as bytes, and what is asked about it often.
///
/// Parsed JSON takes several times the room, and most pods are looked at a few times in their life.
pub(crate) struct Packed {
    pub(crate) uid: Box<str>,
    pub(crate) desired: u64,
    pub(crate) grace: Option<u64>,
    pub(crate) phase: Phase,
    json: Box<[u8]>,
}

impl Packed {
    pub(crate) fn new(pod: &Pod) -> Self {
        Self {
            uid: pod.uid().into(),
            desired: desired_digest(pod),
            grace: pod.deletion().map(|d| d.grace.as_secs()),
            phase: pod.phase(),
            // A JSON value has string keys only, so writing it cannot fail.
            json: serde_json::to_vec(pod.json()).unwrap_or_default().into(),
        }
    }

    pub(crate) fn unpack(&self) -> Option<Pod> {
        let json: Value = serde_json::from_slice(&self.json).ok()?;
        Pod::try_from(json).ok()
    }

    /// Whether anything but the status and bookkeeping differs.
    pub(crate) fn wants_the_same(&self, other: &Self) -> bool {
        (&self.uid, self.desired, self.grace) == (&other.uid, other.desired, other.grace)
    }

    pub(crate) fn is_the_same(&self, other: &Self) -> bool {
        self.json == other.json
    }
}
