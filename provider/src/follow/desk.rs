use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

use super::{
    ledger::{Job, Ledger},
    place::Place,
};

/// The ledger, shared by those who ask, those who hear of changes and those who work.
#[derive(Debug)]
pub(super) struct Desk {
    ledger: Mutex<Ledger>,
    changed: Notify,
}

impl Desk {
    pub(super) fn new(linger: Duration) -> Self {
        Self { ledger: Mutex::new(Ledger::new(linger)), changed: Notify::new() }
    }

    /// To read it.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// To change it: whoever waits for something to do looks again.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        let outcome = change(&mut self.ledger.lock(), Instant::now());
        self.changed.notify_one();
        outcome
    }

    pub(super) fn host_changed(&self, place: &Place, version: Option<&str>) {
        self.change(|ledger, now| ledger.host_changed(place, version, now));
    }

    pub(super) fn member_changed(&self, place: &Place, uid: &str, version: Option<&str>) {
        self.change(|ledger, now| ledger.member_changed(place, uid, version, now));
    }

    pub(super) fn doubt(&self, place: &Place) {
        self.change(|ledger, now| ledger.doubt(place, now));
    }

    /// Waits for something to do.
    pub(super) async fn take(&self) -> Job {
        loop {
            let next = {
                let mut ledger = self.ledger.lock();
                if let Some(job) = ledger.take(Instant::now()) {
                    return job;
                }
                ledger.next()
            };
            let pause = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                () = self.changed.notified() => {}
            }
        }
    }
}
