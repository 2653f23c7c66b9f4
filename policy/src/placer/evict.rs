//! Pods are moved by the Eviction API: budgets are respected, and it goes slowly.

use std::time::Duration;

use federlet_provider::errors::brief;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, EvictParams, Preconditions},
};
use tokio::{sync::Mutex, time::Instant};

/// At most so many for the whole host.
const PAUSE: Duration = Duration::from_millis(100);

/// Evicts, one at a time.
#[derive(Default)]
pub(crate) struct Evictions(Mutex<Option<Instant>>);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// It goes.
    Yes,
    /// It was gone already, or is another one by now.
    Gone,
    /// A budget forbids it now.
    NotNow(String),
    /// Something else.
    Failed(String),
}

impl Evictions {
    pub(crate) async fn evict(&self, client: &Client, namespace: &str, name: &str, uid: &str) -> Evicted {
        let mut last = self.0.lock().await;
        if let Some(last) = *last {
            tokio::time::sleep_until(last + PAUSE).await;
        }
        *last = Some(Instant::now());
        drop(last);
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let options = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
        let params = EvictParams { delete_options: Some(options), ..EvictParams::default() };
        match pods.evict(name, &params).await {
            Ok(_) => Evicted::Yes,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Evicted::Gone,
            Err(kube::Error::Api(status)) if status.code == 429 => Evicted::NotNow(status.message),
            Err(error) => Evicted::Failed(brief(&error)),
        }
    }
}
