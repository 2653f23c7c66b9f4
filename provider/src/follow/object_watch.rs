use std::{sync::Arc, time::Duration};

use federlet_node::{client::ask, decide::Backoff};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api,
    api::{DynamicObject, WatchEvent, WatchParams},
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    desk::Desk,
    lanes::Lanes,
    place::{Place, Resource},
};
use crate::errors::brief;

/// How long one watch request lives, in seconds. They are spread, so that not all end together.
const WATCH_SECONDS: std::ops::Range<u32> = 240..290;

/// A request that ends sooner did not work, whatever the host says.
const SOON: Duration = Duration::from_secs(1);

/// A watch of one object of the host. Only metadata passes; the content is read when it is needed.
pub(super) struct ObjectWatch {
    pub(super) lanes: Arc<Lanes>,
    pub(super) desk: Arc<Desk>,
    pub(super) place: Place,
    pub(super) resource: Resource,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ObjectWatch {
    /// Tells of every change, for ever. Says when it has begun: whoever reads the object after that misses nothing.
    pub(super) async fn run(self, begun: oneshot::Sender<()>) {
        let mut begun = Some(begun);
        // Where to go on after an interruption. Without it something may have been missed.
        let mut version = None;
        let mut failures = 0;
        loop {
            let since = Instant::now();
            match self.watch(&mut version, &mut begun).await {
                Ok(()) if since.elapsed() > SOON => {
                    failures = 0;
                    continue;
                }
                Ok(()) => {}
                Err(error) => {
                    if since.elapsed() > SOON {
                        failures = 0;
                    }
                    tracing::debug!(place = %self.place, error = brief(&error), "watching the host's object failed");
                }
            }
            failures += 1;
            tokio::time::sleep(Backoff::spread(Backoff::default().pause(failures, None))).await;
        }
    }

    /// One request, from its beginning to its end.
    async fn watch(
        &self,
        version: &mut Option<String>,
        begun: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), kube::Error> {
        let lane = self.lanes.enter().await?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(lane.client.clone(), &self.namespace, &self.resource.api());
        let params = WatchParams::default()
            .fields(&format!("metadata.name={}", self.name))
            .timeout(fastrand::u32(WATCH_SECONDS));
        let from = version.clone().unwrap_or_else(|| "0".to_owned());
        let events = match ask(|| api.watch_metadata(&params, &from)).await {
            Ok(events) => events,
            Err(error) => {
                // Too long ago: begin anew.
                if matches!(&error, kube::Error::Api(status) if status.code == 410) {
                    *version = None;
                }
                return Err(error);
            }
        };
        match begun.take() {
            Some(begun) => drop(begun.send(())),
            None if version.is_none() => self.desk.doubt(&self.place),
            None => {}
        }
        let mut events = events.boxed();
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version.clone_from(&object.metadata.resource_version);
                    self.desk.host_changed(&self.place, version.as_deref());
                }
                WatchEvent::Deleted(object) => {
                    *version = object.metadata.resource_version;
                    self.desk.host_changed(&self.place, None);
                }
                WatchEvent::Bookmark(mark) => *version = Some(mark.metadata.resource_version),
                WatchEvent::Error(status) => {
                    *version = None;
                    return Err(kube::Error::Api(status));
                }
            }
        }
        Ok(())
    }
}
