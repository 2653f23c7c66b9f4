use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    contract::{NodeName, PodKey},
    decide::Backoff,
    metrics::Metrics,
};

/// No pause is longer. A pod may take years to end; what is said about it is heard at once, and what is not said is
/// noticed within this time.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The pods of one node that should be looked at.
///
/// A key waits at most once and is with one worker at most once; what happens to it meanwhile makes it wait again.
/// Every node has its own queue and its own workers, so a provider that hangs delays nobody else's pods.
pub(crate) struct WorkQueue {
    node: NodeName,
    state: Mutex<State>,
    wake: Notify,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<PodKey>,
    entries: HashMap<PodKey, Entry>,
    delayed: BTreeSet<(Instant, PodKey)>,
    closed: bool,
}

struct Entry {
    place: Place,
    failures: u32,
}

#[derive(Clone, Copy)]
enum Place {
    Waiting { since: Instant },
    Delayed { until: Instant, failed: bool },
    Running { again: Option<Urgency> },
}

/// Whether news ends a pause.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// An echo: whatever the pause is for, it goes on.
    Gentle,
    /// Something may have happened that nobody said. A pause after a failure goes on; one in which we only wait for
    /// what somebody would say is over.
    Unsaid,
    /// Something changed that may well make the difference.
    Now,
}

/// What a worker says about a key that it is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing more to do until something happens.
    Done,
    /// Look again after a while; nothing failed.
    After(Duration),
    /// It failed: look again after a pause that grows.
    Retry { backoff: Backoff, asked: Option<Duration> },
}

impl WorkQueue {
    pub(crate) fn new(node: NodeName, metrics: Arc<Metrics>) -> Self {
        Self { node, state: Mutex::default(), wake: Notify::new(), metrics }
    }

    /// Something about this pod changed: look at it now, also if it is in a pause.
    pub(crate) fn add(&self, key: &PodKey) {
        self.put(key, Urgency::Now);
    }

    /// Only its status on the host moved, perhaps by our own hand: a pause goes on.
    pub(crate) fn add_gently(&self, key: &PodKey) {
        self.put(key, Urgency::Gentle);
    }

    /// Changes may have been lost: look at it, unless it failed and is to be tried again anyway.
    pub(crate) fn add_unsaid(&self, key: &PodKey) {
        self.put(key, Urgency::Unsaid);
    }

    fn put(&self, key: &PodKey, urgency: Urgency) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let waiting = Place::Waiting { since: Instant::now() };
        match state.entries.get_mut(key) {
            None => {
                state.entries.insert(key.clone(), Entry { place: waiting, failures: 0 });
                state.waiting.push_back(key.clone());
            }
            Some(entry) => match &mut entry.place {
                Place::Waiting { .. } => return,
                Place::Running { again } => {
                    *again = (*again).max(Some(urgency));
                    return;
                }
                Place::Delayed { until, failed } => {
                    if urgency == Urgency::Gentle || (urgency == Urgency::Unsaid && *failed) {
                        return;
                    }
                    state.delayed.remove(&(*until, key.clone()));
                    entry.place = waiting;
                    state.waiting.push_back(key.clone());
                }
            },
        }
        self.metrics.queue_depth(&self.node, state.waiting.len());
        self.wake.notify_one();
    }

    /// Ends every pause: whatever was wrong is over.
    pub(crate) fn hurry(&self) {
        let paused: Vec<PodKey> = self.state.lock().delayed.iter().map(|(_, key)| key.clone()).collect();
        for key in &paused {
            self.add(key);
        }
    }

    /// No more work is given out.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_waiters();
        self.wake.notify_one();
    }

    /// The next key, when there is one; none when the queue is closed.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Taken> {
        loop {
            let woken = self.wake.notified();
            let next = {
                let mut state = self.state.lock();
                if state.closed {
                    return None;
                }
                state.release_due(Instant::now());
                if let Some((key, since, failures)) = state.start() {
                    // One wake-up may stand for several keys.
                    if !state.waiting.is_empty() {
                        self.wake.notify_one();
                    }
                    self.metrics.queue_depth(&self.node, state.waiting.len());
                    self.metrics.queue_wait(&self.node, since.elapsed());
                    return Some(Taken { queue: self.clone(), key, failures, finished: false });
                }
                state.delayed.first().map(|(at, _)| *at)
            };
            match next {
                Some(at) => drop(tokio::time::timeout_at(at, woken).await),
                None => woken.await,
            }
        }
    }

    fn finish(&self, key: &PodKey, outcome: Outcome) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.entries.get_mut(key) else {
            return;
        };
        let Place::Running { again } = entry.place else {
            return;
        };
        let pause = match outcome {
            Outcome::Done => {
                entry.failures = 0;
                None
            }
            Outcome::After(pause) => {
                entry.failures = 0;
                Some(pause)
            }
            Outcome::Retry { backoff, asked } => {
                entry.failures = entry.failures.saturating_add(1);
                Some(Backoff::spread(backoff.pause(entry.failures, asked)))
            }
        };
        let failed = matches!(outcome, Outcome::Retry { .. });
        match (again, pause) {
            (Some(Urgency::Now), _) | (Some(_), None) => {}
            (Some(_), Some(_)) if !failed => {}
            (_, Some(pause)) => {
                let until = now + pause.min(LONGEST);
                entry.place = Place::Delayed { until, failed };
                state.delayed.insert((until, key.clone()));
                self.wake.notify_one();
                return;
            }
            (None, None) => {
                state.entries.remove(key);
                return;
            }
        }
        entry.place = Place::Waiting { since: now };
        state.waiting.push_back(key.clone());
        self.metrics.queue_depth(&self.node, state.waiting.len());
        self.wake.notify_one();
    }
}

impl State {
    fn release_due(&mut self, now: Instant) {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
            && let Some((_, key)) = self.delayed.pop_first()
        {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.place = Place::Waiting { since: now };
                self.waiting.push_back(key);
            }
        }
    }

    fn start(&mut self) -> Option<(PodKey, Instant, u32)> {
        while let Some(key) = self.waiting.pop_front() {
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            let Place::Waiting { since } = entry.place else {
                continue;
            };
            entry.place = Place::Running { again: None };
            return Some((key, since, entry.failures));
        }
        None
    }
}

/// A key that is with a worker. Dropped without an outcome, because the worker panicked or was cancelled, the key is
/// tried again: no key can be stuck with a worker that is gone.
pub(crate) struct Taken {
    queue: Arc<WorkQueue>,
    key: PodKey,
    failures: u32,
    finished: bool,
}

impl Taken {
    pub(crate) const fn key(&self) -> &PodKey {
        &self.key
    }

    /// How often in a row it failed before.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn done(mut self, outcome: Outcome) {
        self.queue.finish(&self.key, outcome);
        self.finished = true;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.finished {
            self.queue.finish(&self.key, Outcome::Retry { backoff: Backoff::default(), asked: None });
        }
    }
}

#[cfg(test)]
mod tests;
