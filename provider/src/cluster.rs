//! A member cluster, or a region of one, behind the contracts of the virtual kubelet.
//!
//! `lifecycle` sends pods there, `mirror` shows on the host how they are, `streams` passes bytes to and fro, `room` tells
//! how much fits, `reach` whether the member can be reached. What to do is decided elsewhere in this crate, by functions
//! without a client; here it is done.

mod lifecycle;
mod mirror;
mod namespaces;
pub(crate) mod phantom;
mod reach;
mod room;
mod strays;
mod streams;
mod unlisted;
mod usage;
mod writes;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use federlet_node::contract::{
    ChangeStream, NodeProvider, NodeReport, PodChange, PodId, PodKey, PodNotifier, ProviderError,
    ReportStream,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::NodeCondition;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use self::streams::log_of;
pub use self::{
    reach::Reach,
    room::{MemberReport, Summary},
};
use crate::{
    follow::Follow,
    settings::Offline,
    site::Site,
    usage::Counters,
    watch::{Change, MemberWatch, OurPod},
};

/// How long the member may take to say that it is well. Less than the virtual kubelet waits for us, or we would never
/// hear that nobody answered.
const PING: Duration = Duration::from_secs(4);

/// The condition of a node that says whether its member can be reached.
const REACHABLE: &str = "MemberReachable";

/// One virtual node's provider.
pub struct ClusterProvider {
    site: Arc<Site>,
    watch: Arc<MemberWatch>,
    follow: Arc<Follow>,
    reach: Mutex<reach::Watcher>,
    report: watch::Sender<Option<NodeReport>>,
    member: watch::Sender<MemberReport>,
    /// Everything on the host may have to say something else now, or to be something else in the member.
    resync: broadcast::Sender<PodChange>,
    /// Settings changed: look at the room again.
    reconsider: Notify,
    /// What machines have used, as far as they were heard.
    counters: Mutex<Counters>,
}

impl ClusterProvider {
    /// A provider for one virtual node. It does nothing by itself until [`run`](Self::run).
    pub fn new(site: Arc<Site>, watch: Arc<MemberWatch>) -> Arc<Self> {
        let follow = Follow::new(site.clone());
        follow.recognise_by(watch.clone());
        Arc::new(Self {
            site,
            watch,
            follow,
            reach: Mutex::default(),
            report: watch::Sender::new(None),
            member: watch::Sender::new(MemberReport::default()),
            resync: broadcast::Sender::new(4),
            reconsider: Notify::new(),
            counters: Mutex::default(),
        })
    }

    /// Its work in the background, until told to stop.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::join!(
            self.clone().follow_room(stop.clone()),
            self.follow.clone().run(stop.clone()),
            self.follow_namespaces(stop.clone()),
            self.evict_strays(stop.clone()),
            self.release_ended(stop)
        );
    }

    /// What only a pod that is gone needed, goes too. What is missed here is found when all is compared.
    async fn release_ended(&self, stop: CancellationToken) {
        let mut changes = self.watch.changes();
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.recv() => change,
            };
            match change {
                // One that merely is not in a list may be newer than the list.
                Ok(Change::Gone(pod)) if self.watch.is_definite(pod.host_uid()) => {
                    if let Some(key) = own_key(&self.site, &pod) {
                        self.follow.release(&PodId::new(key, pod.host_uid()));
                    }
                }
                Err(broadcast::error::RecvError::Closed) => return,
                _ => {}
            }
        }
    }

    /// How the member is, for its Cluster object.
    pub fn report(&self) -> watch::Receiver<MemberReport> {
        self.member.subscribe()
    }

    /// Somebody changed the settings of the site.
    pub fn settings_changed(&self) {
        self.reconsider.notify_one();
        let _ = self.resync.send(PodChange::Reconsider);
    }

    /// The member was there before this process was: one that keeps its pods while it cannot be reached does so from the
    /// beginning.
    pub fn answered_before(&self) {
        self.reach.lock().answered_before();
    }

    /// The site it serves.
    pub fn site(&self) -> &Arc<Site> {
        &self.site
    }
}

impl PodNotifier for ClusterProvider {
    fn notify_pods(&self) -> ChangeStream {
        let site = self.site.clone();
        let rewritten = self.site.host.rewrite.as_ref().map(|rewrite| rewrite.changes());
        let heard = (self.watch.changes(), self.resync.subscribe(), rewritten);
        futures::stream::unfold(heard, move |(mut changes, mut resync, mut rewritten)| {
            let site = site.clone();
            async move {
                loop {
                    let change = tokio::select! {
                        change = changes.recv() => change,
                        change = resync.recv() => {
                            let change = change.unwrap_or(PodChange::Reconsider);
                            return Some((change, (changes, resync, rewritten)));
                        }
                        () = next(&mut rewritten) => {
                            return Some((PodChange::Reconsider, (changes, resync, rewritten)));
                        }
                    };
                    let change = match change {
                        Ok(Change::Pod(pod) | Change::Gone(pod)) => match own_key(&site, &pod) {
                            Some(key) => PodChange::Changed(key),
                            None => continue,
                        },
                        Ok(Change::Listed) | Err(broadcast::error::RecvError::Lagged(_)) => PodChange::Resync,
                        Err(broadcast::error::RecvError::Closed) => return None,
                    };
                    return Some((change, (changes, resync, rewritten)));
                }
            }
        })
        .boxed()
    }
}

/// Waits for the next change, for ever if there is none to come.
async fn next(changes: &mut Option<watch::Receiver<u64>>) {
    if let Some(receiver) = changes
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The host's name for a pod, if it came through this node.
fn own_key(site: &Site, pod: &OurPod) -> Option<PodKey> {
    (pod.node() == site.settings().name.as_str()).then(|| mirror::key_of(site, pod))?
}

#[async_trait]
impl NodeProvider for ClusterProvider {
    async fn ping(&self) -> Result<(), ProviderError> {
        let asked = tokio::time::timeout(PING, self.watch.verify()).await;
        let late = |_| Err(ProviderError::unavailable(format!("the member did not answer within {PING:?}")));
        let answer = asked.unwrap_or_else(late);
        let keep = self.site.settings().offline == Offline::Keep;
        let (changed, ever) = {
            let mut reach = self.reach.lock();
            (reach.hear(&answer), reach.ever())
        };
        if changed {
            self.reconsider.notify_one();
            let _ = self.resync.send(PodChange::Resync);
        }
        // A region that was there once stays Ready: its pods run, whether or not anybody hears of them.
        if keep && ever {
            return Ok(());
        }
        // One that answers can be reached, whether or not there is a machine for pods.
        answer.and_then(|()| self.has_machines())
    }

    fn recall(&self, conditions: &[NodeCondition]) {
        if let Some(said) = conditions.iter().find(|said| said.type_ == REACHABLE) {
            self.reach.lock().recall(said);
            self.reconsider.notify_one();
        }
    }

    fn notify_node_status(&self) -> ReportStream {
        let mut reports = self.report.subscribe();
        reports.mark_changed();
        futures::stream::unfold(reports, |mut reports| async move {
            loop {
                reports.changed().await.ok()?;
                let report = reports.borrow_and_update().clone();
                if let Some(report) = report {
                    return Some((report, reports));
                }
            }
        })
        .boxed()
    }
}

impl fmt::Debug for ClusterProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterProvider").field("site", &self.site).finish_non_exhaustive()
    }
}
