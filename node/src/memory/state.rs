use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{sync::broadcast, time::Instant};

use super::{
    containers::{self, Run},
    journal::Journal,
};
use crate::contract::{Pod, PodId, PodKey, ProviderError};

/// Changes that a subscriber may be behind. Beyond that it is told to compare everything.
const BACKLOG: usize = 4096;

const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The pods, and the timers that end them.
pub(super) struct State {
    pods: Mutex<HashMap<PodKey, Held>>,
    changes: broadcast::Sender<PodKey>,
    run_for: Duration,
    journal: Mutex<Option<Journal>>,
}

struct Held {
    pod: Pod,
    run: Run,
    stop_at: Option<Instant>,
}

impl State {
    pub(super) fn new(run_for: Duration, mut journal: Option<Journal>) -> Arc<Self> {
        let restored = journal.as_mut().map(Journal::restored).unwrap_or_default();
        let (pods, changes) = (Mutex::default(), broadcast::Sender::new(BACKLOG));
        let state = Arc::new(Self { pods, changes, run_for, journal: Mutex::new(journal) });
        for (pod, run) in restored {
            state.clone().hold(pod, run);
        }
        state
    }

    /// Keeps a pod, and ends its containers when their time comes.
    fn hold(self: Arc<Self>, pod: Pod, run: Run) {
        let id = pod.id().clone();
        let lasts = containers::seconds(&pod, "memory.federlet.io/run-for");
        let lasts = lasts.or_else(|| (!pod.restarts_always()).then_some(self.run_for));
        let deletion = pod.deletion();
        self.pods.lock().insert(id.key().clone(), Held { pod, run, stop_at: None });
        if let Some(lasts) = lasts.filter(|_| run.ended.is_none()) {
            tokio::spawn(self.clone().end_after(id.clone(), lasts));
        }
        if let Some(deletion) = deletion {
            // It was ending when the process was killed.
            let _ = self.delete(&id, deletion.grace);
        }
    }

    pub(super) fn changes(&self) -> broadcast::Receiver<PodKey> {
        self.changes.subscribe()
    }

    pub(super) fn get(&self, key: &PodKey) -> Option<Pod> {
        self.pods.lock().get(key).map(|held| held.pod.clone())
    }

    pub(super) fn all(&self) -> Vec<Pod> {
        self.pods.lock().values().map(|held| held.pod.clone()).collect()
    }

    /// Every pod, and when its containers began and ended.
    pub(super) fn runs(&self) -> Vec<(Pod, Run)> {
        self.pods.lock().values().map(|held| (held.pod.clone(), held.run)).collect()
    }

    /// When the containers of this pod began and ended, if it is still here.
    pub(super) fn run(&self, id: &PodId) -> Option<Run> {
        self.pods.lock().get(id.key()).filter(|held| held.pod.id() == id).map(|held| held.run)
    }

    #[cfg(test)]
    pub(super) fn set_run(&self, id: &PodId, run: Run) {
        if let Some(held) = self.pods.lock().get_mut(id.key()) {
            held.run = run;
        }
    }

    pub(super) fn create(self: &Arc<Self>, pod: &Pod) -> Result<(), ProviderError> {
        let pods = self.pods.lock();
        if let Some(held) = pods.get(pod.key()) {
            return if held.pod.id() == pod.id() {
                Ok(())
            } else {
                Err(ProviderError::already_exists(format!("an earlier pod {} is still here", pod.key())))
            };
        }
        drop(pods);
        let run = Run::begin(Timestamp::now());
        let pod = pod.clone().with_status(containers::status(pod, run));
        self.clone().hold(pod.clone(), run);
        self.tell(pod.key());
        Ok(())
    }

    /// Ends the containers of a pod each time they have run for so long, until they stay ended.
    async fn end_after(self: Arc<Self>, id: PodId, lasts: Duration) {
        loop {
            tokio::time::sleep(lasts).await;
            {
                let mut pods = self.pods.lock();
                let Some(held) = pods.get_mut(id.key()).filter(|held| *held.pod.id() == id) else {
                    return;
                };
                held.run = containers::end(&held.pod, held.run, Timestamp::now());
                held.show();
            }
            self.tell(id.key());
            if self.run(&id).is_none_or(|run| run.ended.is_some()) {
                return;
            }
        }
    }

    pub(super) fn update(&self, pod: &Pod) -> Result<(), ProviderError> {
        let mut pods = self.pods.lock();
        let held = pods
            .get_mut(pod.key())
            .filter(|held| held.pod.id() == pod.id())
            .ok_or(ProviderError::NotFound)?;
        let before = held.pod.clone();
        held.pod = pod.clone();
        held.show();
        if let Some(deletion) = before.deletion() {
            held.pod = held.pod.clone().with_deletion(Timestamp::now(), deletion.grace);
        }
        let changed = before.status() != held.pod.status();
        drop(pods);
        if changed {
            self.tell(pod.key());
        }
        Ok(())
    }

    pub(super) fn delete(self: &Arc<Self>, id: &PodId, grace: Duration) -> Result<(), ProviderError> {
        let mut pods = self.pods.lock();
        let held =
            pods.get_mut(id.key()).filter(|held| held.pod.id() == id).ok_or(ProviderError::NotFound)?;
        let stubborn = containers::seconds(&held.pod, "memory.federlet.io/stop-after").unwrap_or_default();
        let takes = if held.run.ended.is_some() { Duration::ZERO } else { stubborn.min(grace) };
        // Whoever writes that it takes a million years means for ever.
        let stop_at = Instant::now() + takes.min(FOR_EVER);
        if held.stop_at.is_none_or(|at| stop_at < at) {
            held.stop_at = Some(stop_at);
            held.pod = held.pod.clone().with_deletion(Timestamp::now(), grace);
            tokio::spawn(self.clone().remove_at(id.clone(), stop_at));
        }
        drop(pods);
        self.tell(id.key());
        Ok(())
    }

    async fn remove_at(self: Arc<Self>, id: PodId, at: Instant) {
        tokio::time::sleep_until(at).await;
        let removed = {
            let mut pods = self.pods.lock();
            let due = pods.get(id.key()).is_some_and(|held| *held.pod.id() == id);
            if due { pods.remove(id.key()) } else { None }
        };
        if let Some(held) = removed {
            if let Some(journal) = self.journal.lock().as_mut() {
                journal.write(&held.pod, None);
            }
            self.tell(id.key());
        }
    }

    fn tell(&self, key: &PodKey) {
        if let Some(journal) = self.journal.lock().as_mut()
            && let Some(held) = self.pods.lock().get(key)
        {
            journal.write(&held.pod, Some(held.run));
        }
        // Nobody may be listening, and that is fine.
        let _ = self.changes.send(key.clone());
    }
}

impl Held {
    fn show(&mut self) {
        let status = containers::status(&self.pod, self.run);
        self.pod = self.pod.clone().with_status(status);
    }
}
