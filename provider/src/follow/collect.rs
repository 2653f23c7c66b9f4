//! What an earlier process left behind.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{Follow, RESOURCES, place::Place};

impl Follow {
    /// Takes away copies that no pod of the host refers to, until told to stop.
    ///
    /// What this process made it knows. What another one made before is known by its marks, and goes only once the
    /// host's pods and the member's copies were listed to the end: before that, nothing proves that nobody needs it.
    pub(super) async fn collect(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.host_pods_listed() => {}
        }
        let mut timer = tokio::time::interval(self.settings.sweep);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick() => {}
            }
            if let Some(copies) = self.inventory.all(&RESOURCES) {
                self.sweep(copies);
            }
        }
    }

    async fn host_pods_listed(&self) {
        loop {
            if let Some(pods) = self.site.host.pods.node(&self.site.host.node) {
                return pods.complete().await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn sweep(&self, copies: Vec<Place>) {
        let strangers: Vec<Place> = {
            let ledger = self.desk.ledger();
            copies.into_iter().filter(|place| !ledger.knows(place)).collect()
        };
        if strangers.is_empty() {
            return;
        }
        let needed = self.needed();
        self.desk.change(|ledger, now| {
            for place in strangers.into_iter().filter(|place| !needed.contains(place)) {
                tracing::info!(%place, "no pod needs this copy any more");
                ledger.abandon(&place, now);
            }
        });
    }

    /// All that pods of the host on this node refer to and may still use.
    fn needed(&self) -> HashSet<Place> {
        let target = self.site.target();
        let pods = self.site.host.pods.of(&self.site.host.node);
        pods.iter()
            .filter(|pod| !pod.phase().is_terminal())
            .filter_map(|pod| self.needs(pod, &target).ok())
            .flatten()
            .map(|need| need.place)
            .collect()
    }
}
