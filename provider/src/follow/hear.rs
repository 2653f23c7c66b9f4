//! What the host's Services, claims and volumes mean for the pods of this node.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::{Follow, host_objects::HostChange};

impl Follow {
    /// Listens until told to stop.
    pub(super) async fn hear_host(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.site.host.objects.changes();
        // What was listed before we listened.
        self.compare();
        let mut timer = tokio::time::interval(self.settings.sweep);
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.recv() => change,
                // What is listed on the host may have to wait for the member's list.
                _ = timer.tick(), if self.has_to_compare_claims() => {
                    self.compare_claims();
                    continue;
                }
            };
            match change {
                Ok(HostChange::Service(name, others)) => self.service_changed(&name, others),
                Ok(HostChange::Claim(name)) => self.claim_changed(&name),
                Ok(HostChange::Volume) => self.reclaim.notify_one(),
                Ok(HostChange::Listed) | Err(RecvError::Lagged(_)) => self.compare(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn compare(&self) {
        self.services_listed();
        self.claims_listed();
        self.reclaim.notify_one();
    }
}
