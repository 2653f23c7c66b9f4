//! One watch of a member's pods and nodes, for all virtual nodes that are behind the same connection.
//!
//! Everything that is known of a member's objects comes from here. Pods of this host are kept as far as a decision
//! about them needs; of all others only what they hold on their machine.

mod follow;
mod loads;
mod pod;
mod table;
mod wire;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use federlet_node::{contract::ProviderError, decide::Backoff};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::table::{Nodes, Pods};
pub use self::{
    pod::{OurPod, Slot},
    table::Departure,
};
use crate::{
    capacity::{MemberNode, PodLoad},
    errors::from_member,
    names::{HostId, MemberName},
    site::Clients,
    target::Offers,
};

/// Changes that a virtual node may be behind before it is told to compare everything.
const BACKLOG: usize = 8192;

/// What a virtual node hears of its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This pod of ours changed or appeared.
    Pod(OurPod),
    /// This pod of ours is gone; this is the last that was seen of it.
    Gone(OurPod),
    /// Everything was listed again: compare all.
    Listed,
}

/// What a member has, kept current.
pub struct MemberWatch {
    clients: Clients,
    host: HostId,
    identity: String,
    pods: RwLock<Pods>,
    nodes: RwLock<Nodes>,
    offers: RwLock<Offers>,
    changes: broadcast::Sender<Change>,
    /// Counts up whenever the room in the member may have changed.
    room: watch::Sender<u64>,
    pods_listed: watch::Sender<bool>,
    nodes_listed: watch::Sender<bool>,
    /// Whether the last answer came from the cluster that joined, and not from another one at its address.
    verified: AtomicBool,
}

impl MemberWatch {
    /// Begins to watch. `identity` is the UID of the member's `kube-system` namespace as it was when the member joined:
    /// what another cluster at the same address says is not believed.
    pub fn start(
        clients: Clients,
        host: HostId,
        identity: String,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let this = Arc::new(Self {
            clients,
            host,
            identity,
            pods: RwLock::default(),
            nodes: RwLock::default(),
            offers: RwLock::default(),
            changes: broadcast::Sender::new(BACKLOG),
            room: watch::Sender::new(0),
            pods_listed: watch::Sender::new(false),
            nodes_listed: watch::Sender::new(false),
            verified: AtomicBool::new(false),
        });
        tasks.spawn(this.clone().follow_pods(stop.clone()));
        tasks.spawn(this.clone().follow_nodes(stop.clone()));
        tasks.spawn(this.clone().follow_offers(stop.clone()));
        this
    }

    /// Whether the member answers, and is the cluster that joined.
    ///
    /// One request says both, so asking whether a member is well also notices that it was replaced.
    pub async fn verify(&self) -> Result<(), ProviderError> {
        let answer = Api::<Namespace>::all(self.clients.pods.clone()).get_metadata("kube-system").await;
        let namespace = answer.map_err(|error| from_member(&error))?;
        let found = namespace.metadata.uid.unwrap_or_default();
        let same = found == self.identity;
        if self.verified.swap(same, Ordering::Relaxed) != same {
            tracing::info!(identity = self.identity, same, "the member's identity was checked");
        }
        if same {
            return Ok(());
        }
        Err(ProviderError::rejected(
            "IdentityMismatch",
            format!(
                "another cluster answers at this address: its id is {found}, the member's is {}",
                self.identity
            ),
        ))
    }

    /// Refuses to go on while we do not know that the member is the one that joined.
    pub async fn must_be_the_member(&self) -> Result<(), ProviderError> {
        if self.verified.load(Ordering::Relaxed) { Ok(()) } else { self.verify().await }
    }

    /// Waits until the member is the one that joined.
    async fn until_verified(&self, stop: &CancellationToken) {
        let mut failures = 0;
        while let Err(error) = self.verify().await {
            failures += 1;
            let pause = Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(10) };
            let pause = Backoff::spread(pause.pause(failures, None));
            tracing::debug!(identity = self.identity, %error, "the member is not watched, trying again in {pause:?}");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Whether all pods of the member have been seen once.
    pub fn has_pods(&self) -> bool {
        *self.pods_listed.borrow()
    }

    /// Whether all nodes of the member have been seen once.
    pub fn has_nodes(&self) -> bool {
        *self.nodes_listed.borrow()
    }

    /// Waits until all pods and nodes have been seen once.
    pub async fn complete(&self) {
        for listed in [&self.pods_listed, &self.nodes_listed] {
            // The sender lives in self, so waiting cannot fail.
            let _ = listed.subscribe().wait_for(|listed| *listed).await;
        }
    }

    /// Changes of our pods, from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Counts up whenever the room in the member may have changed.
    pub fn room(&self) -> watch::Receiver<u64> {
        self.room.subscribe()
    }

    /// The pod of ours in this place.
    pub fn pod(&self, slot: &Slot) -> Option<OurPod> {
        self.pods.read().get(slot)
    }

    /// The pod of ours that has this name on the host and another one in the member, by the member's namespace.
    pub fn renamed(&self, on_host: &Slot) -> Option<OurPod> {
        self.pods.read().renamed(on_host)
    }

    /// Every pod that this host sent through this virtual node.
    pub fn pods_of(&self, node: &MemberName) -> Vec<OurPod> {
        self.pods.read().of(node)
    }

    /// How a pod of ours that is gone ended, by the UID it has on the host.
    pub fn departed(&self, host_uid: &str) -> Option<Departure> {
        self.pods.read().departed(host_uid)
    }

    /// Whether the member itself said that the pod of this UID of the host is gone.
    pub fn is_definite(&self, host_uid: &str) -> bool {
        self.departed(host_uid).is_some_and(|departure| departure.said)
    }

    /// A pod of this UID is not in this place any more: the member said so when asked for exactly that pod. The event
    /// that tells the same may come later, or not at all.
    pub fn is_gone(&self, slot: &Slot, uid: &str) {
        let gone = self.pods.write().is_gone(slot, uid);
        if let Some(gone) = gone {
            self.room_changed();
            self.tell(Change::Gone(gone));
        }
    }

    /// The answer to a write of ours, which is as good as an event and comes earlier.
    pub fn note(&self, pod: &serde_json::Value) {
        if let Some(pod) = OurPod::read(pod, &self.host) {
            self.pods.write().apply_answer(pod);
            self.room_changed();
        }
    }

    /// What pods hold on each machine of the member, added up: those of one virtual node, and all others.
    pub fn loads(&self, node: &MemberName) -> Vec<PodLoad> {
        self.pods.read().loads(node)
    }

    /// The machines.
    pub fn nodes(&self) -> Vec<MemberNode> {
        self.nodes.read().all()
    }

    /// What the member offers by name.
    pub fn offers(&self) -> Offers {
        self.offers.read().clone()
    }

    fn room_changed(&self) {
        self.room.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn tell(&self, change: Change) {
        // Nobody listens while no node is served.
        let _ = self.changes.send(change);
    }

    fn set_offers(&self, of: fn(&mut Offers) -> &mut Option<BTreeSet<String>>, names: BTreeSet<String>) {
        *of(&mut self.offers.write()) = Some(names);
        self.room_changed();
    }
}

impl fmt::Debug for MemberWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberWatch").field("identity", &self.identity).finish_non_exhaustive()
    }
}
