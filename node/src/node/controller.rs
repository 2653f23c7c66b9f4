use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    document::{
        LEAVING_ANNOTATION, NodeTemplate, Readiness, leave_out_labels_of_others, metadata_document,
        readiness_document, status_document,
    },
    health::Health,
    reports::reports,
    settings::{NodeFacts, NodeSettings},
};
use crate::{
    client::brief,
    contract::{NodeReport, Provider, ProviderError},
    decide::{Backoff, digest},
    metrics::Metrics,
};

/// By which name the host remembers what is ours.
const FIELD_MANAGER: &str = "federlet";
/// Who set the first taints. A different name, because they are said once and then belong to the host's people.
const REGISTRAR: &str = "federlet-register";

/// How soon after a write of ours a contradiction by somebody else is answered.
const QUARREL_PAUSE: Duration = Duration::from_secs(2);

/// Not to ping is not a choice: nobody would ever know.
const SHORTEST: Duration = Duration::from_millis(100);

/// Why a Node could not be written.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The Node could not be created.
    #[error("cannot register the node: {}", brief(.0))]
    Register(#[source] Box<kube::Error>),
    /// Its labels could not be written.
    #[error("cannot write the node's labels: {}", brief(.0))]
    Metadata(#[source] Box<kube::Error>),
    /// Its status could not be written.
    #[error("cannot write the node's status: {}", brief(.0))]
    Status(#[source] Box<kube::Error>),
}

/// Keeps one Node object on the host.
pub struct NodeController {
    api: Api<Node>,
    watch_api: Api<Node>,
    template: NodeTemplate,
    provider: Arc<dyn Provider>,
    settings: NodeSettings,
    metrics: Arc<Metrics>,
    told: NodeFacts,
    health: Health,
    readiness: Readiness,
    report: Option<NodeReport>,
    known: Known,
}

/// What the host has, as far as we know.
#[derive(Default)]
struct Known {
    conditions: Vec<Value>,
    /// The conditions that we wrote last, by type: what they should say.
    claimed: Vec<(String, String)>,
    metadata: Option<u64>,
    written: Option<Instant>,
    /// Somebody deletes it, and a finalizer holds it up. It may come back when it is gone.
    ending: bool,
    /// It is being removed on purpose, and must not come back.
    leaving: bool,
    /// We act as the node itself, and some labels are not ours to set.
    modest: bool,
}

impl NodeController {
    /// A controller for one node. `client` writes, and should be one that retries nothing and shares no connection;
    /// `watch_client` watches, so it must be patient.
    pub fn new(
        client: Client,
        watch_client: Client,
        template: NodeTemplate,
        provider: Arc<dyn Provider>,
        settings: NodeSettings,
        metrics: Arc<Metrics>,
        told: NodeFacts,
    ) -> Self {
        let readiness = Readiness {
            ready: false,
            reason: "Starting".into(),
            message: "the provider has not answered yet".into(),
            since: Timestamp::now(),
        };
        Self {
            api: Api::all(client),
            watch_api: Api::all(watch_client),
            template,
            provider,
            settings,
            metrics,
            told,
            health: Health::new(settings.thresholds),
            readiness,
            report: None,
            known: Known::default(),
        }
    }

    /// Works until told to stop. The Node stays.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut reports = std::pin::pin!(reports(self.provider.clone()));
        let name = self.template.name.to_string();
        let only_this = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(45);
        let mut events = std::pin::pin!(watcher(self.watch_api.clone(), only_this).default_backoff());
        let mut pings = tokio::time::interval(self.settings.ping_every.max(SHORTEST));
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = 0;
        let (mut listed, mut host_spoke) = (false, false);
        // What the provider and the host say first goes into the first write; if the host says nothing, we begin.
        self.recall().await;
        pings.tick().await;
        self.ping().await;
        let mut due = Instant::now() + self.settings.ping_timeout;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = pings.tick() => if self.ping().await {
                    due = Instant::now();
                },
                Some(report) = reports.next() => if self.report.as_ref() != Some(&report) {
                    self.report = Some(report);
                    if host_spoke {
                        due = Instant::now();
                    }
                },
                event = events.next() => match event.inspect(|event| host_spoke |= event.is_ok()) {
                    Some(Ok(watcher::Event::Init)) => listed = false,
                    Some(Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node))) => {
                        listed = true;
                        if self.see(&node) || self.known.written.is_none() {
                            // Should somebody insist on another opinion, we do not quarrel all day.
                            let now = Instant::now();
                            let rested = self.known.written.map_or(now, |at| at + QUARREL_PAUSE);
                            due = due.min(rested.max(now));
                        }
                    }
                    Some(Ok(watcher::Event::Delete(node))) => {
                        self.notice_leaving(&node);
                        self.gone();
                        due = Instant::now();
                    }
                    Some(Ok(watcher::Event::InitDone)) if !listed => {
                        self.gone();
                        due = Instant::now();
                    }
                    Some(Ok(watcher::Event::InitDone)) | None => {}
                    Some(Err(error)) => tracing::warn!(node = name, %error, "watching the node failed, trying again"),
                },
                () = tokio::time::sleep_until(due) => match self.write().await {
                    Ok(()) => {
                        failures = 0;
                        due = Instant::now() + self.settings.status_every;
                    }
                    Err(error) => {
                        failures += 1;
                        let pause = Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(10) };
                        let pause = Backoff::spread(pause.pause(failures, None));
                        tracing::warn!(node = name, %error, "will try again in {pause:?}");
                        due = Instant::now() + pause;
                    }
                },
            }
        }
    }

    /// What was said before a restart counts until the provider says otherwise often enough.
    async fn recall(&mut self) {
        let Ok(Some(node)) = self.api.get_opt(self.template.name.as_str()).await else { return };
        self.see(&node);
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        self.provider.recall(&conditions);
        let Some(said) = conditions.into_iter().find(|c| c.type_ == "Ready" && c.status != "Unknown") else {
            return;
        };
        let NodeCondition { status, reason, message, last_transition_time, .. } = said;
        let ready = status == "True";
        self.health = Health::recalled(self.settings.thresholds, ready);
        let since = last_transition_time.map_or_else(Timestamp::now, |time| time.0);
        let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
        self.change_mind(Readiness { ready, reason, message, since });
    }

    async fn ping(&mut self) -> bool {
        let limit = self.settings.ping_timeout;
        let late = |_| Err(ProviderError::unavailable(format!("no answer within {limit:?}")));
        let answer = tokio::time::timeout(limit, self.provider.ping()).await.unwrap_or_else(late);
        self.hear(answer)
    }

    /// Takes in an answer of the provider. True if the node is to be written.
    fn hear(&mut self, answer: Result<(), ProviderError>) -> bool {
        let name = &self.template.name;
        if answer.is_ok() {
            self.metrics.pinged(name);
        } else if let Err(error) = &answer {
            // Once it counts as gone, the node says so, and more lines would say nothing new.
            match self.health.healthy() {
                Some(false) => tracing::debug!(node = %name, %error, "the provider does not answer"),
                _ => tracing::warn!(node = %name, %error, "the provider does not answer"),
            }
        }
        if !self.health.hear(answer.is_ok()) {
            return false;
        }
        let since = Timestamp::now();
        let readiness = match answer {
            Ok(()) => Readiness {
                ready: true,
                reason: "KubeletReady".into(),
                message: "the provider answers".into(),
                since,
            },
            Err(error) => Readiness {
                ready: false,
                reason: error.reason().to_owned(),
                message: format!("{error}; not ready since {}", crate::decide::seconds(since)),
                since,
            },
        };
        self.change_mind(readiness);
        true
    }

    fn change_mind(&mut self, readiness: Readiness) {
        self.metrics.ready(&self.template.name, readiness.ready);
        // Pods hear of it before the host does: what is known of them is not to be trusted any more.
        self.told.healthy.send_replace(Some(readiness.ready));
        self.readiness = readiness;
    }

    /// Takes in the Node as the host has it. True if it does not say what it should.
    fn see(&mut self, node: &Node) -> bool {
        self.told.uid.send_if_modified(|uid| std::mem::replace(uid, node.uid()) != node.uid());
        self.notice_leaving(node);
        let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
        self.known.conditions =
            conditions.into_iter().flatten().filter_map(|c| serde_json::to_value(c).ok()).collect();
        let ready =
            self.known.conditions.iter().find(|c| c["type"] == "Ready").map(|c| c["status"] == "True");
        let said = |kind: &str| self.known.conditions.iter().find(|c| c["type"] == *kind)?["status"].as_str();
        // Controllers of clouds call every node without a route of theirs unreachable, and its pods with it.
        let contradicted = |(kind, status): &(String, String)| {
            kind != "Ready" && said(kind).is_some_and(|said| said != status)
        };
        // When the heartbeats failed for long, the host has said Unknown in our place.
        self.known.written.is_some()
            && (ready != Some(self.readiness.ready) || self.known.claimed.iter().any(contradicted))
    }

    fn notice_leaving(&mut self, node: &Node) {
        self.known.ending = node.metadata.deletion_timestamp.is_some();
        self.known.leaving =
            node.annotations().get(LEAVING_ANNOTATION).is_some_and(|leaving| leaving == "true");
        self.told.leaving.send_replace(self.known.leaving);
    }

    fn gone(&mut self) {
        self.known.ending = false;
        self.told.uid.send_replace(None);
        self.known.metadata = None;
        self.known.conditions.clear();
    }

    async fn write(&mut self) -> Result<(), NodeError> {
        if self.known.leaving || self.known.ending {
            tracing::info!(node = %self.template.name, "the node is being removed and is left alone");
            return Ok(());
        }
        let Some(report) = self.report.clone() else {
            return self.write_readiness().await;
        };
        let mut registered = false;
        if self.told.uid.borrow().is_none() {
            registered = self.register(&report).await?;
        }
        let metadata = metadata_document(&self.template, &report);
        if registered || self.known.metadata != Some(digest(&metadata)) {
            self.apply_metadata(&metadata).await?;
            self.known.metadata = Some(digest(&metadata));
        }
        let now = Timestamp::now();
        let status = status_document(&self.template, &report, &self.readiness, &self.known.conditions, now);
        let node = self.apply(&status, true).await.map_err(|e| NodeError::Status(Box::new(e)))?;
        self.known.written = Some(Instant::now());
        self.known.claimed = claimed(&status);
        self.see(&node);
        Ok(())
    }

    /// The provider has not said what the node is like, perhaps because it cannot be reached. A Node from before must
    /// not go on to be called Ready for that, nor lose what it says about itself.
    async fn write_readiness(&mut self) -> Result<(), NodeError> {
        if self.told.uid.borrow().is_none() || self.health.healthy() != Some(false) {
            return Ok(());
        }
        let document = readiness_document(&self.readiness, &self.known.conditions, Timestamp::now());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Strategic(&document);
        let written = self.api.patch_status(self.template.name.as_str(), &params, &patch).await;
        let node = written.map_err(|e| NodeError::Status(Box::new(e)))?;
        self.known.written = Some(Instant::now());
        self.see(&node);
        Ok(())
    }

    /// Creates the Node with its taints, so that there is no moment in which a pod without toleration could land.
    async fn register(&self, report: &NodeReport) -> Result<bool, NodeError> {
        let taints: Vec<_> = self.template.taints.iter().chain(&report.taints).cloned().collect();
        let node = Node {
            metadata: ObjectMeta { name: Some(self.template.name.to_string()), ..ObjectMeta::default() },
            spec: Some(NodeSpec { taints: Some(taints), ..NodeSpec::default() }),
            status: None,
        };
        let params = PostParams { field_manager: Some(REGISTRAR.into()), ..PostParams::default() };
        match self.api.create(&params, &node).await {
            Ok(_) => {
                tracing::info!(node = %self.template.name, "registered");
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(NodeError::Register(Box::new(error))),
        }
    }

    /// Where we act as the node itself, NodeRestriction leaves some labels to others. Then we say the rest.
    async fn apply_metadata(&mut self, metadata: &Value) -> Result<(), NodeError> {
        let mut modest = metadata.clone();
        let left_out = leave_out_labels_of_others(&mut modest);
        if !self.known.modest {
            let Err(error) = self.apply(metadata, false).await else { return Ok(()) };
            let forbidden = matches!(&error, kube::Error::Api(status) if status.is_forbidden());
            if !forbidden || left_out.is_empty() {
                return Err(NodeError::Metadata(Box::new(error)));
            }
        }
        self.apply(&modest, false).await.map_err(|e| NodeError::Metadata(Box::new(e)))?;
        if !std::mem::replace(&mut self.known.modest, true) {
            tracing::info!(node = %self.template.name, ?left_out, "the node may not set these labels on itself");
        }
        Ok(())
    }

    async fn apply(&self, document: &Value, status: bool) -> Result<Node, kube::Error> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let (name, patch) = (self.template.name.as_str(), Patch::Apply(document));
        if status {
            self.api.patch_status(name, &params, &patch).await
        } else {
            self.api.patch(name, &params, &patch).await
        }
    }
}

impl fmt::Debug for NodeController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeController").field("template", &self.template).finish_non_exhaustive()
    }
}

/// The conditions in a status document, by type.
fn claimed(document: &Value) -> Vec<(String, String)> {
    let conditions = document.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    conditions.into_iter().flatten().map(|one| (text(one, "type"), text(one, "status"))).collect()
}

#[cfg(test)]
mod tests;
