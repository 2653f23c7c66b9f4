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

use super::{fence::Fence, settings::NodeFacts};
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
    leaving: watch::Receiver<bool>,
    holding: watch::Sender<Holding>,
    fence: Fence,
    renewed: Option<Instant>,
    /// As we wrote it last. While nobody else writes it, it need not be read.
    written: Option<Lease>,
    rival: Option<(Option<MicroTime>, Instant)>,
}

impl NodeLease {
    /// A lease for `node`, held as `identity`. It goes with the Node object of which the facts know the UID, and their
    /// fence is closed until the lease is ours.
    pub fn new(client: Client, node: NodeName, identity: String, facts: &NodeFacts) -> Self {
        facts.fence.close();
        Self {
            api: Api::namespaced(client, NAMESPACE),
            node,
            identity,
            owner: facts.uid.subscribe(),
            leaving: facts.leaving.subscribe(),
            holding: watch::Sender::new(Holding::Unknown),
            fence: facts.fence.clone(),
            renewed: None,
            written: None,
            rival: None,
        }
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
        if let Some(lease) = self.written.take() {
            match self.renew(lease).await {
                // Somebody wrote or removed it meanwhile.
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
                renewed => return renewed,
            }
        }
        let sent = Instant::now();
        let Some(lease) = self.api.get_opt(self.node.as_str()).await? else {
            // One for a Node that was removed on purpose would belong to nobody and stay for ever.
            if !*self.leaving.borrow() {
                self.written = Some(self.api.create(&PostParams::default(), &self.fresh()).await?);
            }
            return Ok(self.held(sent));
        };
        if self.belongs_to_another(&lease) {
            self.fence.close();
            return Ok(Holding::Others);
        }
        self.renew(lease).await
    }

    /// The version that was seen goes with it: of two processes that take a free lease, one is refused.
    async fn renew(&mut self, mut lease: Lease) -> Result<Holding, kube::Error> {
        let sent = Instant::now();
        lease.spec = Some(self.spec());
        if let Some(owner) = self.owner() {
            lease.metadata.owner_references = Some(vec![owner]);
        }
        self.written = Some(self.api.replace(self.node.as_str(), &PostParams::default(), &lease).await?);
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
        let Some(mut lease) = self.api.get_opt(self.node.as_str()).await? else { return Ok(()) };
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

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use http::StatusCode;
    use serde_json::json;

    use super::*;
    use crate::fake_api::{failure, fake_api};

    #[tokio::test]
    async fn a_node_that_leaves_for_good_leaves_no_lease() {
        let (client, asked) = fake_api(|request| match request {
            post if post.starts_with("POST") => (StatusCode::CREATED, json!({"metadata": {"name": "n"}})),
            _ => failure(StatusCode::NOT_FOUND),
        });
        let verbs = || asked.take().iter().map(|asked| asked[..4].to_owned()).collect::<Vec<_>>();
        let facts = NodeFacts::default();
        let mut lease = NodeLease::new(client, NodeName::new("n").unwrap(), "me".into(), &facts);
        assert_eq!(lease.beat().await.unwrap(), Holding::Ours);
        assert_eq!(verbs(), ["GET ", "POST"], "a new node needs one");
        facts.leaving.send_replace(true);
        // Its pods still have to be ended, by us.
        assert_eq!(lease.beat().await.unwrap(), Holding::Ours);
        assert!(facts.fence.holds());
        lease.release().await.unwrap();
        assert_eq!(verbs(), ["PUT ", "GET ", "GET "]);
    }

    #[tokio::test]
    async fn a_lease_that_nobody_else_writes_is_not_read_again() {
        let conflict = Arc::new(AtomicBool::new(false));
        let (once, held) = (conflict.clone(), json!({"metadata": {"name": "n", "resourceVersion": "7"}}));
        let (client, asked) = fake_api(move |request| match request {
            put if put.starts_with("PUT") && once.swap(false, Ordering::Relaxed) => {
                failure(StatusCode::CONFLICT)
            }
            _ => (StatusCode::OK, held.clone()),
        });
        let verbs = || asked.take().iter().map(|asked| asked[..3].to_owned()).collect::<Vec<_>>();
        let facts = NodeFacts::default();
        let mut lease = NodeLease::new(client, NodeName::new("n").unwrap(), "me".into(), &facts);
        for (disturbed, expected) in [
            (false, &["GET", "PUT"][..]),
            (false, &["PUT"]),
            (true, &["PUT", "GET", "PUT"]),
            (false, &["PUT"]),
        ] {
            conflict.store(disturbed, Ordering::Relaxed);
            assert_eq!(lease.beat().await.unwrap(), Holding::Ours);
            assert_eq!(verbs(), expected);
        }
    }
}
