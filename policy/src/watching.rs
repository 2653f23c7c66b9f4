//! One watch, kept up until told to stop.

use std::{fmt::Debug, pin::pin};

use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;

/// Gives each event to `take`.
pub(crate) async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    what: &str,
    stop: &CancellationToken,
    mut take: impl FnMut(watcher::Event<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = pin!(watcher(api, config.timeout(WATCH_SECONDS)).default_backoff());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => match event {
                Some(Ok(event)) => take(event),
                Some(Err(error)) => tracing::warn!(what, %error, "a watch failed, trying again"),
                None => return,
            },
        }
    }
}
