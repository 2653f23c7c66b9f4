use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    contract::{Pod, PodKey},
    decide::OnTheWay,
};

/// How long after a create a provider may fail to show the pod without its being lost.
const APPEARING: Duration = Duration::from_secs(60);

/// How long after a create it is no news that the pod waits for somebody to begin with it. Of many pods at once the
/// last ones wait for many seconds, and each would cost the host a write that says nothing.
const ACCEPTED: Duration = Duration::from_secs(30);

/// How long after a create it is no news that containers are being made. People look for that word.
const PREPARING: Duration = Duration::from_millis(500);

/// How long after a removal the watch may still show the pod.
const LEAVING: Duration = Duration::from_secs(10);

/// What this process remembers about pods. Nothing here is needed to be right, only to be quick and quiet: after a
/// restart it is empty.
#[derive(Default)]
pub(crate) struct Notes(Mutex<Known>);

#[derive(Default)]
struct Known {
    notes: HashMap<PodKey, Note>,
    /// How often every pod was to be told again, and how often single ones were.
    all: u64,
    one: HashMap<PodKey, u64>,
}

/// How often a pod was to be told again, up to some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked(u64, u64);

impl Known {
    fn asked(&self, key: &PodKey) -> Asked {
        Asked(self.all, self.one.get(key).copied().unwrap_or_default())
    }

    fn note(&mut self, pod: &Pod) -> &mut Note {
        let note = self.notes.entry(pod.key().clone()).or_default();
        if *note.uid != *pod.uid() {
            *note = Note { uid: pod.uid().into(), ..Note::default() };
        }
        note
    }
}

/// What the host is told about a pod: the digest of a report, and the generation of the pod that it is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) report: u64,
    pub(crate) observed: Option<i64>,
}

#[derive(Clone, Default)]
pub(crate) struct Note {
    uid: Box<str>,
    /// The digest of what the provider accepted last; none if it is to be told again.
    pub(crate) accepted: Option<u64>,
    /// The generation that it had.
    pub(crate) observed: Option<i64>,
    created: Option<Instant>,
    removed: Option<Instant>,
    /// What was written last, and the digest of the status that the host made of it. A host that drops a field it does
    /// not know must not be told for ever.
    pub(crate) written: Option<(Saying, u64)>,
    /// Whether what was written last is how the pod ended.
    pub(crate) said_the_end: bool,
    /// The trouble that was told last.
    pub(crate) told: Option<u64>,
}

impl Note {
    /// Whether the provider took the pod so recently that it may not show it yet. If it is to be told again since, it may
    /// have had nothing to begin with, and has now.
    pub(crate) fn just_created(&self) -> bool {
        self.accepted.is_some() && self.created.is_some_and(|at| at.elapsed() < APPEARING)
    }

    /// How much longer it is no news that the pod has not started.
    pub(crate) fn patience(&self, far: OnTheWay) -> Option<Duration> {
        let usual = match far {
            OnTheWay::Accepted => ACCEPTED,
            OnTheWay::Preparing => PREPARING,
        };
        usual.checked_sub(self.created?.elapsed()).filter(|left| !left.is_zero())
    }

    pub(crate) fn just_removed(&self) -> bool {
        self.removed.is_some_and(|at| at.elapsed() < LEAVING)
    }

    pub(crate) fn removed_now(&mut self) {
        self.removed = Some(Instant::now());
    }

    pub(crate) fn created_now(&mut self) {
        self.created = Some(Instant::now());
    }
}

impl Notes {
    /// What is known about exactly this pod.
    pub(crate) fn of(&self, pod: &Pod) -> Note {
        let known = self.0.lock();
        known.notes.get(pod.key()).filter(|note| *note.uid == *pod.uid()).cloned().unwrap_or_default()
    }

    /// Changes what is known about this pod; what was known about an earlier one of the same name is forgotten.
    pub(crate) fn change(&self, pod: &Pod, change: impl FnOnce(&mut Note)) {
        change(self.0.lock().note(pod));
    }

    /// How often the pod was to be told again so far.
    pub(crate) fn asked(&self, key: &PodKey) -> Asked {
        self.0.lock().asked(key)
    }

    /// The provider has taken the pod as it is. If somebody asked meanwhile that it be told again, it is.
    pub(crate) fn accepted(&self, pod: &Pod, desired: u64, since: Asked) {
        let mut known = self.0.lock();
        let same = known.asked(pod.key()) == since;
        let note = known.note(pod);
        note.accepted = same.then_some(desired);
        note.observed = pod.generation();
    }

    pub(crate) fn forget(&self, key: &PodKey) {
        let mut known = self.0.lock();
        known.notes.remove(key);
        known.one.remove(key);
    }

    /// What was accepted may not be what the provider would make of it now. What the host was told it was told: it is
    /// compared with what the host has whenever it matters.
    pub(crate) fn reconsider(&self) {
        let mut known = self.0.lock();
        known.all += 1;
        known.notes.values_mut().for_each(|note| note.accepted = None);
    }

    /// The same, for one pod.
    pub(crate) fn reconsider_one(&self, key: &PodKey) {
        let mut known = self.0.lock();
        *known.one.entry(key.clone()).or_default() += 1;
        if let Some(note) = known.notes.get_mut(key) {
            note.accepted = None;
        }
    }
}
