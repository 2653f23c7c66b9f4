//! What goes along with pods: the objects they refer to, the Services that select them, their Events.

use std::sync::Arc;

use federlet_node::contract::{Pod, PodId, ProviderError};
use tokio_util::sync::CancellationToken;

use crate::site::Site;

/// What goes along with the pods of one virtual node.
#[derive(Debug)]
pub struct Follow {}

impl Follow {
    /// For one virtual node.
    pub fn new(_site: Arc<Site>) -> Arc<Self> {
        Arc::new(Self {})
    }

    /// All that the pod refers to is in the member, and current, when this returns.
    #[expect(clippy::unused_async, reason = "it will ask")]
    pub async fn bring(&self, _pod: &Pod) -> Result<(), ProviderError> {
        Ok(())
    }

    /// The pod is gone: what only it needed goes away.
    pub fn release(&self, _pod: &PodId) {}

    /// Its work in the background, until told to stop.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        stop.cancelled().await;
    }
}
