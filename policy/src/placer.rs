//! Pods that wait at the gate are told their cluster, and pods that are in the wrong one are moved.
//!
//! What to do is decided for all pods of a workload at once (`plan`, `assign`, `sequence`), from what a watch says and
//! what was just written. One process does it at a time (`lead`); a restart begins with a full list. So a division is
//! exact whoever makes it, and whenever.

mod assign;
mod claims;
mod clusters;
mod cover;
mod depart;
mod evict;
mod failover;
mod health;
mod late;
mod lead;
mod nodes;
mod notes;
mod ordinals;
mod overriding;
mod pass;
mod passes;
mod patch;
mod plan;
mod pods;
mod record;
mod scalers;
mod seen;
mod sequence;
mod turns;

use std::{fmt, sync::Arc, time::Duration};

use federlet_node::contract::NodeName;
use kube::Client;
use tokio::{
    sync::{broadcast, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use self::lead::Lead;
pub(crate) use self::lead::Leading;
pub(crate) use self::{
    clusters::seen as as_seen,
    evict::{Evicted, Evictions},
};
use self::{
    health::Illness, nodes::Nodes, passes::Passes, pods::Marked, scalers::Scalers, seen::Group, turns::Turns,
};
use crate::{
    owners::Owners,
    propagate::Propagator,
    rewrite::workloads::Workloads,
    store::{Bindings, Store},
    tell::Tell,
};

/// Changes that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(30);
/// How often every workload is looked at, whether or not anything changed.
const EVERY: Duration = Duration::from_secs(300);

/// Places pods.
pub struct Placer {
    /// For requests that are answered at once or not at all.
    pub client: Client,
    /// To watch with.
    pub watch: Client,
    /// Policies and clusters.
    pub store: Arc<Store>,
    /// What was decided before.
    pub bindings: Arc<Bindings>,
    /// Where pods come from.
    pub owners: Arc<Owners>,
    /// Where people are told.
    pub tell: Tell,
    /// Our own namespace.
    pub own_namespace: &'static str,
    /// The node that stands for several clusters at once, if there is one.
    pub fleet_node: Option<NodeName>,
    /// What copies the objects that are no workloads; it leads with the placer.
    pub propagator: Propagator,
}

/// What a pass over one workload needs.
struct Shared {
    client: Client,
    store: Arc<Store>,
    bindings: Arc<Bindings>,
    owners: Arc<Owners>,
    /// Workloads in full, where their metadata are not enough.
    workloads: Workloads,
    tell: Tell,
    pods: Marked,
    leading: Leading,
    evictions: Evictions,
    illness: Illness,
    turns: Turns,
    scalers: Scalers,
    nodes: Nodes,
    fleet_node: Option<NodeName>,
}

impl Placer {
    /// Places pods while this process leads, until told to stop.
    pub async fn run(self, lead: Lead, stop: CancellationToken) {
        let leading = lead.leading();
        tokio::join!(lead.run(stop.clone()), async {
            while leading.until(true, &stop).await {
                let term = stop.child_token();
                tracing::info!("this replica places pods");
                tokio::select! {
                    () = self.term(leading.clone(), &term) => {}
                    _ = leading.until(false, &stop) => tracing::warn!("another replica places pods"),
                }
                term.cancel();
            }
        });
    }

    async fn term(&self, leading: Leading, stop: &CancellationToken) {
        self.store.complete().await;
        self.bindings.complete().await;
        let (told, mut changed) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            client: self.client.clone(),
            store: self.store.clone(),
            bindings: self.bindings.clone(),
            owners: self.owners.clone(),
            workloads: Workloads::new(self.client.clone(), self.owners.clone()),
            tell: self.tell.clone(),
            pods: Marked::new(told),
            leading: leading.clone(),
            evictions: Evictions::default(),
            illness: Illness::new(Instant::now()),
            turns: Turns::default(),
            scalers: Scalers::new(),
            nodes: Nodes::new(),
            fleet_node: self.fleet_node.clone(),
        });
        let cover =
            cover::Cover::new(&self.client, &self.watch, &self.store, &self.bindings, self.own_namespace);
        tokio::join!(
            shared.pods.run(self.watch.clone(), stop.clone()),
            shared.scalers.run(self.watch.clone(), stop.clone()),
            shared.nodes.run(self.watch.clone(), stop.clone()),
            cover.run(stop.clone()),
            late::run(&shared, &cover, &self.watch, stop),
            work(&shared, &mut changed, stop),
            notes::run(&shared, stop),
            Box::pin(overriding::run(&shared, stop)),
            Box::pin(self.propagator.term(leading, stop)),
        );
    }
}

/// Looks at each workload when something about it changed, never twice at once.
async fn work(shared: &Arc<Shared>, changed: &mut mpsc::UnboundedReceiver<Group>, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        // A division over half a list would be a wrong one.
        () = shared.pods.complete() => {}
    }
    let mut passes = Passes::default();
    let mut policies = shared.store.changes();
    let mut scalers = shared.scalers.changes();
    let mut nodes = shared.nodes.changes();
    let mut owners = shared.owners.changes();
    let mut wishes = shared.bindings.wishes();
    let mut timer = tokio::time::interval(EVERY);
    loop {
        let next = passes.next();
        let news = tokio::select! {
            () = stop.cancelled() => break,
            Some(group) = changed.recv() => News::Of(group),
            Ok(()) = policies.changed() => News::OfAll,
            Ok(()) = scalers.changed() => News::OfAll,
            Ok(()) = nodes.changed() => News::OfAll,
            meta = owners.recv() => match meta {
                Ok(meta) => News::Maybe(Group {
                    namespace: meta.identity.namespace.clone(),
                    uid: meta.uid.clone(),
                }),
                Err(broadcast::error::RecvError::Lagged(_)) => News::OfAll,
                Err(broadcast::error::RecvError::Closed) => break,
            },
            wish = wishes.recv() => match wish {
                Ok((namespace, uid)) => News::Maybe(Group { namespace, uid }),
                Err(broadcast::error::RecvError::Lagged(_)) => News::OfAll,
                Err(broadcast::error::RecvError::Closed) => break,
            },
            _ = timer.tick() => News::OfAll,
            () = passes.ended() => News::None,
            () = async { tokio::time::sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {
                passes.begin(Instant::now(), |group| {
                    let shared = shared.clone();
                    async move { shared.pass(&group).await }
                });
                News::None
            }
        };
        let concerned = match news {
            News::Of(group) => vec![group],
            News::Maybe(group) => Some(group).filter(|group| shared.pods.has(group)).into_iter().collect(),
            News::OfAll => shared.pods.groups(),
            News::None => vec![],
        };
        let soon = Instant::now() + TOGETHER;
        concerned.into_iter().for_each(|group| passes.push(group, soon));
    }
    passes.stop().await;
}

/// Whom something that happened concerns.
enum News {
    None,
    Of(Group),
    /// A workload, if it has pods that we know.
    Maybe(Group),
    OfAll,
}

impl fmt::Debug for Placer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placer").finish_non_exhaustive()
    }
}
