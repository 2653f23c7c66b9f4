//! Logs of all copies; exec, attach and port-forward into one of them. The bytes come through the nodes of the clusters.

use async_trait::async_trait;
use bytes::Bytes;
use federlet_node::contract::{
    ByteStream, LogOptions, MetricsKind, Pod, PodStreams, ProviderError, UpgradeAnswer, UpgradeRequest,
};
use futures::{StreamExt, future::join_all, stream};
use kube::client::Body;
use serde_json::Value;

use super::{
    FleetProvider,
    child::Child,
    lines::{limited, prefixed},
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
        let children = self.running(pod)?;
        let opened = join_all(children.iter().map(|child| self.log(child, container, options))).await;
        if opened.iter().all(Result::is_err) {
            return opened.into_iter().next().unwrap_or(Err(ProviderError::NotFound));
        }
        let logs = children.iter().zip(opened).map(|(child, log)| {
            let log = log.unwrap_or_else(|error| {
                // One that has nothing to say must not hide the others.
                let said = Bytes::from(format!("({error})\n"));
                stream::once(async { Ok(said) }).boxed()
            });
            prefixed(&child.cluster, log)
        });
        let logs: Vec<ByteStream> = logs.collect();
        let merged: ByteStream = if options.follow {
            stream::select_all(logs).boxed()
        } else {
            stream::iter(logs).flatten().boxed()
        };
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

    async fn log(
        &self,
        child: &Child,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        let namespace = child.parent.key().namespace();
        let request =
            options.to_node(&child.cluster, namespace, &child.name, container).map(|()| Body::empty());
        let response = self.clients.streams.send(request).await.map_err(|error| from_host(&error))?;
        log_of(response).await
    }
}
