//! Events about pods in the member, told on the host's pods: `kubectl describe` says why an image cannot be pulled.

mod budget;
mod decide;

use std::{collections::HashSet, sync::Arc};

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

/// How long one watch request lives, in seconds.
const WATCH_SECONDS: u32 = 45;

/// Events that may wait to be written. When the host is that slow, the newest are dropped: most repeat anyway.
const WAITING: usize = 256;

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

    async fn hear_events(&self, sender: mpsc::Sender<(PodId, Value)>) {
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
        sender: &mpsc::Sender<(PodId, Value)>,
        budget: &mut Budget,
    ) -> Result<(), kube::Error> {
        let from = match version.take() {
            Some(version) => version,
            None => {
                let fields = params.field_selector.clone().unwrap_or_default();
                let latest = api.list_metadata(&ListParams::default().fields(&fields).limit(1)).await?;
                latest.metadata.resource_version.unwrap_or_default()
            }
        };
        let mut events = api.watch(params, &from).await?.boxed();
        *version = Some(from);
        loop {
            match events.try_next().await? {
                Some(WatchEvent::Added(event) | WatchEvent::Modified(event)) => {
                    version.clone_from(&event.metadata.resource_version);
                    let event = serde_json::to_value(event).unwrap_or_default();
                    if let Some((pod, told)) = self.event_on_host(&event)
                        && budget.allows(pod.uid(), Instant::now())
                    {
                        let _ = sender.try_send((pod, told));
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

    async fn write_events(self: Arc<Self>, mut events: mpsc::Receiver<(PodId, Value)>) {
        let mut written: HashSet<String> = HashSet::new();
        while let Some((pod, event)) = events.recv().await {
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
