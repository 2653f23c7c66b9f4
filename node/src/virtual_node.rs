use std::{fmt, sync::Arc, time::Duration};

use kube::Client;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{
    contract::Provider,
    metrics::Metrics,
    node::{Holding, NodeController, NodeFacts, NodeLease, NodeSettings, NodeTemplate},
    pods::{HostPods, PodController, PodSettings, References},
};

/// How soon a node that failed by a mistake in the program begins anew.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);

/// How a [`VirtualNode`] works.
#[derive(Clone, Debug)]
pub struct VirtualNodeSettings {
    /// The node itself.
    pub node: NodeSettings,
    /// Its pods.
    pub pods: PodSettings,
    /// As whom the node's lease is held; none to keep no lease. Two processes with the same identity are taken for
    /// one that was restarted.
    pub identity: Option<String>,
}

/// One virtual node: its provider, and the controllers that stand between it and the host.
pub struct VirtualNode {
    /// What the node is like.
    pub template: NodeTemplate,
    /// Who runs its pods.
    pub provider: Arc<dyn Provider>,
    /// For pod work.
    pub client: Client,
    /// For the lease and the node's status: a client of its own that retries nothing.
    pub heartbeat_client: Client,
    /// Where heartbeats run: best a thread of their own, so that a burst of pods never delays them.
    pub heartbeat: Handle,
    /// The host's pods.
    pub host_pods: Arc<HostPods>,
    /// The objects that pods name; none to start pods without looking for them.
    pub references: Option<Arc<References>>,
    /// What the node is doing, for whoever wants to know.
    pub facts: NodeFacts,
    /// How it works.
    pub settings: VirtualNodeSettings,
    /// What it counts.
    pub metrics: Arc<Metrics>,
}

impl VirtualNode {
    /// Serves the node until told to stop. The Node object and its pods stay.
    pub async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.run_with_lease(&stop).await;
            // A process that goes on with half a node looks well and is not.
            if !stop.is_cancelled() {
                tracing::error!(node = %self.template.name, "a part of the node failed: beginning anew");
                stop.run_until_cancelled(tokio::time::sleep(BEGIN_AGAIN)).await;
            }
        }
        self.metrics.forget(&self.template.name);
    }

    async fn run_with_lease(&self, stop: &CancellationToken) {
        let Some(identity) = self.settings.identity.clone() else {
            return self.serve(stop).await;
        };
        let (client, name) = (self.heartbeat_client.clone(), self.template.name.clone());
        let lease = NodeLease::new(client, name, identity, &self.facts);
        let mut holding = lease.holding();
        // The lease outlives the controllers: it is released when their last write is done.
        let release = CancellationToken::new();
        let lease = self.heartbeat.spawn(lease.run(release.clone()));
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => break,
                held = holding.wait_for(|holding| *holding == Holding::Ours) => if held.is_err() { break },
            }
            let term = stop.child_token();
            let serving = self.serve(&term);
            let lost = async {
                // If the lease's task is gone, nobody renews it.
                let _ = holding.wait_for(|holding| *holding != Holding::Ours).await;
                tracing::warn!(node = %self.template.name, "the node's lease is not ours any more: stopping");
                term.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = serving => {}
                () = lost => {}
            }
            // Neither told to stop nor replaced by another process: something in it failed.
            if !term.is_cancelled() {
                break;
            }
        }
        release.cancel();
        let _ = lease.await;
    }

    /// Ends when told to, or when a part of it fails.
    async fn serve(&self, stop: &CancellationToken) {
        let stop = stop.child_token();
        let Self { template, provider, facts, settings, metrics, .. } = self;
        let node = NodeController::new(
            self.heartbeat_client.clone(),
            self.client.clone(),
            template.clone(),
            provider.clone(),
            settings.node,
            metrics.clone(),
            facts.clone(),
        );
        let node = self.heartbeat.spawn(node.run(stop.clone()));
        let pods = PodController::new(
            template.name.clone(),
            provider.clone(),
            self.client.clone(),
            self.host_pods.join(&template.name),
            self.references.clone(),
            facts,
            settings.pods,
            metrics.clone(),
        );
        let node = async {
            if let Err(error) = node.await {
                tracing::error!(node = %template.name, %error, "the node controller failed");
            }
            stop.cancel();
        };
        let pods = async {
            pods.run(stop.clone()).await;
            stop.cancel();
        };
        tokio::join!(node, pods);
        self.host_pods.leave(&template.name);
    }
}

impl fmt::Debug for VirtualNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualNode").field("template", &self.template).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
