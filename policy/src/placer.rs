//! Pods that wait at the gate are told their cluster, and pods that are in the wrong one are moved.
//!
//! What to do is decided for all pods of a workload at once (`plan`, `assign`, `sequence`), from what a watch says and
//! what was just written. One process does it at a time (`lead`); a restart begins with a full list. So a division is
//! exact whoever makes it, and whenever.

mod assign;
mod cover;
mod evict;
mod late;
mod lead;
mod pass;
mod plan;
mod pods;
mod record;
mod seen;
mod sequence;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use federlet_node::contract::NodeName;
use kube::Client;
use tokio::{
    sync::{broadcast, mpsc},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::evict::{Evicted, Evictions};
pub use self::lead::Lead;
pub(crate) use self::lead::Leading;
use self::{pods::Marked, seen::Group};
use crate::{
    owners::Owners,
    propagate::Propagator,
    store::{Bindings, Store},
    tell::Tell,
};

/// Changes that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(30);
/// Workloads that are looked at at the same time.
const AT_ONCE: usize = 16;
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
    tell: Tell,
    pods: Marked,
    leading: Leading,
    evictions: Evictions,
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
            tell: self.tell.clone(),
            pods: Marked::new(told),
            leading: leading.clone(),
            evictions: Evictions::default(),
            fleet_node: self.fleet_node.clone(),
        });
        let cover =
            cover::Cover::new(&self.client, &self.watch, &self.store, &self.bindings, self.own_namespace);
        tokio::join!(
            shared.pods.run(self.watch.clone(), stop.clone()),
            cover.run(stop.clone()),
            late::run(&shared, &self.watch, self.own_namespace, stop),
            work(&shared, &mut changed, stop),
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
    let mut due: HashMap<Group, Instant> = HashMap::new();
    let mut busy: HashSet<Group> = HashSet::new();
    let mut passes: JoinSet<(Group, Option<Duration>)> = JoinSet::new();
    let mut policies = shared.store.changes();
    let mut owners = shared.owners.changes();
    let mut timer = tokio::time::interval(EVERY);
    loop {
        let next = due.iter().filter(|(group, _)| !busy.contains(*group)).map(|(_, at)| *at).min();
        let wait = next.filter(|_| busy.len() < AT_ONCE);
        let soon = Instant::now() + TOGETHER;
        tokio::select! {
            () = stop.cancelled() => break,
            Some(group) = changed.recv() => sooner(&mut due, group, soon),
            changed = policies.changed() => if changed.is_ok() {
                shared.pods.groups().into_iter().for_each(|group| sooner(&mut due, group, soon));
            },
            meta = owners.recv() => match meta {
                Ok(meta) => {
                    let group = Group { namespace: meta.identity.namespace.clone(), uid: meta.uid.clone() };
                    if shared.pods.has(&group) {
                        sooner(&mut due, group, soon);
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    shared.pods.groups().into_iter().for_each(|group| sooner(&mut due, group, soon));
                }
                Err(broadcast::error::RecvError::Closed) => break,
            },
            _ = timer.tick() => {
                shared.pods.groups().into_iter().for_each(|group| sooner(&mut due, group, soon));
            }
            Some(done) = passes.join_next(), if !passes.is_empty() => {
                // A pass that panicked is looked at again with everything else.
                let Ok((group, again)) = done else { continue };
                busy.remove(&group);
                if let Some(again) = again {
                    sooner(&mut due, group, Instant::now() + again);
                }
            }
            () = async { tokio::time::sleep_until(wait.unwrap_or_else(Instant::now)).await }, if wait.is_some() => {
                let now = Instant::now();
                let ready: Vec<Group> = due
                    .iter()
                    .filter(|(group, at)| **at <= now && !busy.contains(*group))
                    .map(|(group, _)| group.clone())
                    .take(AT_ONCE - busy.len())
                    .collect();
                for group in ready {
                    due.remove(&group);
                    busy.insert(group.clone());
                    let shared = shared.clone();
                    passes.spawn(async move {
                        let again = shared.pass(&group).await;
                        (group, again)
                    });
                }
            }
        }
    }
    passes.shutdown().await;
}

fn sooner(due: &mut HashMap<Group, Instant>, group: Group, at: Instant) {
    let there = due.entry(group).or_insert(at);
    *there = (*there).min(at);
}

impl fmt::Debug for Placer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placer").finish_non_exhaustive()
    }
}
