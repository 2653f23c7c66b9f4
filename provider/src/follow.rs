//! What goes along with pods: the ConfigMaps, Secrets, tokens and claims that they refer to, the Services that select
//! them, and the Events about them on their way back.
//!
//! Only what a pod on this node refers to is ever read, and each object by its name, as the Node authorizer allows it to
//! a kubelet. The ledger knows which pods need what, and decides when to look at what again; a few
//! workers look, one at a time at each place of the member. Everything ends up there: a pod that asks, a change on the
//! host, a change in the member, a token that grows old, an error to be tried again.

pub mod claims;
mod collect;
mod desk;
mod events;
mod hear;
mod host_objects;
mod inventory;
mod lanes;
mod ledger;
mod member;
mod object_watch;
mod place;
mod services;
mod shelf;
mod sources;
mod tokens;
mod work;

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use federlet_node::contract::{Pod, PodId, ProviderError};
use futures::{FutureExt, future::join_all};
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    desk::Desk,
    inventory::Inventory,
    ledger::{Finished, Job, State},
    member::Member,
    place::{Need, Origin, Place, Resource, TokenOrigin},
    sources::Sources,
};
pub use self::{host_objects::HostObjects, lanes::Lanes};
use crate::{references::references, site::Site, target::Target, watch::MemberWatch};

/// The resources whose copies are kept an eye on.
const RESOURCES: [Resource; 4] = [Resource::ConfigMap, Resource::Secret, Resource::Claim, Resource::Service];

/// How many places are looked at at the same time.
const WORKERS: usize = 16;

/// How long looking at a place may take.
const JOB: Duration = Duration::from_secs(30);

/// How long a pod waits here. Less than the virtual kubelet waits for its provider, so that it hears why.
const PATIENCE: Duration = Duration::from_secs(45);

/// How many pods are told about the same trouble.
const TOLD: usize = 5;

/// How what goes along with pods is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FollowSettings {
    /// How long a copy stays after the last pod that needed it: a Deployment that recreates its pods needs it again.
    pub linger: Duration,
    /// How often to look for what nobody needs.
    pub sweep: Duration,
    /// The share of a token's life after which it is replaced.
    pub token_life_used: f64,
    /// No token is replaced more often than this.
    pub token_pause: Duration,
}

impl Default for FollowSettings {
    fn default() -> Self {
        Self {
            linger: Duration::from_secs(10),
            sweep: Duration::from_secs(60),
            token_life_used: 0.8,
            token_pause: Duration::from_secs(30),
        }
    }
}

/// All that goes along with the pods of one virtual node.
pub struct Follow {
    site: Arc<Site>,
    settings: FollowSettings,
    desk: Arc<Desk>,
    sources: Sources,
    inventory: Arc<Inventory>,
    member: Member,
    recorder: Recorder,
    /// Some volume on the host is over.
    reclaim: Notify,
    /// Whether the member's claims were compared with the host's since these were listed.
    claims_compared: AtomicBool,
    /// The member's pods, once somebody said where they are watched.
    watch: OnceLock<Arc<MemberWatch>>,
}

impl Follow {
    /// For the pods of this node.
    pub fn new(site: Arc<Site>) -> Arc<Self> {
        Self::with(site, FollowSettings::default())
    }

    /// The same, kept in another way.
    pub fn with(site: Arc<Site>, settings: FollowSettings) -> Arc<Self> {
        let desk = Arc::new(Desk::new(settings.linger));
        let sources = Sources::new(site.host.client.clone(), site.host.lanes.clone(), desk.clone());
        let inventory = Arc::new(Inventory::new(desk.clone()));
        let member = Member::new(site.member.pods.clone());
        let reporter = Reporter { controller: "federlet".into(), instance: Some(site.host.node.to_string()) };
        let recorder = Recorder::new(site.host.client.clone(), reporter);
        let (reclaim, claims_compared) = (Notify::new(), AtomicBool::new(false));
        let watch = OnceLock::new();
        Arc::new(Self {
            site,
            settings,
            desk,
            sources,
            inventory,
            member,
            recorder,
            reclaim,
            claims_compared,
            watch,
        })
    }

    /// Says where the member's pods are watched. From then on nothing is written to a cluster that is not the member,
    /// Events about its pods are told on the host's, and pods that ended are noticed even if nobody says so.
    pub fn recognise_by(&self, watch: Arc<MemberWatch>) {
        let _ = self.watch.set(watch);
    }

    /// Refuses to go on while another cluster may be answering at the member's address.
    async fn recognise(&self) -> Result<(), ProviderError> {
        match self.watch.get() {
            Some(watch) => watch.must_be_the_member().await,
            None => Ok(()),
        }
    }

    /// Brings along all that the pod refers to: when this returns, it is in the member and up to date.
    ///
    /// To be called before the pod is created and whenever it is updated. If nothing changed, it asks nobody. It needs
    /// [`run`](Self::run) to be running.
    pub async fn bring(&self, pod: &Pod) -> Result<(), ProviderError> {
        let needs = self.needs(pod, &self.site.target())?;
        let started = pod.was_started();
        let waits = self.desk.change(|ledger, now| ledger.want(pod.id(), &needs, started, now))?;
        if !waits.is_empty() && tokio::time::timeout(PATIENCE, join_all(waits)).await.is_err() {
            return Err(ProviderError::unavailable("bringing along what the pod refers to takes too long"));
        }
        self.desk.ledger().verdict(pod.id(), &needs)
    }

    /// The pod is gone from the member, or has finished for good: what only it needed goes away.
    pub fn release(&self, pod: &PodId) {
        self.desk.change(|ledger, now| ledger.release(pod, now));
    }

    /// Follows changes, refreshes tokens and collects what nobody needs, until told to stop. Copies stay as they are.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        for resource in RESOURCES {
            tasks.spawn(self.inventory.clone().run(self.site.clone(), resource, stop.clone()));
        }
        tasks.spawn(self.clone().collect(stop.clone()));
        tasks.spawn(self.clone().hear_host(stop.clone()));
        tasks.spawn(self.clone().relay_events(stop.clone()));
        tasks.spawn(self.clone().reclaim_volumes(stop.clone()));
        let workers = Arc::new(Semaphore::new(WORKERS));
        while let Ok(worker) = workers.clone().acquire_owned().await {
            let job = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                job = self.desk.take() => job,
            };
            let this = self.clone();
            tasks.spawn(async move {
                // Neither a hang nor a panic may leave the place in somebody's hands for ever.
                let look = AssertUnwindSafe(Box::pin(this.work(&job))).catch_unwind();
                let finished = match tokio::time::timeout(JOB, look).await {
                    Ok(Ok(finished)) => finished,
                    Ok(Err(_)) => {
                        State::Failed(ProviderError::unavailable(format!("{} panicked", job.place))).into()
                    }
                    Err(_) => {
                        State::Failed(ProviderError::unavailable(format!("{} takes too long", job.place)))
                            .into()
                    }
                };
                this.finish(&job, finished);
                drop(worker);
            });
        }
        self.desk.ledger().close();
        tasks.close();
        let _ = tokio::time::timeout(JOB, tasks.wait()).await;
    }

    fn finish(&self, job: &Job, finished: Finished) {
        let trouble = match &finished.state {
            State::Failed(error) => Some(error.clone()),
            _ => None,
        };
        self.desk.change(|ledger, now| ledger.done(&job.place, finished, now));
        if let Some(error) = trouble {
            tracing::debug!(place = %job.place, %error, "a copy in the member is not as it should be, will try again");
            self.tell(job, &error);
        }
    }

    /// Pods that run hear what is wrong with what they use; those that wait for it hear it anyway. Nobody waits for a
    /// Service.
    fn tell(&self, job: &Job, error: &ProviderError) {
        let taken = matches!(error, ProviderError::AlreadyExists { .. });
        // One glitch is no news, and what lasts is told once.
        let when = if job.place.resource == Resource::Service && taken { 1 } else { 3 };
        if self.desk.ledger().failures(&job.place) == when {
            self.tell_users(job, error.reason(), error);
        }
    }

    fn tell_users(&self, job: &Job, reason: &str, error: &ProviderError) {
        let users: Vec<PodId> = self.desk.ledger().users(&job.place).take(TOLD).cloned().collect();
        let all = job.place.resource == Resource::Service;
        for id in users {
            let pod = self.site.host_pod(id.key()).filter(|pod| pod.uid() == id.uid());
            if let Some(pod) = pod.filter(|pod| all || pod.was_started()) {
                self.site.host.events.warn(&pod, "Following", reason, &error.to_string());
            }
        }
    }

    /// What a pod needs, and where in the member it belongs.
    fn needs(&self, pod: &Pod, target: &Target) -> Result<Vec<Need>, ProviderError> {
        let invalid = |error: &dyn fmt::Display| ProviderError::invalid(error.to_string());
        let host_namespace: Arc<str> = pod.key().namespace().into();
        let namespace = target
            .namespaces
            .map(&host_namespace)
            .map_err(|error| ProviderError::rejected("NamespaceNotAllowed", error.to_string()))?;
        let found = references(pod.json(), target).map_err(|error| invalid(&error))?;
        let mut needs = vec![];
        for reference in &found.objects {
            needs.push(Need {
                place: Place::new(reference.kind.into(), &namespace, &reference.member),
                origin: Origin::Object {
                    kind: reference.kind,
                    namespace: host_namespace.clone(),
                    name: reference.host.as_str().into(),
                },
                optional: reference.optional,
            });
        }
        for token in &found.tokens {
            let origin = TokenOrigin {
                pod: pod.id().clone(),
                account: found.service_account.clone(),
                audience: token.audience.clone(),
                expiration: token.expiration,
            };
            needs.push(Need {
                place: Place::new(Resource::Secret, &namespace, &token.secret),
                origin: Origin::Token(Arc::new(origin)),
                optional: false,
            });
        }
        needs.extend(self.services(pod, &namespace));
        Ok(needs)
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("site", &self.site).finish_non_exhaustive()
    }
}
