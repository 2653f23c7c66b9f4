//! Events about pods in the member, told on the host's pods: `kubectl describe` says why an image cannot be pulled.

mod budget;
mod decide;

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use federlet_node::{contract::PodId, decide::Backoff};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use self::budget::Budget;
use super::Follow;
use crate::{errors::brief, watch::Slot};

/// An Event for a pod of the host, and when it came.
type Heard = (PodId, Value, Instant);

/// How long one watch request lives, in seconds.
const WATCH_SECONDS: u32 = 45;

/// How long an Event waits before it is written. It can, while the pod it is about is getting ready; what the host has to
/// do for pods comes first.
const LATER: Duration = Duration::from_secs(1);

/// Events that may wait to be written. When the host is that slow, the newest are dropped: most repeat anyway.
const WAITING: usize = 1024;

/// How long an Event about a pod that is not known is kept, and how many of them.
const MOMENT: Duration = Duration::from_secs(1);
const UNKNOWN: usize = 256;

/// How many Events of ours we remember to be on the host already.
const REMEMBERED: usize = 4096;

impl Follow {
    /// Passes Events on until told to stop. Those from before are not told again.
    pub(super) async fn relay_events(self: Arc<Self>, stop: CancellationToken) {
        let (sender, events) = mpsc::channel(WAITING);
        let writer = tokio::spawn(self.clone().write_events(events));
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.hear_events(sender) => {}
        }
        writer.abort();
    }

    async fn hear_events(&self, sender: mpsc::Sender<Heard>) {
        let api: Api<DynamicObject> =
            Api::all_with(self.site.member.watch.clone(), &ApiResource::erase::<Event>(&()));
        let params = WatchParams::default().fields("involvedObject.kind=Pod").timeout(WATCH_SECONDS);
        let mut budget = Budget::new(Instant::now());
        // Where to go on. What happened before is not asked for: Events are news, and there may be very many.
        let mut version: Option<String> = None;
        let mut failures = 0;
        loop {
            match self.hear(&api, &params, &mut version, &sender, &mut budget).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    let pause = Backoff::spread(Backoff::default().pause(failures, None));
                    tracing::debug!(
                        error = brief(&error),
                        "cannot hear of Events in the member, trying again in {pause:?}"
                    );
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn hear(
        &self,
        api: &Api<DynamicObject>,
        params: &WatchParams,
        version: &mut Option<String>,
        sender: &mpsc::Sender<Heard>,
        budget: &mut Budget,
    ) -> Result<(), kube::Error> {
        let from = match version.clone() {
            Some(version) => version,
            None => {
                let fields = params.field_selector.clone().unwrap_or_default();
                let latest = api.list_metadata(&ListParams::default().fields(&fields).limit(1)).await?;
                latest.metadata.resource_version.unwrap_or_default()
            }
        };
        let begun = api.watch(params, &from).await.inspect_err(|error| {
            if decide::forgets(error) {
                *version = None;
            }
        });
        let mut events = begun?.boxed();
        *version = Some(from);
        let mut tell = |event: &Value| {
            let Some((pod, told)) = self.event_on_host(event) else { return false };
            if budget.allows(pod.uid(), Instant::now()) {
                let _ = sender.try_send((pod, told, Instant::now()));
            }
            true
        };
        // Events about pods that are not known: most are not ours, but one may be heard of before its pod is.
        let mut unknown: VecDeque<(Instant, Value)> = VecDeque::new();
        loop {
            let oldest = unknown.front().map(|(heard, _)| *heard + MOMENT);
            let event = tokio::select! {
                event = events.try_next() => event?,
                () = tokio::time::sleep_until(oldest.unwrap_or_else(Instant::now)), if oldest.is_some() => {
                    if let Some((_, event)) = unknown.pop_front() {
                        tell(&event);
                    }
                    continue;
                }
            };
            match event {
                Some(WatchEvent::Added(event) | WatchEvent::Modified(event)) => {
                    version.clone_from(&event.metadata.resource_version);
                    let event = serde_json::to_value(event).unwrap_or_default();
                    if !tell(&event) && unknown.len() < UNKNOWN {
                        unknown.push_back((Instant::now(), event));
                    }
                }
                Some(WatchEvent::Bookmark(mark)) => *version = Some(mark.metadata.resource_version),
                Some(WatchEvent::Deleted(_)) => {}
                Some(WatchEvent::Error(status)) => {
                    // Too long ago, or something that a fresh start may cure.
                    *version = None;
                    return Err(kube::Error::Api(status));
                }
                None => return Ok(()),
            }
        }
    }

    /// The Event as the host should show it, if it is about a pod of this node.
    fn event_on_host(&self, event: &Value) -> Option<(PodId, Value)> {
        let (namespace, name, uid) = decide::about(event)?;
        let there = self.watch.get()?.pod(&Slot::new(namespace, name))?;
        let target = self.site.target();
        if there.node() != target.node.as_str() || there.json()["metadata"]["uid"] != uid {
            return None;
        }
        let pod = PodId::new(there.host_key(&target.namespaces)?, there.host_uid());
        let told = decide::translated(event, &pod, self.site.host.node.as_str())?;
        Some((pod, told))
    }

    async fn write_events(self: Arc<Self>, mut events: mpsc::Receiver<Heard>) {
        let mut written: HashSet<String> = HashSet::new();
        while let Some((pod, event, heard)) = events.recv().await {
            tokio::time::sleep_until(heard + LATER).await;
            if written.len() >= REMEMBERED {
                written.clear();
            }
            if let Err(error) = self.write_event(&pod, &event, &mut written).await {
                tracing::debug!(pod = %pod.key(), error = brief(&error), "could not pass an Event on");
            }
        }
    }

    async fn write_event(
        &self,
        pod: &PodId,
        event: &Value,
        written: &mut HashSet<String>,
    ) -> Result<(), kube::Error> {
        let api: Api<Event> = Api::namespaced(self.site.host.client.clone(), pod.key().namespace());
        let name = event["metadata"]["name"].as_str().unwrap_or_default();
        let again = Patch::Merge(decide::repeated(event));
        if written.contains(name) {
            match api.patch(name, &PatchParams::default(), &again).await {
                // It was so long ago that the host forgot it.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                answer => return answer.map(drop),
            }
        }
        let object: Event = serde_json::from_value(event.clone()).map_err(kube::Error::SerdeError)?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                api.patch(name, &PatchParams::default(), &again).await?;
            }
            Err(error) => return Err(error),
        }
        written.insert(name.to_owned());
        Ok(())
    }
}
