use serde_json::Value;

use super::{host::Written, notes::Saying, sync::PodSync};
use crate::{
    client::HostError,
    contract::Pod,
    decide::{digest, end_status, status_patch, unready_patch, waiting_status},
};

/// What became of a report.
pub(super) enum Reported {
    /// The host says it, or needs not.
    Yes,
    /// The host calls it invalid. Saying it again will not help, and must not keep anything else from happening.
    Refused,
    /// Somebody else writes at the same time: look again.
    Again,
}

impl PodSync {
    /// Makes the host say what the provider reports about this pod, in at most one write.
    pub(super) async fn report(&self, host: &Pod, reported: &Value) -> Result<Reported, HostError> {
        let note = self.notes.of(host);
        let observed = note.observed;
        let Some(patch) = status_patch(host, reported, observed) else {
            return Ok(Reported::Yes);
        };
        let saying = Saying { report: digest(reported), observed };
        // The host was told exactly this and made of it what it is now: it does not keep all that we say.
        if note.written == Some((saying, digest(host.status()))) {
            return Ok(Reported::Yes);
        }
        match self.write(host, &patch, saying).await? {
            Reported::Again => self.report_afresh(host).await,
            reported => Ok(reported),
        }
    }

    /// Reads both sides once more and tries again, once.
    async fn report_afresh(&self, stale: &Pod) -> Result<Reported, HostError> {
        let Some(host) = self.host.get(stale.key()).await? else {
            return Ok(Reported::Yes);
        };
        if host.uid() != stale.uid() {
            return Ok(Reported::Yes);
        }
        let Ok(reported) = self.call("get_status", self.provider.get_pod_status(host.key())).await else {
            return Ok(Reported::Again);
        };
        let observed = self.notes.of(&host).observed;
        match status_patch(&host, &reported, observed) {
            Some(patch) => self.write(&host, &patch, Saying { report: digest(&reported), observed }).await,
            None => Ok(Reported::Yes),
        }
    }

    /// Before a pod goes at the provider, says how it ended to those who wait to read it: afterwards nobody knows.
    pub(super) async fn report_before_it_goes(
        &self,
        host: Option<&Pod>,
        held: Option<&Pod>,
    ) -> Result<Reported, HostError> {
        let ended = |host: &Pod| held.filter(|held| held.uid() == host.uid() && held.phase().is_terminal());
        // What a provider that does not answer remembers from before is not to be trusted.
        let trusted = *self.healthy.borrow() != Some(false);
        if let Some(host) = host.filter(|host| trusted && host.has_finalizers())
            && let Some(ended) = ended(host)
        {
            return self.report(host, ended.status()).await;
        }
        Ok(Reported::Yes)
    }

    /// Says that the pod is over, from what the host knows of it.
    pub(super) async fn report_end(
        &self,
        host: &Pod,
        reason: &str,
        message: &str,
    ) -> Result<Reported, HostError> {
        self.report_own(host, &end_status(host, reason, message, jiff::Timestamp::now())).await
    }

    /// Says why the pod does not start.
    pub(super) async fn report_waiting(
        &self,
        host: &Pod,
        reason: &str,
        message: &str,
    ) -> Result<Reported, HostError> {
        self.report_own(host, &waiting_status(host, reason, message)).await
    }

    /// Says that nobody can say whether the pod is Ready, so that no Service sends traffic to it.
    ///
    /// The host does that by itself only for a node whose heartbeats stop, and not for one that says it is NotReady.
    pub(super) async fn report_out_of_reach(&self, host: &Pod) -> Result<Reported, HostError> {
        match unready_patch(host, jiff::Timestamp::now()) {
            Some(patch) => self.write(host, &patch, Saying { report: digest(&patch), observed: None }).await,
            None => Ok(Reported::Yes),
        }
    }

    async fn report_own(&self, host: &Pod, status: &Value) -> Result<Reported, HostError> {
        match status_patch(host, status, None) {
            Some(patch) => self.write(host, &patch, Saying { report: digest(status), observed: None }).await,
            None => Ok(Reported::Yes),
        }
    }

    async fn write(&self, host: &Pod, patch: &Value, saying: Saying) -> Result<Reported, HostError> {
        let write = self.host.patch_status(host.key(), patch);
        Ok(match self.timed("status", write).await? {
            Written::Now(now) => {
                let (left, over) = (digest(now.status()), now.phase().is_terminal());
                self.notes.change(host, |note| {
                    note.written = Some((saying, left));
                    note.said_the_end = over;
                });
                Reported::Yes
            }
            Written::Gone => Reported::Yes,
            Written::Conflict => Reported::Again,
            Written::Refused(message) => {
                let told = Some(digest(&Value::from(message.as_str())));
                if self.notes.of(host).told != told {
                    tracing::warn!(pod = %host.key(), message, "the host refuses the pod's status");
                    self.events.warn(host, "Reporting", "StatusRefused", &message);
                    self.notes.change(host, |note| note.told = told);
                }
                Reported::Refused
            }
        })
    }
}
