//! Copies, as the host has them.

use std::{collections::HashSet, pin::pin};

use federlet_node::contract::{PodChange, PodKey, ProviderError};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    FleetProvider,
    child::{Child, News},
};
use crate::marks;

/// A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

pub(super) fn resource() -> ApiResource {
    ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&())
}

impl FleetProvider {
    /// Keeps what is known of copies current, until told to stop.
    pub(super) async fn follow_copies(&self, stop: &CancellationToken) {
        let api: Api<DynamicObject> = Api::all_with(self.clients.watch.clone(), &resource());
        let config = watcher::Config::default().labels(marks::COPY_OF).timeout(WATCH_SECONDS);
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut listed = HashSet::new();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => self.take(event, &mut listed),
                Some(Err(error)) => tracing::warn!(%error, "watching copies failed, trying again"),
                None => return,
            }
        }
    }

    fn take(&self, event: watcher::Event<DynamicObject>, listed: &mut HashSet<PodKey>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => {
                listed.insert(key(&pod));
                if let Some(child) = read(&pod) {
                    self.children.write().apply(child);
                }
            }
            watcher::Event::InitDone => {
                self.children.write().keep_only(listed);
                listed.clear();
                self.listed.send_replace(true);
                // Whatever changed meanwhile, nobody said so.
                self.tell(PodChange::Reconsider);
            }
            watcher::Event::Apply(pod) => {
                if let Some(child) = read(&pod) {
                    self.note(child);
                }
            }
            watcher::Event::Delete(pod) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                let news = self.children.write().end(&key(&pod), uid);
                news.into_iter().for_each(|news| self.pass_on(news));
            }
        }
    }

    /// Takes in what a watch or the answer to a write says.
    pub(super) fn note(&self, child: Child) {
        let news = self.children.write().apply(child);
        news.into_iter().for_each(|news| self.pass_on(news));
    }

    fn pass_on(&self, news: News) {
        self.tell(match news {
            News::Status(pod) => PodChange::Changed(pod),
            News::Copies(pod) => PodChange::ReconsiderOne(pod),
        });
    }

    /// Refuses to go on while it is not known which copies there are.
    pub(super) fn must_know_copies(&self) -> Result<(), ProviderError> {
        if *self.listed.borrow() {
            return Ok(());
        }
        Err(ProviderError::unavailable("the copies of pods are not listed yet"))
    }
}

fn key(pod: &DynamicObject) -> PodKey {
    PodKey::new(pod.namespace().unwrap_or_default(), pod.name_any())
}

fn read(pod: &DynamicObject) -> Option<Child> {
    let json: Value = serde_json::to_value(pod).ok()?;
    Child::read(&json)
}
