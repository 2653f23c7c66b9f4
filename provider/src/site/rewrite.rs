use async_trait::async_trait;
use federlet_node::contract::{Pod, ProviderError};
use tokio::sync::watch;

/// Makes pods differ from cluster to cluster, before they are translated.
#[async_trait]
pub trait Rewrite: Send + Sync + 'static {
    /// The pod as one cluster gets it; none if that is as it is.
    ///
    /// If something of it cannot change in a pod that runs, the annotation [`OVERRIDDEN`](crate::marks::OVERRIDDEN) says
    /// so by another value.
    async fn rewrite(&self, pod: &Pod, cluster: &str) -> Result<Option<Pod>, ProviderError>;

    /// Has a pod replaced by a new one, some time: it became something that it cannot be changed into.
    async fn replace(&self, pod: &Pod) -> Result<(), ProviderError>;

    /// Counts changes of what is made of pods.
    fn changes(&self) -> watch::Receiver<u64>;
}
