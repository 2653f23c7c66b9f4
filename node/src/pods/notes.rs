use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::contract::{Pod, PodKey};

/// How long after a create a provider may fail to show the pod without its being lost.
const APPEARING: Duration = Duration::from_secs(60);

/// How long after a create it is no news that the pod has not started yet.
const STARTING: Duration = Duration::from_millis(500);

/// How long after a removal the watch may still show the pod.
const LEAVING: Duration = Duration::from_secs(10);

/// What this process remembers about pods. Nothing here is needed to be right, only to be quick and quiet: after a
/// restart it is empty.
#[derive(Default)]
pub(crate) struct Notes(Mutex<HashMap<PodKey, Note>>);

/// What the host is told about a pod: the digest of a report, and the generation of the pod that it is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) report: u64,
    pub(crate) observed: Option<i64>,
}

#[derive(Clone, Default)]
pub(crate) struct Note {
    uid: Box<str>,
    /// What the provider accepted last: its digest, and the generation it had.
    pub(crate) accepted: Option<(u64, Option<i64>)>,
    created: Option<Instant>,
    removed: Option<Instant>,
    /// What was written last, and the digest of the status that the host made of it. A host that drops a field it does
    /// not know must not be told for ever.
    pub(crate) written: Option<(Saying, u64)>,
    /// The trouble that was told last.
    pub(crate) told: Option<u64>,
}

impl Note {
    pub(crate) fn just_created(&self) -> bool {
        self.created.is_some_and(|at| at.elapsed() < APPEARING)
    }

    /// How much longer it is no news that the pod has not started.
    pub(crate) fn patience(&self) -> Option<Duration> {
        STARTING.checked_sub(self.created?.elapsed()).filter(|left| !left.is_zero())
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
        let notes = self.0.lock();
        notes.get(pod.key()).filter(|note| *note.uid == *pod.uid()).cloned().unwrap_or_default()
    }

    /// Changes what is known about this pod; what was known about an earlier one of the same name is forgotten.
    pub(crate) fn change(&self, pod: &Pod, change: impl FnOnce(&mut Note)) {
        let mut notes = self.0.lock();
        let note = notes.entry(pod.key().clone()).or_default();
        if *note.uid != *pod.uid() {
            *note = Note { uid: pod.uid().into(), ..Note::default() };
        }
        change(note);
    }

    pub(crate) fn forget(&self, key: &PodKey) {
        self.0.lock().remove(key);
    }

    /// What was accepted may not be what the provider would make of it now.
    pub(crate) fn reconsider(&self) {
        self.0.lock().values_mut().for_each(|note| note.accepted = None);
    }

    /// The same, for one pod.
    pub(crate) fn reconsider_one(&self, key: &PodKey) {
        if let Some(note) = self.0.lock().get_mut(key) {
            note.accepted = None;
        }
    }

    /// Everything is to be compared again.
    pub(crate) fn doubt(&self) {
        self.0.lock().values_mut().for_each(|note| {
            note.accepted = None;
            note.written = None;
        });
    }
}
