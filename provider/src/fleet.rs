//! The node that stands for several clusters at once.
//!
//! A pod on it runs nowhere itself. It has a copy in each cluster that was chosen for it: a pod of the host that is
//! pinned to that cluster's node. `choice` says which clusters, `copy` what a copy is, `plan` what to do about them and
//! `status` what the pod says of itself, all without a client; `lifecycle` does it, `streams` and `usage` lead to copies.

mod again;
mod child;
mod choice;
mod copy;
mod held;
mod lifecycle;
mod lines;
mod mean;
mod plan;
mod status;
mod streams;
mod usage;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use federlet_node::{
    contract::{
        ChangeStream, NodeName, NodeProvider, NodeReport, PodChange, PodKey, PodNotifier, ProviderError,
        ReportStream,
    },
    pods::{Events, HostPods},
};
use futures::StreamExt;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{broadcast, watch as changes};
use tokio_util::sync::CancellationToken;

pub(crate) use self::copy::relabelled;
use self::{again::Again, child::Children, mean::Counters};
pub use self::{
    choice::{Choice, Chosen},
    status::copies_well,
};

/// So long an answer waits for the first list of copies.
const LISTING: std::time::Duration = std::time::Duration::from_secs(3);

/// The name of the node. No member can have it.
pub const FLEET: &str = "fleet";

/// The taint that keeps pods off the node which nobody sent there: it has room for all of them, and runs none.
pub const FLEET_TAINT: &str = "federlet.io/fleet";

/// Changes that the node may be behind before it is told to compare everything.
const BACKLOG: usize = 8192;

/// More of anything than all clusters together have.
const ENOUGH: [(&str, &str); 4] =
    [("cpu", "1000000"), ("memory", "1Pi"), ("ephemeral-storage", "1Pi"), ("pods", "1000000")];

/// The clients of the fleet's node.
#[derive(Clone)]
pub struct FleetClients {
    /// To write copies. It is not the node itself: a node may only touch pods that are bound to it.
    pub own: Client,
    /// To watch.
    pub watch: Client,
    /// For logs, exec and the like. It has no timeouts.
    pub streams: Client,
}

impl fmt::Debug for FleetClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetClients").finish_non_exhaustive()
    }
}

/// The provider of the fleet's node.
pub struct FleetProvider {
    node: NodeName,
    clients: FleetClients,
    pods: Arc<HostPods>,
    choice: Arc<dyn Choice>,
    children: RwLock<Children>,
    listed: changes::Sender<bool>,
    /// Pods of the node, by the UID of their workload.
    workloads: Mutex<HashMap<String, HashSet<PodKey>>>,
    /// By the UID of the pod, what went wrong with its copies.
    troubles: Mutex<HashMap<String, Borne>>,
    again: Again,
    changes: broadcast::Sender<PodChange>,
    counters: Mutex<Counters>,
    events: Events,
}

/// What went wrong, by cluster.
type Troubles = BTreeMap<String, ProviderError>;

/// What went wrong with some copies of a pod while others are there.
struct Borne {
    /// How often in a row.
    failures: u32,
    troubles: Troubles,
}

impl FleetProvider {
    /// It does nothing by itself until [`run`](Self::run).
    pub fn new(
        node: NodeName,
        clients: FleetClients,
        pods: Arc<HostPods>,
        choice: Arc<dyn Choice>,
        events: Events,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            clients,
            pods,
            choice,
            children: RwLock::default(),
            listed: changes::Sender::new(false),
            workloads: Mutex::default(),
            troubles: Mutex::default(),
            again: Again::default(),
            changes: broadcast::Sender::new(BACKLOG),
            counters: Mutex::default(),
            events,
        })
    }

    /// Its work in the background, until told to stop.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        // What was known before says nothing about what others did meanwhile.
        self.listed.send_replace(false);
        tokio::join!(self.follow_copies(&stop), self.follow_choice(&stop));
    }

    /// Says which pods something was decided for, and that all have to say something else when clusters come, go, or
    /// cannot be reached.
    async fn follow_choice(&self, stop: &CancellationToken) {
        let mut decisions = self.choice.decisions();
        let mut clusters = self.choice.clusters();
        let mut reach: BTreeMap<String, bool> = self.choice.reach();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                decided = decisions.recv() => match decided {
                    Ok(workload) => {
                        let pods = self.workloads.lock().get(&workload).cloned().unwrap_or_default();
                        pods.into_iter().for_each(|pod| self.tell(PodChange::ReconsiderOne(pod)));
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => self.tell(PodChange::Reconsider),
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                changed = clusters.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = self.choice.reach();
                    if std::mem::replace(&mut reach, now.clone()) != now {
                        self.tell(PodChange::Resync);
                    }
                }
            }
        }
    }

    fn tell(&self, change: PodChange) {
        // Nobody listens while the node is not served.
        let _ = self.changes.send(change);
    }

    fn report(resources: &BTreeSet<String>) -> NodeReport {
        let plain = ENOUGH
            .into_iter()
            .fold(NodeReport::default(), |report, (resource, amount)| report.with_capacity(resource, amount));
        let known = |resource: &&String| !ENOUGH.iter().any(|(name, _)| name == resource);
        resources.iter().filter(known).fold(plain, |report, resource| {
            let amount = if resource.starts_with("hugepages-") { "1Pi" } else { "1000000" };
            report.with_capacity(resource, amount)
        })
    }
}

impl PodNotifier for FleetProvider {
    fn notify_pods(&self) -> ChangeStream {
        futures::stream::unfold(self.changes.subscribe(), |mut changes| async move {
            match changes.recv().await {
                Ok(change) => Some((change, changes)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((PodChange::Reconsider, changes)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}

#[async_trait]
impl NodeProvider for FleetProvider {
    async fn ping(&self) -> Result<(), ProviderError> {
        // The first list takes a moment. Who is asked before that would be told to come back much later.
        let mut listed = self.listed.subscribe();
        let _ = tokio::time::timeout(LISTING, listed.wait_for(|listed| *listed)).await;
        self.must_know_copies()
    }

    fn notify_node_status(&self) -> ReportStream {
        let (choice, mut clusters) = (self.choice.clone(), self.choice.clusters());
        clusters.mark_changed();
        let said: Option<BTreeSet<String>> = None;
        futures::stream::unfold((choice, clusters, said), |(choice, mut clusters, said)| async move {
            loop {
                clusters.changed().await.ok()?;
                let resources = choice.resources();
                if said.as_ref() != Some(&resources) {
                    return Some((Self::report(&resources), (choice, clusters, Some(resources))));
                }
            }
        })
        .boxed()
    }
}

impl fmt::Debug for FleetProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetProvider").field("node", &self.node).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_enough_of_whatever_any_cluster_has() {
        let resources = ["cpu", "nvidia.com/gpu", "hugepages-2Mi"].map(str::to_owned).into();
        let report = FleetProvider::report(&resources);
        let amounts = report.status.allocatable.unwrap();
        let amount = |name: &str| amounts.get(name).map(|quantity| quantity.0.as_str());
        assert_eq!(amount("cpu"), Some("1000000"));
        assert_eq!(amount("nvidia.com/gpu"), Some("1000000"));
        assert_eq!(amount("hugepages-2Mi"), Some("1Pi"));
    }
}
