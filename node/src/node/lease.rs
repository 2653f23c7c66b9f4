use std::{fmt, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use super::fence::Fence;
use crate::contract::NodeName;

/// How often a lease is renewed, and how long it lasts: as the kubelet's.
const RENEW_EVERY: Duration = Duration::from_secs(10);
const LASTS: Duration = Duration::from_secs(40);

const NAMESPACE: &str = "kube-node-lease";

/// Whether this process may act for the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Nobody knows yet.
    Unknown,
    /// The lease is ours.
    Ours,
    /// Another process renews it.
    Others,
}

/// The heartbeat of a node.
///
/// It is also the fence between two processes that serve the same node: the lease names its holder, and whoever is
/// not the holder waits until the lease is released, or has not been renewed for as long as it lasts. That time is
/// measured here, so that clocks need not agree.
pub struct NodeLease {
    api: Api<Lease>,
    node: NodeName,
    identity: String,
    owner: watch::Receiver<Option<String>>,
    holding: watch::Sender<Holding>,
    fence: Fence,
    renewed: Option<Instant>,
    rival: Option<(Option<MicroTime>, Instant)>,
}

impl NodeLease {
    /// A lease for `node`, held as `identity`. `owner` is the UID of the Node object, with which the lease goes;
    /// `fence` is closed until the lease is ours.
    pub fn new(
        client: Client,
        node: NodeName,
        identity: String,
        owner: watch::Receiver<Option<String>>,
        fence: Fence,
    ) -> Self {
        fence.close();
        let api = Api::namespaced(client, NAMESPACE);
        let holding = watch::Sender::new(Holding::Unknown);
        Self { api, node, identity, owner, holding, fence, renewed: None, rival: None }
    }

    /// Whether the lease is ours, as it changes.
    pub fn holding(&self) -> watch::Receiver<Holding> {
        self.holding.subscribe()
    }

    /// Renews until told to stop, then releases, so that a successor need not wait.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut timer = tokio::time::interval(RENEW_EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = timer.tick() => {}
                // A Node that was deleted took its lease along; the new one needs a new lease at once.
                Ok(()) = self.owner.changed() => {}
            }
            match self.beat().await {
                Ok(holding) => self.say(holding),
                Err(error) => {
                    tracing::warn!(node = %self.node, %error, "cannot renew the node's lease");
                    // Without an answer the lease is ours as long as it lasts and not a moment longer.
                    if self.renewed.is_some_and(|at| at.elapsed() > LASTS) {
                        self.say(Holding::Unknown);
                    }
                    timer.reset_after(Duration::from_secs(2));
                }
            }
        }
        if *self.holding.borrow() == Holding::Ours
            && let Err(error) = self.release().await
        {
            tracing::warn!(node = %self.node, %error, "could not release the node's lease");
        }
    }

    fn say(&self, holding: Holding) {
        let changed = self.holding.send_if_modified(|before| std::mem::replace(before, holding) != holding);
        if changed && holding == Holding::Others {
            tracing::warn!(node = %self.node, "another process serves this node; waiting until it stops");
        }
    }

    async fn beat(&mut self) -> Result<Holding, kube::Error> {
        let sent = Instant::now();
        let Some(mut lease) = self.api.get_opt(self.node.as_str()).await? else {
            self.api.create(&PostParams::default(), &self.fresh()).await?;
            return Ok(self.held(sent));
        };
        if self.belongs_to_another(&lease) {
            self.fence.close();
            return Ok(Holding::Others);
        }
        lease.spec = Some(self.spec());
        if let Some(owner) = self.owner() {
            lease.metadata.owner_references = Some(vec![owner]);
        }
        // The version that was read goes with it: of two processes that take a free lease, one is refused.
        self.api.replace(self.node.as_str(), &PostParams::default(), &lease).await?;
        Ok(self.held(sent))
    }

    fn held(&mut self, sent: Instant) -> Holding {
        self.renewed = Some(sent);
        self.fence.renewed(sent, LASTS);
        self.rival = None;
        Holding::Ours
    }

    /// Whether somebody else holds it and has been seen to renew it within its time.
    fn belongs_to_another(&mut self, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        let Some(holder) = spec.holder_identity.filter(|holder| *holder != self.identity) else {
            return false;
        };
        // A kubelet's lease names the node itself. Whatever wrote it, it is not one of us.
        if holder == self.node.as_str() {
            return false;
        }
        let lasts = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map_or(LASTS, Duration::from_secs);
        match &self.rival {
            Some((renewed, seen)) if *renewed == spec.renew_time => seen.elapsed() <= lasts,
            _ => {
                self.rival = Some((spec.renew_time, Instant::now()));
                true
            }
        }
    }

    async fn release(&self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(self.node.as_str()).await?;
        if let Some(spec) = lease.spec.as_mut().filter(|s| s.holder_identity.as_ref() == Some(&self.identity))
        {
            spec.holder_identity = None;
            self.api.replace(self.node.as_str(), &PostParams::default(), &lease).await?;
        }
        Ok(())
    }

    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }
    }

    fn fresh(&self) -> Lease {
        let metadata = ObjectMeta {
            name: Some(self.node.to_string()),
            owner_references: self.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        Lease { metadata, spec: Some(self.spec()) }
    }

    fn owner(&self) -> Option<OwnerReference> {
        let uid = self.owner.borrow().clone()?;
        let (api_version, kind) = ("v1".into(), "Node".into());
        Some(OwnerReference {
            api_version,
            kind,
            name: self.node.to_string(),
            uid,
            ..OwnerReference::default()
        })
    }
}

impl fmt::Debug for NodeLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeLease")
            .field("node", &self.node)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
