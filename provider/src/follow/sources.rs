//! Objects of the host: read one by one, by name, as the Node authorizer allows.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use federlet_node::{contract::ProviderError, decide::Backoff};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Client,
    api::{DynamicObject, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::{
    desk::Desk,
    place::{Place, Resource},
};
use crate::errors::brief;

/// How long one watch request lives, in seconds.
const WATCH_SECONDS: u32 = 290;

/// How long a watch may take to begin before the object is read without one.
const BEGIN: Duration = Duration::from_secs(5);

/// How often to ask again at once while the host's caches do not know of the pod yet.
const LAGS: u32 = 5;
/// And after which pause.
const LAG: Duration = Duration::from_millis(200);

/// Whether the host has not noticed yet that the pod is on this node.
///
/// Its Node authorizer and its admission plugins ask caches of their own, and we may have heard of the pod before them.
fn is_behind(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let about_pod = status.message.starts_with("pod ") || status.message.starts_with("pods ");
    (status.code == 403 && status.message.contains("no relationship found between node"))
        || (status.code == 404 && about_pod)
}

/// Asks the host, and again if it is only behind.
pub(super) async fn ask<T, F>(question: impl Fn() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut asked = 0;
    loop {
        match question().await {
            Err(error) if is_behind(&error) && asked < LAGS => asked += 1,
            answer => return answer,
        }
        tokio::time::sleep(LAG).await;
    }
}

/// What the host's API server could not do for us.
pub(super) fn from_host(error: &kube::Error, what: &impl fmt::Display) -> ProviderError {
    match error {
        error if is_behind(error) => ProviderError::unavailable(format!("{what}: {}", brief(error))),
        kube::Error::Api(status) if matches!(status.code, 403 | 422) => {
            ProviderError::rejected("HostForbids", format!("{what}: {}", brief(error)))
        }
        _ => ProviderError::unavailable(format!("{what}: {}", brief(error))),
    }
}

/// One watch for each object that pods refer to, shared by all of them.
pub(super) struct Sources {
    client: Client,
    desk: Arc<Desk>,
    watches: Mutex<HashMap<Place, AbortOnDropHandle<()>>>,
}

impl Sources {
    pub(super) fn new(client: Client, desk: Arc<Desk>) -> Self {
        Self { client, desk, watches: Mutex::default() }
    }

    /// The object as it is now.
    pub(super) async fn get(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, kube::Error> {
        let api = self.api(resource, namespace);
        let found = ask(|| api.get_opt(name)).await?;
        Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
    }

    /// Begins to watch an object, if nobody did, and waits until the watch has begun: whoever reads the object after
    /// that misses no change.
    pub(super) async fn watch(&self, place: &Place, resource: Resource, namespace: &str, name: &str) {
        let begun = {
            let mut watches = self.watches.lock();
            if watches.contains_key(place) {
                return;
            }
            let (sender, begun) = oneshot::channel();
            let api = self.api(resource, namespace);
            let task = watch(api, name.to_owned(), place.clone(), self.desk.clone(), sender);
            watches.insert(place.clone(), AbortOnDropHandle::new(tokio::spawn(task)));
            begun
        };
        // Without a watch the object is read all the same, and again when the watch begins.
        let _ = tokio::time::timeout(BEGIN, begun).await;
    }

    /// Nobody needs the object any more.
    pub(super) fn forget(&self, place: &Place) {
        self.watches.lock().remove(place);
    }

    fn api(&self, resource: Resource, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource.api())
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("watches", &self.watches.lock().len()).finish_non_exhaustive()
    }
}

/// Tells of every change of one object, for ever. Only metadata passes; the content is read when it is needed.
async fn watch(
    api: Api<DynamicObject>,
    name: String,
    place: Place,
    desk: Arc<Desk>,
    begun: oneshot::Sender<()>,
) {
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut begun = Some(begun);
    // Where to go on after an interruption. Without it something may have been missed.
    let mut version: Option<String> = None;
    let mut failures = 0;
    loop {
        let from = version.clone().unwrap_or_else(|| "0".to_owned());
        match ask(|| api.watch_metadata(&params, &from)).await {
            Ok(events) => {
                match begun.take() {
                    Some(begun) => {
                        let _ = begun.send(());
                    }
                    None if version.is_none() => desk.doubt(&place),
                    None => {}
                }
                let mut events = events.boxed();
                let ended = loop {
                    match events.try_next().await {
                        Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                            version.clone_from(&object.metadata.resource_version);
                            desk.host_changed(&place, version.as_deref());
                        }
                        Ok(Some(WatchEvent::Deleted(object))) => {
                            version = object.metadata.resource_version;
                            desk.host_changed(&place, None);
                        }
                        Ok(Some(WatchEvent::Bookmark(mark))) => {
                            version = Some(mark.metadata.resource_version);
                        }
                        Ok(Some(WatchEvent::Error(status))) => {
                            // Too long ago, or something that a fresh start may cure.
                            version = None;
                            break Some(status.message.clone());
                        }
                        Ok(None) => break None,
                        Err(error) => break Some(brief(&error)),
                    }
                    failures = 0;
                };
                let Some(error) = ended else { continue };
                tracing::debug!(%place, error, "watching the host's object was interrupted");
            }
            Err(error) => {
                if matches!(&error, kube::Error::Api(status) if status.code == 410) {
                    version = None;
                }
                tracing::debug!(%place, error = brief(&error), "cannot watch the host's object");
            }
        }
        failures += 1;
        tokio::time::sleep(Backoff::spread(Backoff::default().pause(failures, None))).await;
    }
}

/// The host's version of an object.
pub(super) fn version(object: &Value) -> Option<Box<str>> {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(Into::into)
}
