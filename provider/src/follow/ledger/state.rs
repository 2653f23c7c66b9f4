//! What is known of a copy, what is to be looked at, and what came out of it.

use std::time::Duration;

use federlet_node::contract::ProviderError;

use super::super::place::{Origin, Place};

/// What is known of one copy.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::follow) enum State {
    /// Nobody looked yet.
    Unknown,
    /// It is in the member as it should be.
    InPlace(Copied),
    /// The host has no such object, and neither has the member.
    Missing,
    /// The host has no such object any more. The last copy stays for those that use it, as on a kubelet's disk.
    Kept,
    /// The object never leaves the host.
    Refused(ProviderError),
    /// It did not work, and is tried again.
    Failed(ProviderError),
    /// No pod needs it, and nothing is left to do.
    Closed,
}

/// A copy as it was last written or seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::follow) struct Copied {
    /// Its UID in the member.
    pub(in crate::follow) uid: Box<str>,
    /// Its version in the member. Any other was not made by us.
    pub(in crate::follow) version: Box<str>,
    /// Of what it should be.
    pub(in crate::follow) digest: u64,
}

/// What came out of looking at a place.
#[derive(Debug)]
pub(in crate::follow) struct Finished {
    pub(in crate::follow) state: State,
    /// The version of the host's object that this is about; none if there is no such object.
    pub(in crate::follow) host_version: Option<Box<str>>,
    /// When to look again without being told.
    pub(in crate::follow) again: Option<Duration>,
}

impl From<State> for Finished {
    fn from(state: State) -> Self {
        Self { state, host_version: None, again: None }
    }
}

/// A place to look at.
#[derive(Clone, Debug)]
pub(in crate::follow) struct Job {
    pub(in crate::follow) place: Place,
    /// What it is made from; unknown for what an earlier process left.
    pub(in crate::follow) origin: Option<Origin>,
    /// Whether any pod needs it.
    pub(in crate::follow) wanted: bool,
    /// Whether some pod has seen it, and would miss it.
    pub(in crate::follow) seen: bool,
    /// What was known before.
    pub(in crate::follow) state: State,
}

impl State {
    /// Whether what the member announced of a copy is what we know anyway.
    pub(super) fn explains(&self, uid: &str, version: Option<&str>) -> bool {
        match (self, version) {
            (Self::InPlace(known), Some(version)) => (&*known.uid, &*known.version) == (uid, version),
            // The one that we replaced by another may be announced as gone afterwards.
            (Self::InPlace(known), None) => *known.uid != *uid,
            (Self::Kept, Some(_)) => true,
            (Self::Kept, None) => false,
            (_, None) => true,
            (_, Some(_)) => false,
        }
    }
}
