//! A provider that keeps its pods in memory, for tests, for demos, and as an example to read.
//!
//! Its containers "run": they are Running and Ready at once, and log a line every second. A pod that is not to run for
//! ever completes after two seconds. Annotations on a pod change that:
//!
//! | annotation | meaning |
//! | --- | --- |
//! | `memory.federlet.io/run-for` | seconds until the containers end |
//! | `memory.federlet.io/exit-code` | with which code they end |
//! | `memory.federlet.io/stop-after` | seconds they take to stop when told to, within the grace period |

mod containers;
mod journal;
mod logs;
mod state;
mod usage;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::broadcast;

use self::{journal::Journal, state::State, usage::Usage};
use crate::contract::{
    ByteStream, ChangeStream, LogOptions, MetricsKind, NodeProvider, NodeReport, Pod, PodChange, PodId,
    PodKey, PodLifecycleHandler, PodNotifier, PodStreams, ProviderError, ReportStream, UpgradeAnswer,
    UpgradeRequest,
};

/// How large the node is, and how its containers behave.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MemorySettings {
    /// CPUs.
    pub cpu: String,
    /// Memory.
    pub memory: String,
    /// Pods.
    pub pods: String,
    /// Seconds until the containers of a pod end that is not to run for ever.
    pub run_for_seconds: u64,
    /// A file in which the pods outlive the process. Without it they end with it, and count as lost.
    pub state_file: Option<PathBuf>,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            cpu: "1000".into(),
            memory: "4Ti".into(),
            pods: "10000".into(),
            run_for_seconds: 2,
            state_file: None,
        }
    }
}

/// The provider.
pub struct MemoryProvider {
    settings: MemorySettings,
    state: Arc<State>,
}

impl MemoryProvider {
    /// One with the pods of its state file, if there is one, else empty. Belongs into a Tokio runtime.
    pub fn new(settings: MemorySettings) -> std::io::Result<Self> {
        let journal = settings.state_file.as_deref().map(Journal::open).transpose()?;
        let state = State::new(Duration::from_secs(settings.run_for_seconds), journal);
        Ok(Self { settings, state })
    }
}

impl Default for MemoryProvider {
    fn default() -> Self {
        let settings = MemorySettings::default();
        let state = State::new(Duration::from_secs(settings.run_for_seconds), None);
        Self { settings, state }
    }
}

#[async_trait]
impl PodLifecycleHandler for MemoryProvider {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.state.create(pod)
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.state.update(pod)
    }

    async fn delete_pod(&self, pod: &PodId, grace: Duration) -> Result<(), ProviderError> {
        self.state.delete(pod, grace)
    }

    async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError> {
        self.state.get(key).ok_or(ProviderError::NotFound)
    }

    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
        Ok(self.state.all())
    }
}

impl PodNotifier for MemoryProvider {
    fn notify_pods(&self) -> ChangeStream {
        stream::unfold(self.state.changes(), |mut changes| async move {
            match changes.recv().await {
                Ok(key) => Some((PodChange::Changed(key), changes)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((PodChange::Resync, changes)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}

#[async_trait]
impl NodeProvider for MemoryProvider {
    async fn ping(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    fn notify_node_status(&self) -> ReportStream {
        let report = NodeReport::default()
            .with_capacity("cpu", &self.settings.cpu)
            .with_capacity("memory", &self.settings.memory)
            .with_capacity("pods", &self.settings.pods);
        stream::once(async { report }).chain(stream::pending()).boxed()
    }
}

#[async_trait]
impl PodStreams for MemoryProvider {
    async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &LogOptions,
    ) -> Result<ByteStream, ProviderError> {
        logs::open(self.state.clone(), pod.id(), container, options.clone())
    }

    async fn upgrade(&self, _: &Pod, request: UpgradeRequest) -> Result<UpgradeAnswer, ProviderError> {
        let kind = request.kind;
        Err(ProviderError::unsupported(format!(
            "the memory provider only pretends to run containers: it has no {kind}"
        )))
    }

    async fn stats(&self) -> Result<Value, ProviderError> {
        Ok(Usage::of(self.state.runs(), Timestamp::now()).summary())
    }

    async fn metrics(&self, kind: MetricsKind) -> Result<Bytes, ProviderError> {
        Ok(Usage::of(self.state.runs(), Timestamp::now()).metrics(kind).into())
    }
}

impl fmt::Debug for MemoryProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryProvider").field("settings", &self.settings).finish_non_exhaustive()
    }
}
