//! Objects that are no workloads are copied to the members that their policy chooses.
//!
//! A job looks at one object of the host and decides where it is to be (`look`, with the pure parts in `wanted` and
//! `along`); another makes it so in one cluster (`send`, with `copy`); a third says what became of it (`report`). Whatever
//! changes hands in a job: an object of the host (`templates`), a copy in a member (`link`), a policy, a Cluster, a
//! binding, time. So the order of events never matters, and a restart is like any other look. Nothing is taken away
//! before the host's objects of its kind, and the member's copies, were listed to the end.

mod along;
mod copies;
mod copy;
mod job;
pub(crate) mod kinds;
mod link;
mod look;
mod members;
mod place;
mod readable;
mod record;
mod report;
mod rights;
mod send;
mod serving;
mod templates;
mod wanted;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use federlet_node::metrics::Metrics;
use federlet_provider::{names::HostId, settings::MemberSettings};
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    along::Along,
    job::{Job, Jobs},
    members::Members,
    send::Sent,
    templates::Templates,
    wanted::Wanted,
};
use crate::{
    api::Cluster,
    decide::Destination,
    inventory::Key,
    placer::Leading,
    store::{Bindings, Store, View},
    tainted::{Tainted, of_cluster},
    tell::Tell,
};

/// How often everything is looked at, whether or not anything changed.
const EVERY: Duration = Duration::from_secs(300);

/// Copies objects to members.
pub struct Propagator {
    /// For requests that are answered at once or not at all.
    pub client: Client,
    /// To watch with.
    pub watch: Client,
    /// Policies and clusters.
    pub store: Arc<Store>,
    /// What was decided before for objects in namespaces.
    pub bindings: Arc<Bindings>,
    /// And for those without one.
    pub cluster_bindings: Arc<Bindings>,
    /// Where people are told.
    pub tell: Tell,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Which host this is.
    pub host: HostId,
}

/// What every job needs.
struct Shared {
    client: Client,
    store: Arc<Store>,
    bindings: Arc<Bindings>,
    cluster_bindings: Arc<Bindings>,
    tell: Tell,
    leading: Leading,
    templates: Templates,
    members: Members,
    jobs: Jobs,
    stop: CancellationToken,
    along: Mutex<Along>,
    desk: Mutex<HashMap<Key, Entry>>,
    destinations: Mutex<Option<Landscape>>,
    /// Taints that end what is in a cluster.
    tainted: Mutex<Tainted>,
    /// Objects with a binding that were looked at: what they need is known.
    looked: Mutex<HashSet<Key>>,
    /// How often looking at an object failed in a row.
    failed: Mutex<HashMap<Key, u32>>,
    /// Policies that were written, and when: the watch may not have brought it yet.
    written: Mutex<HashMap<String, Instant>>,
}

/// Clusters that objects may go to, and the view that they were read from.
type Landscape = (Arc<View>, Arc<Vec<Destination>>);

/// What is known of an object that is to be somewhere, or is.
#[derive(Default)]
struct Entry {
    /// Where it is to be; nowhere if none.
    wanted: Option<Arc<Wanted>>,
    /// What came of it, by cluster.
    sent: BTreeMap<Arc<str>, Sent>,
}

impl Propagator {
    /// Copies objects while this process leads, until told to stop.
    pub(crate) async fn term(&self, leading: Leading, stop: &CancellationToken) {
        tokio::join!(self.store.complete(), self.bindings.complete(), self.cluster_bindings.complete());
        let (jobs, handed_in) = Jobs::new();
        let shared = Arc::new(Shared {
            client: self.client.clone(),
            store: self.store.clone(),
            bindings: self.bindings.clone(),
            cluster_bindings: self.cluster_bindings.clone(),
            tell: self.tell.clone(),
            leading,
            templates: Templates::new(self.client.clone(), self.watch.clone(), jobs.clone()),
            members: Members::new(self.host.clone(), self.metrics.clone(), jobs.clone(), stop.child_token()),
            jobs,
            stop: stop.clone(),
            along: Mutex::default(),
            desk: Mutex::default(),
            destinations: Mutex::default(),
            tainted: Mutex::default(),
            looked: Mutex::default(),
            failed: Mutex::default(),
            written: Mutex::default(),
        });
        tokio::join!(
            shared.members.run(self.watch.clone()),
            shared.hear(stop),
            job::work(handed_in, stop, |job| shared.clone().work(job)),
        );
    }
}

impl Shared {
    /// Hands in what changes of policies, clusters and bindings ask for.
    async fn hear(&self, stop: &CancellationToken) {
        self.members.complete().await;
        let (mut policies, mut bindings) = (self.store.changes(), self.bindings.changes());
        let mut cluster_bindings = self.cluster_bindings.changes();
        let mut timer = tokio::time::interval(EVERY);
        let mut before = self.store.view();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick() => self.jobs.soon(Job::Everything),
                _ = policies.changed() => {
                    let now = self.store.view();
                    if differs(&before, &now) {
                        self.jobs.soon(Job::Everything);
                    }
                    before = now;
                }
                _ = bindings.changed() => self.look_at_decided(),
                _ = cluster_bindings.changed() => self.look_at_decided(),
            }
        }
    }

    /// Bindings changed: what goes along with workloads follows them, and one that somebody deleted is written again.
    fn look_at_decided(&self) {
        let lost = {
            let desk = self.desk.lock();
            let lost = |wanted: &&Arc<Wanted>| self.binding(&wanted.seen).is_none();
            desk.values()
                .filter_map(|entry| entry.wanted.as_ref())
                .filter(lost)
                .map(|it| it.seen.key())
                .collect::<Vec<_>>()
        };
        let sources = self.along.lock().sources();
        lost.into_iter().chain(sources).for_each(|key| self.jobs.look(key));
    }

    async fn work(self: Arc<Self>, job: Job) {
        if !self.leading.holds() {
            return;
        }
        match job {
            Job::Everything => self.everything(),
            Job::Kind(kind) => {
                self.jobs.soon(Job::Policies);
                let mut keys = self.templates.keys(&kind);
                keys.extend(self.members.keys(&kind));
                let desk = self.desk.lock();
                let known = desk.keys().filter(|key| key.api_version == kind.0 && key.kind == kind.1);
                keys.extend(known.cloned());
                drop(desk);
                keys.sort();
                keys.dedup();
                keys.into_iter().for_each(|key| self.jobs.look(key));
            }
            Job::Look(key) => self.look(&key).await,
            Job::Send(key, cluster) => self.send(&key, &cluster).await,
            Job::Report(key) => self.report(&key).await,
            Job::Policies => self.say_on_policies().await,
        }
    }

    fn everything(&self) {
        let view = self.store.view();
        self.members.refresh(&view);
        self.tainted.lock().note(view.clusters.values().map(|cluster| of_cluster(cluster)), Timestamp::now());
        let (bindings, without) = (self.bindings.all(), self.cluster_bindings.all());
        let kinds = kinds::wanted(&view, bindings.iter().chain(&without).map(|binding| &**binding));
        self.templates.watch_only(&kinds, &self.stop);
        for kind in kinds {
            self.jobs.look_at_kind(kind);
        }
        self.jobs.soon(Job::Policies);
    }
}

/// The clusters that objects may go to.
fn destinations(view: &View) -> Vec<Destination> {
    let destination = |cluster: &Arc<Cluster>| {
        // One that cannot be read gets nothing, and says so itself.
        let settings = MemberSettings::try_from(&**cluster).ok()?;
        let stated_room = crate::estimate::stated(cluster).ok().flatten();
        Some(Destination { cluster: Cluster::clone(cluster), namespaces: settings.namespaces, stated_room })
    };
    view.clusters.values().filter_map(destination).collect()
}

/// Whether decisions about objects may come out differently. How full clusters are does not matter.
fn differs(before: &View, now: &View) -> bool {
    let same = |one: &Arc<Cluster>, two: &Arc<Cluster>| {
        let served = |cluster: &Cluster| cluster.status.as_ref().map(|status| status.api_enablements.clone());
        let (a, b) = (&one.metadata, &two.metadata);
        Arc::ptr_eq(one, two)
            || (one.spec == two.spec
                && (&a.labels, &a.annotations, &a.deletion_timestamp, &a.uid)
                    == (&b.labels, &b.annotations, &b.deletion_timestamp, &b.uid)
                && served(one) == served(two))
    };
    let policies = before.propagation.len() == now.propagation.len()
        && before.propagation.iter().zip(&now.propagation).all(|(one, two)| Arc::ptr_eq(one, two));
    let overrides = before.overrides.len() == now.overrides.len()
        && before.overrides.iter().zip(&now.overrides).all(|(one, two)| Arc::ptr_eq(one, two));
    let clusters = before.clusters.len() == now.clusters.len()
        && before.clusters.iter().all(|(name, one)| now.clusters.get(name).is_some_and(|two| same(one, two)));
    !(policies && overrides && clusters)
}

impl fmt::Debug for Propagator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Propagator").field("host", &self.host).finish_non_exhaustive()
    }
}
