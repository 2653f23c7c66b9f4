//! Logs of all copies; exec, attach and port-forward into one of them. The bytes come through the nodes of the clusters.

use std::future::Future;

use async_trait::async_trait;
use bytes::Bytes;
use federlet_node::contract::{
    ByteStream, LogOptions, MetricsKind, Pod, PodStreams, ProviderError, UpgradeAnswer, UpgradeRequest,
};
use futures::FutureExt;
use kube::{Client, client::Body};
use serde_json::Value;

use super::{
    FleetProvider,
    child::Child,
    lines::{follow, in_turn, limited},
    status::is_true,
};
use crate::{cluster::log_of, errors::from_host};

#[async_trait]
impl PodStreams for FleetProvider {
    async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        let opening = self.running(pod)?.into_iter().map(|child| {
            let log = open(self.clients.streams.clone(), &child, container, options);
            (child.cluster, log.boxed())
        });
        let merged = if options.follow { follow(opening).await? } else { in_turn(opening).await? };
        Ok(limited(merged, options.limit_bytes))
    }

    async fn upgrade(&self, pod: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        let children = self.running(pod)?;
        let ready = children.iter().find(|child| is_true(&child.json()["status"], "Ready"));
        let Some(child) = ready.or_else(|| children.first()) else {
            return Err(ProviderError::NotFound);
        };
        let namespace = child.parent.key().namespace();
        let request = request.to_node(&child.cluster, namespace, &child.name).map(|()| Body::empty());
        let response = self.clients.streams.send(request).await.map_err(|error| from_host(&error))?;
        UpgradeAnswer::from_response(response).await
    }

    async fn stats(&self) -> Result<Value, ProviderError> {
        self.usage().await
    }

    async fn metrics(&self, kind: MetricsKind) -> Result<Bytes, ProviderError> {
        self.usage_metrics(kind).await
    }
}

impl FleetProvider {
    /// The copies of a pod in clusters that can be reached, by the name of the cluster.
    fn running(&self, pod: &Pod) -> Result<Vec<Child>, ProviderError> {
        self.must_know_copies()?;
        let reach = self.choice.reach();
        let mut children = self.children.read().of(pod.id());
        children.retain(|child| reach.get(&*child.cluster) == Some(&true));
        children.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        if children.is_empty() {
            return Err(ProviderError::unavailable("the pod has no copy in a cluster that can be reached"));
        }
        Ok(children)
    }
}

/// Asks for the log of one copy.
fn open(
    client: Client,
    child: &Child,
    container: &str,
    options: &LogOptions,
) -> impl Future<Output = Result<ByteStream, ProviderError>> + Send + use<> {
    let namespace = child.parent.key().namespace();
    let request = options.to_node(&child.cluster, namespace, &child.name, container).map(|()| Body::empty());
    async move {
        let response = client.send(request).await.map_err(|error| from_host(&error))?;
        log_of(response).await
    }
}
