use crate::{
    PackedJson,
    contract::{Phase, Pod},
    decide::desired_digest,
};

/// A pod at rest, and what is asked about it often.
pub(crate) struct Packed {
    pub(crate) uid: Box<str>,
    pub(crate) desired: u64,
    pub(crate) grace: Option<u64>,
    pub(crate) phase: Phase,
    json: PackedJson,
}

impl Packed {
    pub(crate) fn new(pod: &Pod) -> Self {
        Self {
            uid: pod.uid().into(),
            desired: desired_digest(pod),
            grace: pod.deletion().map(|d| d.grace.as_secs()),
            phase: pod.phase(),
            json: PackedJson::new(pod.json()),
        }
    }

    pub(crate) fn unpack(&self) -> Option<Pod> {
        Pod::try_from(self.json.open()).ok()
    }

    /// Whether anything but the status and bookkeeping differs.
    pub(crate) fn wants_the_same(&self, other: &Self) -> bool {
        (&self.uid, self.desired, self.grace) == (&other.uid, other.desired, other.grace)
    }

    pub(crate) fn is_the_same(&self, other: &Self) -> bool {
        self.json == other.json
    }
}
