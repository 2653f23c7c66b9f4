use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use http::StatusCode;

use super::*;
use crate::{
    contract::{
        ChangeStream, NodeProvider, Pod, PodId, PodKey, PodLifecycleHandler, PodNotifier, PodStreams,
        ProviderError, ReportStream,
    },
    fake_api::{failure, fake_api, template},
    memory::MemoryProvider,
    pods::Scope,
};

/// A provider with a mistake in it that shows once.
#[derive(Default)]
struct Fragile {
    memory: MemoryProvider,
    pings: AtomicUsize,
    subscriptions: AtomicUsize,
}

#[async_trait]
impl PodLifecycleHandler for Fragile {
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

impl PodNotifier for Fragile {
    fn notify_pods(&self) -> ChangeStream {
        assert!(self.subscriptions.fetch_add(1, Ordering::SeqCst) > 0, "the mistake");
        self.memory.notify_pods()
    }
}

#[async_trait]
impl NodeProvider for Fragile {
    async fn ping(&self) -> Result<(), ProviderError> {
        assert!(self.pings.fetch_add(1, Ordering::SeqCst) > 0, "the mistake");
        Ok(())
    }

    fn notify_node_status(&self) -> ReportStream {
        self.memory.notify_node_status()
    }
}

impl PodStreams for Fragile {}

#[tokio::test(start_paused = true)]
async fn a_node_of_which_a_part_failed_begins_anew() {
    let (client, _) = fake_api(|_| failure(StatusCode::NOT_FOUND));
    let (provider, host_pods) =
        (Arc::new(Fragile::default()), HostPods::new(Scope::Shared, None, Arc::default()));
    let node = VirtualNode {
        template: template(),
        provider: provider.clone(),
        client: client.clone(),
        heartbeat_client: client,
        heartbeat: Handle::current(),
        host_pods: host_pods.clone(),
        references: None,
        facts: NodeFacts::default(),
        settings: VirtualNodeSettings {
            // None at all is not a choice.
            node: NodeSettings { ping_every: Duration::ZERO, ..NodeSettings::default() },
            pods: PodSettings::default(),
            identity: None,
        },
        metrics: Arc::default(),
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(node.run(stop.clone()));
    // Each part fails once, and all of it works in the end.
    let works = async {
        while provider.pings.load(Ordering::SeqCst) < 3 || provider.subscriptions.load(Ordering::SeqCst) < 2 {
            host_pods.list_nothing();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), works).await.unwrap();
    stop.cancel();
    running.await.unwrap();
    assert!(host_pods.node(&template().name).is_none());
}
