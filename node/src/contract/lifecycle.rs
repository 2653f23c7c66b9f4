use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::Value;

use super::{Pod, PodId, PodKey, ProviderError};

/// Starts, changes and stops pods.
///
/// Calls for one pod never overlap; calls for different pods do. Each call is bounded by a timeout, after which its
/// future is dropped and the outcome counts as [`ProviderError::Unavailable`]: what it began may still happen, so
/// every call must be safe to repeat.
///
/// A provider holds at most one pod per namespace and name, and remembers for which UID. The pods it returns carry
/// the host's name, namespace and UID, and a `status` in the host's terms.
#[async_trait]
pub trait PodLifecycleHandler: Send + Sync + 'static {
    /// Starts the pod. Returns when it is accepted, not when it runs.
    ///
    /// A pod of the same UID that is already there means success: the answer to an earlier attempt was lost.
    /// Something else of that name is [`ProviderError::AlreadyExists`]. After success [`get_pod`](Self::get_pod)
    /// must find the pod, or say that it does not know yet.
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError>;

    /// Makes a pod that is there as it is written now: labels, annotations, images, tolerations, deadline,
    /// ephemeral containers, resources.
    ///
    /// Also called when nothing changed, once after a restart and at each full resync. A provider compares, and
    /// writes only what differs.
    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError>;

    /// Begins to stop the pod of exactly this UID, giving its containers `grace` to end.
    ///
    /// Called again with a shorter `grace` when the user loses patience; zero means now. The pod stays in
    /// [`get_pods`](Self::get_pods) with a deletion timestamp until it is gone, and then a [`PodChange`] says so.
    async fn delete_pod(&self, pod: &PodId, grace: Duration) -> Result<(), ProviderError>;

    /// The pod of this name as it is now, whichever its UID.
    async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError>;

    /// The status of the pod of this name, as the host should show it.
    async fn get_pod_status(&self, key: &PodKey) -> Result<Value, ProviderError> {
        Ok(self.get_pod(key).await?.status().clone())
    }

    /// Every pod of this provider. Pods that the host does not know are removed by this list, so it is complete or
    /// it is an error.
    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError>;
}

/// Tells when pods change, so that nobody polls.
pub trait PodNotifier: Send + Sync + 'static {
    /// A new subscription to changes, from now on. When the stream ends, the controller subscribes again and
    /// compares everything.
    fn notify_pods(&self) -> ChangeStream;
}

/// One change of a provider's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// The pod of this name changed, appeared or went. What it is now, the controller asks.
    Changed(PodKey),
    /// Changes were lost: compare every pod.
    Resync,
    /// What the provider makes of pods may be something else now, though nobody changed them: update every one, and try
    /// those again at once that it would not have.
    Reconsider,
    /// The same, of the pod of this name alone.
    ReconsiderOne(PodKey),
}

/// What [`PodNotifier::notify_pods`] returns.
pub type ChangeStream = BoxStream<'static, PodChange>;
