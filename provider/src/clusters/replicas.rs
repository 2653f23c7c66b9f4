//! Processes that share the nodes of a host.
//!
//! Each replica keeps a Lease by which the others know of it. Who serves which member is then a matter of arithmetic,
//! the same in each: rendezvous hashing, so that a replica that comes or goes moves only its own share. Whether two
//! replicas agree does not matter for safety. The Lease of the node itself decides who may act for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use sha2::{Digest, Sha256};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use super::plan::served_by;
use crate::{api::Cluster, errors::brief, join::SYSTEM_NAMESPACE, names::shortened};

/// How often a replica says that it is there, and for how long that is believed.
const RENEW_EVERY: Duration = Duration::from_secs(5);
const LASTS: Duration = Duration::from_secs(15);
/// After so long the Lease of a replica that is gone is removed.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The Leases of replicas have this label.
const REPLICA_LABEL: &str = "federlet.io/component";

/// What it says: those that serve one Cluster of their own are no replicas of those that serve all others.
fn component(only: Option<&str>) -> String {
    only.map_or_else(|| "serve".to_owned(), |cluster| format!("serve-{cluster}"))
}

/// The replicas that are there, as each sees it.
pub type Live = BTreeSet<String>;

/// Which of the replicas serves a member. None if there are none.
pub(super) fn owner<'a>(live: &'a Live, member: &str) -> Option<&'a str> {
    let weight = |replica: &str| {
        let mut hash = Sha256::new();
        for part in [replica, member] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize()
    };
    live.iter().max_by_key(|replica| weight(replica)).map(String::as_str)
}

/// This replica among the others.
pub struct Replicas {
    api: Api<Lease>,
    watch: Api<Lease>,
    identity: String,
    component: String,
    pod: Option<OwnerReference>,
    live: watch::Sender<Live>,
    seen: BTreeMap<String, Seen>,
}

/// What was last heard of a replica. Its clock need not agree with ours: what counts is when we saw it change.
struct Seen {
    name: String,
    renewed: Option<MicroTime>,
    at: Instant,
    lasts: Duration,
}

impl Replicas {
    /// A replica of this name, of those that serve all Clusters or `only` this one. `heartbeat` is impatient, `client`
    /// is not.
    pub fn new(heartbeat: Client, client: Client, identity: String, only: Option<&str>) -> Self {
        let component = component(only);
        let api = Api::namespaced(heartbeat, SYSTEM_NAMESPACE);
        let watch = Api::namespaced(client, SYSTEM_NAMESPACE);
        Self {
            api,
            watch,
            identity,
            component,
            pod: None,
            live: watch::Sender::default(),
            seen: BTreeMap::new(),
        }
    }

    /// The Lease goes with this pod, also where nobody is left who may delete it.
    #[must_use]
    pub fn owned_by(mut self, pod: Option<OwnerReference>) -> Self {
        self.pod = pod;
        self
    }

    /// The replicas that are there, as they come and go. Empty until all are known, and while the host cannot be heard.
    pub fn live(&self) -> watch::Receiver<Live> {
        self.live.subscribe()
    }

    /// Says that we are there until told to stop, then that we are not, so that the others need not wait.
    pub async fn run(mut self, stop: CancellationToken) {
        let only_ours = format!("{REPLICA_LABEL}={}", self.component);
        let config = watcher::Config::default().labels(&only_ours).timeout(45);
        let mut events = watcher(self.watch.clone(), config).default_backoff().boxed();
        let mut timer = tokio::time::interval(RENEW_EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut listed, mut relisted) = (false, BTreeSet::new());
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = timer.tick() => if let Err(error) = self.renew().await {
                    tracing::warn!(error = brief(&error), "cannot renew the lease of this replica");
                },
                event = events.next() => match event {
                    Some(Ok(watcher::Event::Init)) => relisted.clear(),
                    Some(Ok(watcher::Event::InitApply(lease))) => {
                        relisted.insert(holder(&lease));
                        self.see(&lease);
                    }
                    Some(Ok(watcher::Event::InitDone)) => {
                        listed = true;
                        self.seen.retain(|replica, _| relisted.contains(replica));
                    }
                    Some(Ok(watcher::Event::Apply(lease))) => self.see(&lease),
                    Some(Ok(watcher::Event::Delete(lease))) => drop(self.seen.remove(&holder(&lease))),
                    Some(Err(error)) => tracing::debug!(%error, "watching replicas failed, trying again"),
                    None => break,
                },
            }
            if listed {
                self.judge().await;
            }
        }
        self.leave().await;
    }

    fn see(&mut self, lease: &Lease) {
        let spec = lease.spec.clone().unwrap_or_default();
        let (replica, name) = (holder(lease), lease.name_any());
        let known = self.seen.get(&replica).filter(|seen| seen.renewed == spec.renew_time);
        let at = known.map_or_else(Instant::now, |seen| seen.at);
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts = lasts.map_or(LASTS, Duration::from_secs);
        self.seen.insert(replica, Seen { name, renewed: spec.renew_time, at, lasts });
    }

    /// Says who is there, and forgets those who have not been for long.
    async fn judge(&mut self) {
        let there = |seen: &Seen| seen.at.elapsed() <= seen.lasts;
        let mut live: Live =
            self.seen.iter().filter(|(_, seen)| there(seen)).map(|(replica, _)| replica.clone()).collect();
        // That we are here we know ourselves; whether the others know it, the lease says.
        live.insert(self.identity.clone());
        self.live.send_if_modified(|before| {
            let changed = *before != live;
            if changed {
                tracing::info!(replicas = ?live, "replicas that serve");
            }
            *before = live;
            changed
        });
        let old = self.seen.values().find(|seen| seen.at.elapsed() > FORGOTTEN).map(|seen| seen.name.clone());
        if let Some(name) = old {
            self.seen.retain(|_, seen| seen.name != name);
            let _ = self.api.delete(&name, &DeleteParams::default()).await;
        }
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let name = lease_name(&self.identity);
        let spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        });
        let labels = Some([(REPLICA_LABEL.to_owned(), self.component.clone())].into());
        let owner_references = self.pod.clone().map(|pod| vec![pod]);
        match self.api.get_opt(&name).await? {
            Some(mut lease) => {
                lease.spec = spec;
                lease.metadata.labels = labels;
                lease.metadata.owner_references = owner_references;
                self.api.replace(&name, &PostParams::default(), &lease).await?;
            }
            None => {
                let metadata =
                    ObjectMeta { name: Some(name), labels, owner_references, ..ObjectMeta::default() };
                self.api.create(&PostParams::default(), &Lease { metadata, spec }).await?;
            }
        }
        Ok(())
    }

    async fn leave(&self) {
        if let Err(error) = self.api.delete(&lease_name(&self.identity), &DeleteParams::default()).await {
            tracing::warn!(
                error = brief(&error),
                "cannot remove the lease of this replica; others notice later"
            );
        }
    }
}

/// Whether any replica serves this Cluster, as far as their Leases say, by this machine's clock.
pub async fn any_live(client: &Client, cluster: &Cluster) -> Result<bool, kube::Error> {
    Ok(!live_of(client, served_by(cluster)).await?.is_empty())
}

/// The replicas that serve all members but those with processes of their own, likewise.
pub async fn live_replicas(client: &Client) -> Result<Vec<String>, kube::Error> {
    live_of(client, None).await
}

async fn live_of(client: &Client, only: Option<&str>) -> Result<Vec<String>, kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let component = component(only);
    let only_ours = kube::api::ListParams::default().labels(&format!("{REPLICA_LABEL}={component}"));
    let found = leases.list(&only_ours).await?;
    let now = Timestamp::now();
    // Clocks differ. A replica that was there a minute ago most likely is.
    let recent = |time: &MicroTime| now.duration_since(time.0).as_secs() < 60;
    let is_live =
        |lease: &&Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).is_some_and(recent);
    Ok(found.items.iter().filter(is_live).map(holder).collect())
}

fn holder(lease: &Lease) -> String {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_else(|| lease.name_any())
}

/// An identity may be anything that people call their machines.
fn lease_name(identity: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let plain: String = identity.chars().map(plain).collect();
    let name = plain.trim_matches('-');
    let is_same = name == identity && !name.is_empty();
    let unique = if is_same { name.to_owned() } else { format!("{name}-{:x}", digest(identity)) };
    shortened(&format!("serve-{unique}"), 200)
}

fn digest(text: &str) -> u32 {
    let hash = Sha256::digest(text);
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicas").field("identity", &self.identity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(names: &[&str]) -> Live {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn members_are_spread_and_only_those_of_a_replica_that_left_move() {
        let members: Vec<String> = (0..300).map(|n| format!("member{n}")).collect();
        let three = live(&["a", "b", "c"]);
        let two = live(&["a", "c"]);
        let mut shares = BTreeMap::new();
        for member in &members {
            let before = owner(&three, member).unwrap();
            *shares.entry(before).or_insert(0) += 1;
            if before != "b" {
                assert_eq!(owner(&two, member), Some(before), "{member} must not move");
            }
        }
        assert!(shares.values().all(|share| (60..140).contains(share)), "{shares:?}");
        assert_eq!(owner(&Live::new(), "m"), None);
    }

    #[test]
    fn every_identity_is_the_name_of_a_lease_and_no_two_are_the_same() {
        let names: BTreeSet<String> =
            ["a", "A", "a.b", "a-b", "a_b", "-", "", "ä", &"x".repeat(300)].map(lease_name).into();
        assert_eq!(names.len(), 9);
        assert!(names.iter().all(|name| name.len() <= 200 && !name.ends_with('-') && !name.contains(".")));
    }
}
