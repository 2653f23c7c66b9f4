use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::Client;
use tokio::{sync::Semaphore, task::JoinSet, time::MissedTickBehavior};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use super::{
    events::Events,
    host::Host,
    notes::Notes,
    references::References,
    sync::{CALL_TIMEOUT, PodSync},
    view::NodePods,
};
use crate::{
    TRACE,
    contract::{NodeName, PodChange, Provider},
    decide::Backoff,
    metrics::Metrics,
    node::NodeFacts,
};

/// How a [`PodController`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// How many pods are worked on at the same time.
    pub workers: usize,
    /// How often everything is compared, whether or not anything was said to have changed.
    pub full_resync: Duration,
}

impl Default for PodSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The work is waiting for two API servers, so a core carries several workers.
        Self { workers: (cores * 8).clamp(8, 64), full_resync: Duration::from_secs(600) }
    }
}

/// How long writes that are under way may take after we were told to stop.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// Keeps a provider's pods as the host wants them, and the host informed about them.
pub struct PodController {
    settings: PodSettings,
    sync: Arc<PodSync>,
}

impl PodController {
    /// A controller for one node.
    ///
    /// While `facts` say that the node is not Ready, its pods are not either, and nothing else is said about them; while
    /// they say that its lease is not ours, nothing is done at all. Without `references` pods start whether or not the objects they name exist.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a different part of the world, named at the one call"
    )]
    pub fn new(
        node: NodeName,
        provider: Arc<dyn Provider>,
        client: Client,
        view: Arc<NodePods>,
        references: Option<Arc<References>>,
        facts: &NodeFacts,
        settings: PodSettings,
        metrics: Arc<Metrics>,
    ) -> Self {
        let events = Events::new(client.clone(), &node);
        let (host, notes) = (Host::new(client), Notes::default());
        let (healthy, fence) = (facts.healthy.subscribe(), facts.fence.clone());
        let sync = PodSync { node, provider, host, view, references, events, notes, healthy, fence, metrics };
        Self { settings, sync: Arc::new(sync) }
    }

    /// Works until told to stop, then finishes the writes that are under way. Pods stay as they are, and nothing is
    /// asked of the provider any more when this returns.
    ///
    /// It also ends when a part of it fails, which only a mistake in the program does: nothing works by halves.
    pub async fn run(self, stop: CancellationToken) {
        let Self { settings, sync } = self;
        tokio::select! {
            () = stop.cancelled() => return,
            () = sync.view.complete() => {}
        }
        let stop = stop.child_token();
        let resync = Arc::new(tokio::sync::Notify::new());
        resync.notify_one();
        let looks = Looks::default();
        let mut parts = JoinSet::new();
        parts.spawn(notice_changes(sync.clone(), resync.clone(), stop.clone()));
        parts.spawn(notice_health(sync.clone(), stop.clone()));
        parts.spawn(compare_everything(sync.clone(), resync, settings.full_resync, stop.clone()));
        parts.spawn(work(sync.clone(), settings.workers, looks.clone(), stop.clone()));
        tokio::select! {
            // Told to stop, the parts end too, and that is no failure.
            biased;
            () = stop.cancelled() => {}
            ended = parts.join_next() => {
                tracing::error!(node = %sync.node, ?ended, "a part of the pod controller failed");
                stop.cancel();
            }
        }
        sync.view.queue().close();
        looks.tasks.close();
        let last_writes = async {
            while parts.join_next().await.is_some() {}
            looks.tasks.wait().await;
        };
        if tokio::time::timeout(LAST_WRITES, last_writes).await.is_err() {
            tracing::warn!(node = %sync.node, "stopping though some pods are still being worked on");
            looks.given_up.cancel();
            parts.shutdown().await;
            looks.tasks.wait().await;
        }
    }
}

impl fmt::Debug for PodController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodController").field("node", &self.sync.node).finish_non_exhaustive()
    }
}

/// The pods that are being looked at.
#[derive(Clone, Default)]
struct Looks {
    tasks: TaskTracker,
    /// Cancelled when those that are under way are not waited for any longer.
    given_up: CancellationToken,
}

async fn work(sync: Arc<PodSync>, workers: usize, looks: Looks, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(workers.max(1)));
    // A provider that hangs holds all places, and must not hold up the end as well.
    while let Some(Ok(place)) = stop.run_until_cancelled(places.clone().acquire_owned()).await {
        let Some(taken) = sync.view.queue().take().await else {
            return;
        };
        let (sync, given_up) = (sync.clone(), looks.given_up.clone());
        looks.tasks.spawn(async move {
            // If this panics, the queue hears of it and the key is tried again.
            let span = tracing::info_span!(target: TRACE, "pod", node = %sync.node, pod = %taken.key());
            let look = sync.sync(taken.key(), taken.failures()).instrument(span);
            if let Some(outcome) = given_up.run_until_cancelled(look).await {
                taken.done(outcome);
            }
            drop(place);
        });
    }
}

/// Puts what the provider says changed into the queue.
async fn notice_changes(sync: Arc<PodSync>, resync: Arc<tokio::sync::Notify>, stop: CancellationToken) {
    let mut failures = 0;
    loop {
        let mut changes = sync.provider.notify_pods();
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.next() => change,
            };
            match change {
                Some(PodChange::Changed(key)) => sync.view.queue().add(&key),
                Some(PodChange::Resync) => resync.notify_one(),
                Some(PodChange::Reconsider) => {
                    sync.notes.reconsider();
                    // What was refused may be allowed now.
                    sync.view.queue().hurry();
                    resync.notify_one();
                }
                Some(PodChange::ReconsiderOne(key)) => {
                    sync.notes.reconsider_one(&key);
                    sync.view.queue().add(&key);
                }
                None => break,
            }
            failures = 0;
        }
        failures += 1;
        let pause = Backoff::spread(Backoff::default().pause(failures, None));
        tracing::warn!(node = %sync.node, "the provider stopped telling what changes, asking again in {pause:?}");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => resync.notify_one(),
        }
    }
}

/// When the node becomes Ready again, nobody waits for the end of a pause, and every status is compared. When it ceases
/// to be, its pods do as well.
async fn notice_health(sync: Arc<PodSync>, stop: CancellationToken) {
    let mut healthy = sync.healthy.clone();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = healthy.changed() => if changed.is_err() { return },
        }
        if *healthy.borrow_and_update() == Some(true) {
            sync.view.queue().hurry();
            sync.view.keys().iter().for_each(|key| sync.view.queue().add_gently(key));
        } else {
            sync.view.keys().iter().for_each(|key| sync.view.queue().add(key));
        }
    }
}

/// Looks at every pod of either side: at the start, from time to time, and when changes were lost.
async fn compare_everything(
    sync: Arc<PodSync>,
    asked: Arc<tokio::sync::Notify>,
    every: Duration,
    stop: CancellationToken,
) {
    let mut timer = tokio::time::interval(every.max(Duration::from_secs(1)));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer.tick().await;
    let mut failures = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = asked.notified() => {}
            _ = timer.tick() => sync.notes.reconsider(),
        }
        match tokio::time::timeout(CALL_TIMEOUT, sync.call("list", sync.provider.get_pods())).await {
            Ok(Ok(held)) => {
                failures = 0;
                let mut keys: HashSet<_> = held.iter().map(|pod| pod.key().clone()).collect();
                keys.extend(sync.view.keys());
                keys.iter().for_each(|key| sync.view.queue().add_unsaid(key));
            }
            // An incomplete list proves nothing about anybody.
            Ok(Err(error)) => {
                failures += 1;
                let pause = Backoff::spread(Backoff::default().pause(failures, None));
                match failures {
                    1 => {
                        tracing::warn!(node = %sync.node, %error, "cannot list the provider's pods, trying again");
                    }
                    _ => tracing::debug!(node = %sync.node, %error, "cannot list the provider's pods"),
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => asked.notify_one(),
                }
            }
            Err(_) => asked.notify_one(),
        }
    }
}
