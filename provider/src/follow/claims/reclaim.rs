//! The end of volumes: the host's claim is gone, and the data in the member goes with it, if it is not to be kept.

use std::{collections::HashMap, sync::Arc, time::Duration};

use federlet_node::contract::ProviderError;
use futures::StreamExt;
use kube::{
    api::{DeleteParams, Preconditions},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        Follow,
        place::{Place, Resource},
        sources::from_host,
    },
    decide::{self, Volume},
};
use crate::{json::text, marks};

/// How long one watch request lives. A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

/// How often what did not work is tried again.
const AGAIN: Duration = Duration::from_secs(10);

impl Follow {
    /// Reclaims volumes of this node until told to stop.
    pub(in super::super) async fn reclaim_volumes(self: Arc<Self>, stop: CancellationToken) {
        let ours = format!("{}={}", marks::NODE, self.site.host.node);
        let config = watcher::Config::default().labels(&ours).timeout(WATCH_SECONDS);
        let mut events = watcher(self.volumes(), config).default_backoff().boxed();
        let mut over: HashMap<String, Value> = HashMap::new();
        let mut timer = tokio::time::interval(AGAIN);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Apply(volume) | watcher::Event::InitApply(volume))) => {
                        let volume = serde_json::to_value(volume).unwrap_or_default();
                        let name = volume.get("metadata").and_then(|metadata| text(metadata, "name"));
                        if let Some(name) = name.filter(|_| decide::is_over(&volume)) {
                            over.insert(name.to_owned(), volume);
                            timer.reset_immediately();
                        }
                    }
                    Some(Ok(watcher::Event::Delete(volume))) => {
                        over.remove(volume.metadata.name.as_deref().unwrap_or_default());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => tracing::debug!(%error, "cannot watch the host's volumes, trying again"),
                    None => return,
                },
                _ = timer.tick(), if !over.is_empty() => {
                    for (name, volume) in std::mem::take(&mut over) {
                        if let Err(error) = self.reclaim(&name, &volume).await {
                            tracing::warn!(volume = name, %error, "cannot reclaim a volume, will try again");
                            over.insert(name, volume);
                        }
                    }
                }
            }
        }
    }

    async fn reclaim(&self, name: &str, volume: &Value) -> Result<(), ProviderError> {
        let Volume::Ours(there) = Volume::of(Some(volume), self.site.host.node.as_str()) else {
            return Ok(());
        };
        self.recognise().await?;
        let place = Place {
            resource: Resource::Claim,
            namespace: there.namespace.as_str().into(),
            name: there.name.as_str().into(),
        };
        // By its UID: a claim of that name which came later is not touched.
        self.member.delete(&place, &there.uid).await?;
        let uid = volume.get("metadata").and_then(|metadata| text(metadata, "uid")).map(str::to_owned);
        let params = DeleteParams::default().preconditions(Preconditions { uid, resource_version: None });
        match self.volumes().delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(from_host(&error, &format!("removing volume {name}"))),
        }
    }
}
