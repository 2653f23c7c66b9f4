//! What an earlier process left behind.

use std::{collections::HashSet, sync::Arc, time::Duration};

use federlet_node::contract::{Phase, PodId};
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{
    Follow,
    place::{Place, Resource},
};

/// What a pod alone needs. Claims live as long as those of the host.
const NEEDED: [Resource; 3] = [Resource::ConfigMap, Resource::Secret, Resource::Service];

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
            self.release_ended();
            // Which Services are needed is known once all were seen.
            let known = NEEDED
                .into_iter()
                .filter(|r| *r != Resource::Service || self.site.host.objects.services.read().is_listed());
            for resource in known {
                if let Some(copies) = self.inventory.all(resource) {
                    self.sweep(copies);
                }
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

    /// Lets go of pods that neither side has any more, or that have finished: whoever should have said so may have
    /// missed it.
    fn release_ended(&self) {
        let Some(watch) = self.watch.get().filter(|watch| watch.has_pods()) else { return };
        let known: Vec<PodId> = self.desk.ledger().pods().cloned().collect();
        for pod in known {
            let on_host = self.site.host_pod(pod.key()).filter(|there| there.uid() == pod.uid());
            if on_host.is_some_and(|pod| !pod.phase().is_terminal()) {
                continue;
            }
            let Ok(there) = self.site.slot(watch, pod.key()) else { continue };
            let there = watch.pod(&there);
            if there.is_none_or(|there| there.host_uid() != pod.uid() || has_ended(&there.json())) {
                self.release(&pod);
            }
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

fn has_ended(pod: &Value) -> bool {
    pod.get("status").is_some_and(|status| Phase::of(status).is_terminal())
}
