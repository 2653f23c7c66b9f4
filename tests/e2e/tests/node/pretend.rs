//! Pods that only pretend to run, with streams of the test's own.

use std::time::Duration;

use async_trait::async_trait;
use federlet_node::{
    contract::{
        ByteStream, ChangeStream, LogOptions, NodeProvider, NodeReport, Pod, PodId, PodKey,
        PodLifecycleHandler, PodNotifier, PodStreams, ProviderError, ReportStream, UpgradeAnswer,
        UpgradeRequest,
    },
    memory::MemoryProvider,
};
use futures::StreamExt;

#[derive(Default)]
pub(crate) struct Pretend<S> {
    memory: MemoryProvider,
    pub(crate) streams: S,
}

impl<S> Pretend<S> {
    pub(crate) fn with(streams: S) -> Self {
        Self { memory: MemoryProvider::default(), streams }
    }
}

#[async_trait]
impl<S: PodStreams> PodStreams for Pretend<S> {
    async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        self.streams.logs(pod, container, options).await
    }

    async fn upgrade(&self, pod: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        self.streams.upgrade(pod, request).await
    }
}

#[async_trait]
impl<S: PodStreams> PodLifecycleHandler for Pretend<S> {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.memory.create_pod(pod).await
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.memory.update_pod(pod).await
    }

    async fn delete_pod(&self, pod: &PodId, grace: Duration) -> Result<(), ProviderError> {
        self.memory.delete_pod(pod, grace).await
    }

    async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError> {
        self.memory.get_pod(key).await
    }

    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
        self.memory.get_pods().await
    }
}

impl<S: PodStreams> PodNotifier for Pretend<S> {
    fn notify_pods(&self) -> ChangeStream {
        self.memory.notify_pods()
    }
}

#[async_trait]
impl<S: PodStreams> NodeProvider for Pretend<S> {
    async fn ping(&self) -> Result<(), ProviderError> {
        self.memory.ping().await
    }

    fn notify_node_status(&self) -> ReportStream {
        // Hosts that know this pass websockets on as they are.
        let declare = |mut report: NodeReport| {
            report.status.declared_features = Some(vec!["ExtendWebSocketsToKubelet".into()]);
            report
        };
        self.memory.notify_node_status().map(declare).boxed()
    }
}
