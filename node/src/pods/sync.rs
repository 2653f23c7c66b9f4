use std::{future::Future, sync::Arc, time::Duration};

use kube::runtime::events::EventType;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tracing::Instrument;

use super::{
    events::{Events, shorten},
    host::{Host, Written},
    notes::{Note, Notes},
    queue::Outcome,
    references::References,
    report::Reported,
    view::NodePods,
};
use crate::{
    TRACE,
    client::HostError,
    contract::{NodeName, Pod, PodId, PodKey, Provider, ProviderError},
    decide::{self, Backoff, Rest, Seen, Step, next_step},
    metrics::Metrics,
    node::Fence,
};

/// How long a provider may take for one call.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How often to look at what should change without us: the other side may forget to say.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How often to look for an object that is missing, though we are told when it appears.
const LOOK_FOR_MISSING: Duration = Duration::from_secs(60);

/// How much longer than its grace an earlier pod of the same name may take to end before the next one says what it waits for.
const PATIENCE_WITH_EARLIER: Duration = Duration::from_secs(20);

/// When two answers contradict each other, one of them is out of date, mostly for a moment.
const CONTRADICTION: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(60) };

/// A message in a status longer than this helps nobody.
const MESSAGE_LIMIT: usize = 1024;

/// Brings one pod at a time to where it should be: see, decide, act, report.
pub(super) struct PodSync {
    pub(super) node: NodeName,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) host: Host,
    pub(super) view: Arc<NodePods>,
    pub(super) references: Option<Arc<References>>,
    pub(super) events: Events,
    pub(super) notes: Notes,
    pub(super) healthy: watch::Receiver<Option<bool>>,
    pub(super) fence: Fence,
    pub(super) metrics: Arc<Metrics>,
}

/// Why a step did not work.
enum Trouble {
    Provider(ProviderError),
    /// The provider has the pod and did not take what changed about it. How the pod is, it says nevertheless.
    Update(ProviderError),
    Host(HostError),
}

impl From<ProviderError> for Trouble {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

impl From<HostError> for Trouble {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl PodSync {
    /// Looks at one pod. `failures` is how often in a row that failed before.
    pub(super) async fn sync(&self, key: &PodKey, failures: u32) -> Outcome {
        // Another process may have taken over while we were not looking.
        if !self.fence.holds() {
            return Outcome::After(Duration::from_secs(1));
        }
        // What the provider has in namespaces that are not served is somebody else's.
        if !self.view.covers(key) {
            return Outcome::Done;
        }
        let host = self.view.get(key);
        match self.look_at(key, host.as_ref()).await {
            Ok(outcome) => outcome,
            Err(Trouble::Host(error)) => {
                tracing::warn!(pod = %key, %error, "will try again");
                Outcome::Retry { backoff: Backoff::default(), asked: error.retry_after() }
            }
            Err(Trouble::Provider(error)) => {
                self.provider_trouble(key, host.as_ref(), &error, failures, true).await
            }
            Err(Trouble::Update(error)) => {
                self.provider_trouble(key, host.as_ref(), &error, failures, false).await
            }
        }
    }

    async fn look_at(&self, key: &PodKey, host: Option<&Pod>) -> Result<Outcome, Trouble> {
        if let Some(host) = host {
            if host.is_static() {
                return Ok(Outcome::Done);
            }
            if *self.healthy.borrow() == Some(false) {
                self.report_out_of_reach(host).await?;
            }
        }
        let held = match self.call("get", self.provider.get_pod(key)).await {
            Ok(pod) => Some(pod),
            Err(ProviderError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let note = host.map(|pod| self.notes.of(pod)).unwrap_or_default();
        let step = next_step(Seen {
            host,
            provider: held.as_ref(),
            accepted: note.accepted,
            desired: host.map(decide::desired_digest).unwrap_or_default(),
            just_created: note.just_created(),
            departed: held.as_ref().and_then(|held| self.view.departed(key, held.uid())),
        });
        tracing::debug!(pod = %key, ?step, "decided");
        match (step, host) {
            (Step::Rest(Rest::Gone), _) => {
                self.forget(key);
                Ok(Outcome::Done)
            }
            (Step::Rest(Rest::NotOurs | Rest::Finalizing), _) => Ok(Outcome::Done),
            (Step::Rest(Rest::Appearing), _) => Ok(Outcome::After(LOOK_AGAIN)),
            (Step::Rest(rest), Some(host)) => {
                if let Some(earlier) = held.as_ref().filter(|held| held.uid() != host.uid()) {
                    self.tell_of_earlier(host, earlier).await;
                }
                let outcome = self.report_held(host, held.as_ref()).await?;
                Ok(if rest == Rest::Ending && outcome == Outcome::Done {
                    Outcome::After(LOOK_AGAIN)
                } else {
                    outcome
                })
            }
            (Step::Rest(_), None) => Ok(Outcome::After(LOOK_AGAIN)),
            (Step::Delete { id, grace, confirm }, _) => {
                if let Reported::Again = self.report_before_it_goes(host, held.as_ref()).await? {
                    return Ok(Outcome::Retry { backoff: Backoff::default(), asked: None });
                }
                self.delete(&id, grace, confirm).await
            }
            (Step::Create, Some(host)) => self.create(host).await,
            (Step::Update, Some(host)) => self.update(host, held.as_ref()).await,
            (Step::Remove { say_how_it_ended }, Some(host)) => self.remove(host, say_how_it_ended).await,
            (Step::Evict { grace }, Some(host)) => self.evict(host, grace).await,
            (Step::Lost, Some(host)) => self.lost(host).await,
            // Without a host pod there is nothing to create, update, remove, evict or lose.
            (_, None) => Ok(Outcome::Done),
        }
    }

    async fn create(&self, host: &Pod) -> Result<Outcome, Trouble> {
        if let Some(wait) = self.hold_for_references(host).await? {
            return Ok(wait);
        }
        let asked = self.notes.asked(host.key());
        self.call("create", self.provider.create_pod(host)).await?;
        self.notes.accepted(host, decide::desired_digest(host), asked);
        self.notes.change(host, |note| {
            note.created_now();
            note.told = None;
        });
        Ok(Outcome::After(LOOK_AGAIN))
    }

    async fn update(&self, host: &Pod, held: Option<&Pod>) -> Result<Outcome, Trouble> {
        let asked = self.notes.asked(host.key());
        if let Err(error) = self.call("update", self.provider.update_pod(host)).await {
            // It may fail for ever. The host hears how the pod is all the same, and not that the change was seen.
            self.report_held(host, held).await?;
            return Err(Trouble::Update(error));
        }
        self.notes.accepted(host, decide::desired_digest(host), asked);
        // What was held was from before the change, and would be said of what it is now.
        match self.call("get", self.provider.get_pod(host.key())).await {
            Ok(held) => self.report_held(host, Some(&held)).await,
            Err(_) => Ok(Outcome::After(LOOK_AGAIN)),
        }
    }

    async fn delete(&self, id: &PodId, grace: Duration, confirm: bool) -> Result<Outcome, Trouble> {
        if confirm {
            // The decision rests on a pod's absence from a cache. The API server itself must say so too.
            if self.host.has(&self.node, id).await? {
                tracing::info!(pod = %id.key(), "the host still has it, though the watch did not say so");
                return Ok(Outcome::Retry { backoff: CONTRADICTION, asked: None });
            }
            tracing::info!(pod = ?id, ?grace, "not on the host any more, ending it at the provider");
        }
        match self.call("delete", self.provider.delete_pod(id, grace)).await {
            Ok(()) => {
                if confirm {
                    self.view.forget_departed(id.key());
                }
                Ok(Outcome::After(grace.saturating_add(LOOK_AGAIN)))
            }
            // Had a moment ago, and now not.
            Err(ProviderError::NotFound) => Ok(Outcome::Retry { backoff: CONTRADICTION, asked: None }),
            Err(error) => Err(error.into()),
        }
    }

    async fn remove(&self, host: &Pod, say_how_it_ended: bool) -> Result<Outcome, Trouble> {
        // Done a moment ago; the watch has not said so yet.
        if self.notes.of(host).just_removed() {
            return Ok(Outcome::After(LOOK_AGAIN));
        }
        // Or it was said, and the watch has not told so yet.
        if say_how_it_ended && !self.notes.of(host).said_the_end {
            // Also when the host refuses it: the pod must not stay for ever because of how it ended.
            self.report_end(host, "Terminated", "ended with its pod's deletion").await?;
        }
        match self.timed("remove", self.host.delete(host.id(), Duration::ZERO)).await? {
            Written::Refused(message) => {
                tracing::warn!(pod = %host.key(), message, "the host refuses to remove the pod");
                Ok(Outcome::Retry { backoff: Backoff::SLOW, asked: None })
            }
            Written::Now(_) | Written::Gone | Written::Conflict => {
                self.notes.change(host, Note::removed_now);
                Ok(Outcome::Done)
            }
        }
    }

    async fn evict(&self, host: &Pod, grace: Duration) -> Result<Outcome, Trouble> {
        let note = "the provider is ending this pod, so it ends here as well";
        self.events.tell(EventType::Normal, host, "Evicting", "EvictedByProvider", note);
        // Zero would take the object away before the provider is done with the pod.
        let grace = grace.max(Duration::from_secs(1));
        match self.timed("evict", self.host.delete(host.id(), grace)).await? {
            Written::Refused(_) => Ok(Outcome::Retry { backoff: Backoff::SLOW, asked: None }),
            Written::Now(_) | Written::Gone | Written::Conflict => {
                Ok(Outcome::After(grace.saturating_add(LOOK_AGAIN)))
            }
        }
    }

    async fn lost(&self, host: &Pod) -> Result<Outcome, Trouble> {
        let message =
            "the provider no longer has this pod; it is not started again because it may have finished";
        self.events.warn(host, "Reporting", "PodLost", message);
        match self.report_end(host, "PodLost", message).await? {
            Reported::Yes => Ok(Outcome::Done),
            Reported::Again | Reported::Refused => {
                Ok(Outcome::Retry { backoff: Backoff::default(), asked: None })
            }
        }
    }

    async fn report_held(&self, host: &Pod, held: Option<&Pod>) -> Result<Outcome, Trouble> {
        let Some(held) = held.filter(|pod| pod.uid() == host.uid()) else {
            return Ok(Outcome::Done);
        };
        // What a provider that does not answer remembers from before is not to be trusted.
        if *self.healthy.borrow() != Some(true) {
            return Ok(Outcome::Done);
        }
        // The object goes in a moment, and nobody waits to read how it ended.
        if host.deletion().is_some() && held.phase().is_terminal() && !host.has_finalizers() {
            return Ok(Outcome::Done);
        }
        if let Some(far) = decide::on_the_way(held.status())
            && let Some(patience) = self.notes.of(host).patience(far)
        {
            return Ok(Outcome::After(patience));
        }
        Ok(match self.report(host, held.status()).await? {
            Reported::Yes => Outcome::Done,
            Reported::Again => Outcome::Retry { backoff: Backoff::default(), asked: None },
            Reported::Refused => Outcome::Retry { backoff: Backoff::SLOW, asked: None },
        })
    }

    /// Looks for the objects that the pod names. If one is missing that it cannot do without, the pod waits, and is
    /// looked at again as soon as the object appears.
    async fn hold_for_references(&self, host: &Pod) -> Result<Option<Outcome>, Trouble> {
        let Some(references) = &self.references else {
            return Ok(None);
        };
        let named = decide::references(host);
        let missing = references.missing(host, &named).await?;
        let mut reasons: Vec<&str> = missing.iter().map(|r| r.missing_reason()).collect();
        reasons.sort_unstable();
        let names: Vec<String> = missing.iter().map(|r| format!("{} {:?}", r.kind, r.name)).collect();
        let told = Some(decide::digest(&Value::from(names.clone())));
        let news = !missing.is_empty() && self.notes.of(host).told != told;
        if news {
            for reference in &missing {
                let note = format!("{} {:?} not found", reference.kind, reference.name);
                self.events.warn(host, "Starting", reference.missing_reason(), &note);
            }
            self.notes.change(host, |note| note.told = told);
        }
        let Some(mandatory) = missing.iter().find(|r| !r.optional) else {
            return Ok(None);
        };
        let mut all_watched = true;
        for reference in missing.iter().filter(|r| !r.optional) {
            all_watched &= references.wait_for(host, reference, self.view.queue());
        }
        if news {
            let message = format!("{} {:?} not found", mandatory.kind, mandatory.name);
            self.report_waiting(host, mandatory.missing_reason(), &message).await?;
        }
        let look = if all_watched { LOOK_FOR_MISSING } else { LOOK_AGAIN };
        Ok(Some(Outcome::After(Backoff::spread(look))))
    }

    async fn provider_trouble(
        &self,
        key: &PodKey,
        host: Option<&Pod>,
        error: &ProviderError,
        failures: u32,
        in_its_status: bool,
    ) -> Outcome {
        let (backoff, asked, definite) = match error {
            ProviderError::Unavailable { retry_after, .. } => (Backoff::default(), *retry_after, false),
            ProviderError::NotFound => (Backoff::default(), None, false),
            _ => (Backoff::SLOW, None, true),
        };
        let pause = backoff.pause(failures + 1, asked);
        let message = format!("{}: {}", self.node, shorten(&error.to_string(), MESSAGE_LIMIT));
        tracing::warn!(pod = %key, reason = error.reason(), message, "will try again in {pause:?}");
        // One glitch is no news; what lasts is told once, and not again for each attempt.
        let worth_telling = definite || failures > 0;
        if let Some(host) = host.filter(|pod| worth_telling && pod.deletion().is_none()) {
            self.tell_trouble(host, error.reason(), &message, pause, in_its_status).await;
        }
        Outcome::Retry { backoff, asked }
    }

    /// The pause is told in the Event and not in the status: it changes with each attempt, and each would be a write.
    async fn tell_trouble(
        &self,
        host: &Pod,
        reason: &str,
        message: &str,
        pause: Duration,
        in_its_status: bool,
    ) {
        let told = Some(decide::digest(&Value::from(message)));
        if self.notes.of(host).told == told {
            return;
        }
        // A pod that runs keeps its status: the trouble is ours.
        if in_its_status && !host.was_started() && self.report_waiting(host, reason, message).await.is_err() {
            return;
        }
        self.events.warn(host, "Syncing", reason, &format!("{message}, retrying in {pause:?}"));
        self.notes.change(host, |note| note.told = told);
    }

    /// A pod that waits for an earlier one of its name says so, unless that takes no longer than it usually does.
    async fn tell_of_earlier(&self, host: &Pod, earlier: &Pod) {
        let Some(created) = host.created().filter(|_| host.deletion().is_none()) else { return };
        let waited = Duration::try_from(jiff::Timestamp::now().duration_since(created)).unwrap_or_default();
        let grace = earlier.deletion().map_or_else(|| earlier.termination_grace(), |deletion| deletion.grace);
        if waited > grace.saturating_add(PATIENCE_WITH_EARLIER) {
            let message = format!("{}: an earlier pod of this name is still ending there", self.node);
            self.tell_trouble(host, "EarlierPodEnding", &message, LOOK_AGAIN, true).await;
        }
    }

    fn forget(&self, key: &PodKey) {
        self.notes.forget(key);
        self.view.forget_departed(key);
        if let Some(references) = &self.references {
            references.stop_waiting(key, self.view.queue());
        }
    }

    /// Calls the provider, within bounds.
    pub(super) async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let begun = Instant::now();
        let call = call.instrument(tracing::info_span!(target: TRACE, "provider", operation));
        let answer = tokio::time::timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| {
            Err(ProviderError::unavailable(format!("{operation} took longer than {CALL_TIMEOUT:?}")))
        });
        let result = answer.as_ref().map_or_else(ProviderError::category, |_| "ok");
        self.metrics.operation(&self.node, operation, result, begun.elapsed());
        answer
    }

    /// Measures a write on the host.
    pub(super) async fn timed<T>(
        &self,
        operation: &'static str,
        write: impl Future<Output = Result<T, HostError>>,
    ) -> Result<T, HostError> {
        let begun = Instant::now();
        let answer = write.instrument(tracing::info_span!(target: TRACE, "host", operation)).await;
        let result = if answer.is_ok() { "ok" } else { "unavailable" };
        self.metrics.operation(&self.node, operation, result, begun.elapsed());
        answer
    }
}
