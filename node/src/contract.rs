//! What a provider implements, and the words both sides use.
//!
//! A provider is whatever runs the pods of a virtual node: another cluster, a cloud's container service, a test.
//! It implements four small traits. [`PodLifecycleHandler`] starts and stops pods, [`PodNotifier`] says when one
//! changed, [`NodeProvider`] describes the node they run on, [`PodStreams`] answers `kubectl logs` and `exec`.
//! The controllers of this crate do the rest. They act on *which* [`ProviderError`] comes back, so choosing the
//! right variant is most of the work of writing a provider.
//!
//! # Example
//!
//! A provider that keeps its pods in a map. It is complete: [`Provider`] is implemented for whatever implements
//! the four traits.
//!
//! ```
//! use std::{collections::HashMap, time::Duration};
//!
//! use async_trait::async_trait;
//! use federlet_node::contract::{
//!     ChangeStream, NodeProvider, NodeReport, Pod, PodChange, PodId, PodKey, PodLifecycleHandler, PodNotifier,
//!     PodStreams, Provider, ProviderError, ReportStream,
//! };
//! use futures::StreamExt;
//! use parking_lot::Mutex;
//! use serde_json::json;
//! use tokio::sync::broadcast;
//!
//! struct Shelf {
//!     pods: Mutex<HashMap<PodKey, Pod>>,
//!     changes: broadcast::Sender<PodChange>,
//! }
//!
//! #[async_trait]
//! impl PodLifecycleHandler for Shelf {
//!     async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
//!         let running = pod.clone().with_status(json!({ "phase": "Running" }));
//!         self.pods.lock().insert(pod.key().clone(), running);
//!         self.changes.send(PodChange::Changed(pod.key().clone())).ok();
//!         Ok(())
//!     }
//!
//!     async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
//!         let mut pods = self.pods.lock();
//!         let held = pods.get_mut(pod.key()).ok_or(ProviderError::NotFound)?;
//!         *held = pod.clone().with_status(held.status().clone());
//!         Ok(())
//!     }
//!
//!     async fn delete_pod(&self, pod: &PodId, _grace: Duration) -> Result<(), ProviderError> {
//!         self.pods.lock().remove(pod.key()).ok_or(ProviderError::NotFound)?;
//!         self.changes.send(PodChange::Changed(pod.key().clone())).ok();
//!         Ok(())
//!     }
//!
//!     async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError> {
//!         self.pods.lock().get(key).cloned().ok_or(ProviderError::NotFound)
//!     }
//!
//!     async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
//!         Ok(self.pods.lock().values().cloned().collect())
//!     }
//! }
//!
//! impl PodNotifier for Shelf {
//!     fn notify_pods(&self) -> ChangeStream {
//!         let changes = self.changes.subscribe();
//!         futures::stream::unfold(changes, |mut changes| async move {
//!             match changes.recv().await {
//!                 Ok(change) => Some((change, changes)),
//!                 // We fell behind and lost some: say so, and everything is compared again.
//!                 Err(broadcast::error::RecvError::Lagged(_)) => Some((PodChange::Resync, changes)),
//!                 Err(broadcast::error::RecvError::Closed) => None,
//!             }
//!         })
//!         .boxed()
//!     }
//! }
//!
//! #[async_trait]
//! impl NodeProvider for Shelf {
//!     async fn ping(&self) -> Result<(), ProviderError> {
//!         Ok(())
//!     }
//!
//!     fn notify_node_status(&self) -> ReportStream {
//!         let report = NodeReport::default().with_capacity("pods", "110").with_capacity("cpu", "8");
//!         futures::stream::once(async { report }).chain(futures::stream::pending()).boxed()
//!     }
//! }
//!
//! // No logs, no exec: the defaults say so to whoever asks.
//! impl PodStreams for Shelf {}
//!
//! fn is_a_provider(_: impl Provider) {}
//! # let (changes, _) = broadcast::channel(8);
//! is_a_provider(Shelf { pods: Mutex::default(), changes });
//! ```

mod error;
mod lifecycle;
mod node;
mod pod;
mod relay;
mod streams;

pub use error::ProviderError;
pub use lifecycle::{ChangeStream, PodChange, PodLifecycleHandler, PodNotifier};
pub use node::{InvalidNodeName, NodeName, NodeProvider, NodeReport, ReportStream};
pub use pod::{Deletion, InvalidPod, Phase, Pod, PodId, PodKey};
pub(crate) use relay::QUERY;
pub use streams::{
    ByteStream, Duplex, LogOptions, LogSource, MetricsKind, PodStreams, UpgradeAnswer, UpgradeKind,
    UpgradeRequest,
};

/// All that a virtual node needs from its provider. Implemented for everything that implements the four parts.
pub trait Provider: PodLifecycleHandler + PodNotifier + NodeProvider + PodStreams {}

impl<P: PodLifecycleHandler + PodNotifier + NodeProvider + PodStreams> Provider for P {}
