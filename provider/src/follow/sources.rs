//! Objects of the host: read one by one, by name, as the Node authorizer allows.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use federlet_node::{
    client::{ask, is_behind},
    contract::ProviderError,
};
use kube::{Api, Client, api::DynamicObject};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::{
    desk::Desk,
    lanes::Lanes,
    object_watch::ObjectWatch,
    place::{Place, Resource},
};
use crate::errors::brief;

/// How long a watch may take to begin before the object is read without one.
const BEGIN: Duration = Duration::from_secs(5);

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
    lanes: Arc<Lanes>,
    desk: Arc<Desk>,
    watches: Mutex<HashMap<Place, AbortOnDropHandle<()>>>,
}

impl Sources {
    pub(super) fn new(client: Client, lanes: Arc<Lanes>, desk: Arc<Desk>) -> Self {
        Self { client, lanes, desk, watches: Mutex::default() }
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
            let watch = ObjectWatch {
                lanes: self.lanes.clone(),
                desk: self.desk.clone(),
                place: place.clone(),
                resource,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            watches.insert(place.clone(), AbortOnDropHandle::new(tokio::spawn(watch.run(sender))));
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

/// The host's version of an object.
pub(super) fn version(object: &Value) -> Option<Box<str>> {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(Into::into)
}
