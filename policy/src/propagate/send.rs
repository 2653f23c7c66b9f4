//! Makes one object so in one cluster: see what is there, decide, write.

use std::{sync::Arc, time::Duration};

use federlet_provider::{copied::CopiedKind, errors::brief, marks, target::Target, translate::not_allowed};
use kube::core::ApiResource;
use serde_json::Value;

use super::{
    Shared,
    copies::{There, is_namespace},
    copy::{self, Marking, Ours, Plan},
    job::{Job, backoff},
    kinds::run_by_member,
    link::Link,
    look::DEFINITION,
    place::Place,
    rights,
    serving::Served,
    templates::kind,
    wanted::Wanted,
};
use crate::{inventory::Key, render::render, survey::chain};

/// How long one cluster may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon it is looked whether a member's copies are known.
const UNKNOWN: Duration = Duration::from_secs(2);
/// How long reports wait for each other.
const REPORT: Duration = Duration::from_millis(300);

/// What came of sending an object to a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sent {
    /// Whether the member has it as it should be.
    pub(super) applied: bool,
    /// Why not, in one word and in plain words.
    pub(super) trouble: Option<Failure>,
    /// A digest of what was there after it was sent.
    settled: Option<u64>,
    failures: u32,
}

/// Why something did not work in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What was done.
enum Done {
    /// The copy is as it should be; a digest of what is there, if we know.
    Applied(Option<u64>),
    /// Nothing is sent for now.
    Held,
    /// There is nothing of ours.
    Absent,
    /// What is there is not known yet.
    Unknown,
}

impl Shared {
    pub(super) async fn send(&self, key: &Arc<Key>, cluster: &Arc<str>) {
        let wanted = {
            let desk = self.desk.lock();
            match desk.get(&**key) {
                Some(entry) => entry.wanted.clone(),
                // A copy of something that was not looked at yet.
                None => return self.jobs.soon(Job::Look(key.clone())),
            }
        };
        let settled = self.desk.lock().get(&**key).and_then(|entry| entry.sent.get(cluster)?.settled);
        let work = tokio::time::timeout(PATIENCE, self.make_so(key, cluster, wanted.as_deref(), settled));
        let outcome =
            work.await.unwrap_or_else(|_| Err(Failure::new("Unreachable", "the member takes too long")));
        let mut desk = self.desk.lock();
        let Some(entry) = desk.get_mut(&**key) else { return };
        let here = entry.wanted.as_ref().is_some_and(|wanted| wanted.clusters.contains_key(&**cluster));
        let mut again = None;
        match outcome {
            Ok(Done::Applied(settled)) => {
                let sent = Sent { applied: true, settled, ..Sent::default() };
                entry.sent.insert(cluster.clone(), sent);
            }
            Ok(Done::Held) => {
                let held = Failure::new("Held", "the policy suspends dispatching to this cluster");
                let before = entry.sent.entry(cluster.clone()).or_default();
                (before.trouble, before.failures) = (Some(held), 0);
            }
            Ok(Done::Absent) => drop(entry.sent.remove(cluster)),
            Ok(Done::Unknown) => again = Some(UNKNOWN),
            Err(failure) => {
                let sent = entry.sent.entry(cluster.clone()).or_default();
                if here || sent.failures == 0 {
                    tracing::debug!(object = %key, cluster = &**cluster, reason = failure.reason, failure.message, "a copy is not as it should be, trying again");
                }
                sent.failures += 1;
                sent.applied = false;
                sent.trouble = Some(failure);
                again = Some(backoff(sent.failures));
            }
        }
        if entry.wanted.is_none() && entry.sent.is_empty() {
            desk.remove(&**key);
        }
        drop(desk);
        if let Some(again) = again {
            self.jobs.after(Job::Send(key.clone(), cluster.clone()), again);
        }
        self.jobs.after(Job::Report(key.clone()), REPORT);
    }

    async fn make_so(
        &self,
        key: &Key,
        cluster: &Arc<str>,
        wanted: Option<&Wanted>,
        settled: Option<u64>,
    ) -> Result<Done, Failure> {
        let here = wanted.is_some_and(|wanted| wanted.clusters.contains_key(&**cluster));
        let link = match self.members.get(cluster) {
            Ok(link) => link,
            Err(why) if here => return Err(Failure::new("Unreachable", why)),
            // A cluster that left took its copies along, or had them taken away.
            Err(_) => return Ok(Done::Absent),
        };
        let resource = self.resource(key, &link);
        let Some(resource) = resource else { return Ok(Done::Unknown) };
        let copies = link.copies(&resource);
        let target = link.target.load_full();
        let there = match copies.find(key, &target) {
            There::Known(there) => there,
            There::Unknown => return Ok(Done::Unknown),
            There::Trouble(trouble) if trouble.code == Some(404) => {
                if !here {
                    return Ok(Done::Absent);
                }
                let message = format!(
                    "the member does not serve {} of {}: its definition must go there, too",
                    key.kind, key.api_version
                );
                return Err(Failure::new("NotServed", message));
            }
            There::Trouble(trouble) if trouble.code == Some(403) => {
                return Err(Failure::new("MissingRight", rights::in_member(&resource, &trouble.message)));
            }
            There::Trouble(trouble) => return Err(Failure::new("Unreachable", trouble.message)),
        };
        let place = Place { link: &link, copies: &copies, resource: &resource, target: &target };
        match wanted.filter(|_| here) {
            Some(wanted) if wanted.is_held_back(cluster) => Ok(Done::Held),
            Some(wanted) => self.bring(key, wanted, &place, there, settled).await,
            None => self.take_back(key, wanted, &place, there).await,
        }
    }

    /// How a kind is served: as on the host, or as it was when copies of it were made.
    fn resource(&self, key: &Key, link: &Link) -> Option<ApiResource> {
        if let Some(Served { resource, .. }) = self.templates.served(&kind(key)) {
            return Some(resource);
        }
        let view = self.store.view();
        let (api_version, name) = kind(key);
        let copied = CopiedKind::all(view.clusters.get(&*link.name)?);
        let found = copied.iter().find(|copied| copied.api_version == api_version && copied.kind == name);
        found.map(CopiedKind::resource)
    }

    async fn bring(
        &self,
        key: &Key,
        wanted: &Wanted,
        place: &Place<'_>,
        there: Option<Arc<Value>>,
        settled: Option<u64>,
    ) -> Result<Done, Failure> {
        let Place { link, target, .. } = *place;
        let view = self.store.view();
        let Some(cluster) = view.clusters.get(&*link.name) else { return Ok(Done::Absent) };
        let part = wanted.clusters.get(&*link.name).copied().unwrap_or_default();
        let overrides = view.overrides.iter().map(|one| one.policy());
        let rendered = render(&wanted.template, part, cluster, &target.namespaces, overrides)
            .map_err(|error| Failure::new("ApplyOverridePolicyFailed", chain(&error)))?;
        if run_by_member(&wanted.seen.identity) {
            may_run(&rendered.object, target)?;
        }
        let namespace = if is_namespace(&kind(key)) { &key.name } else { &key.namespace };
        // A copy that went without our doing may have lost its owner, too.
        if there.is_none() && settled.is_some() {
            link.spaces.doubt(&key.namespace);
        }
        let space = match key.namespace.as_str() {
            "" => None,
            namespace => Some(
                link.spaces
                    .get(namespace, target)
                    .await
                    .map_err(|error| Failure::new("NamespaceNotReady", error.to_string()))?,
            ),
        };
        let ours = Ours { host: &target.host, node: &target.node };
        let marking = Marking {
            ours,
            uid: &wanted.seen.uid,
            namespace,
            anchor: space.as_ref().map(|space| &space.anchor).filter(|_| !wanted.preserve),
            preserve: wanted.preserve,
            applied: [&rendered.applied, &rendered.applied_cluster],
        };
        let desired = copy::marked(rendered.object, &marking);
        // Something of another may have the name, which our watch does not show.
        let there = match there {
            Some(there) => Some(Value::clone(&there)),
            None => place.get(&desired).await?,
        };
        let others = self.neighbours(wanted, link);
        let others: Vec<&str> =
            others.iter().map(String::as_str).filter(|_| key.namespace.is_empty()).collect();
        match copy::plan(&desired, there.as_ref(), ours, settled, &others, wanted.resolution) {
            Plan::Nothing => Ok(Done::Applied(there.as_ref().map(copy::content))),
            Plan::Leave => Ok(Done::Applied(None)),
            Plan::Conflict(why) => Err(Failure::new("Conflict", why)),
            Plan::Apply(desired) => {
                if !self.leading.holds() {
                    return Ok(Done::Unknown);
                }
                link.note(&self.client, place.resource)
                    .await
                    .map_err(|error| Failure::new("HostRefuses", brief(&error)))?;
                let made = place.apply(&desired, there.as_ref()).await.inspect_err(|failure| {
                    if failure.reason == "NamespaceNotReady" {
                        link.spaces.doubt(&key.namespace);
                    }
                })?;
                tracing::info!(object = %key, cluster = &*link.name, "copied");
                if (key.api_version.as_str(), key.kind.as_str()) == DEFINITION {
                    link.look_again();
                }
                Ok(Done::Applied(Some(copy::content(&made))))
            }
        }
    }

    /// The other clusters of an object that are really the same one.
    fn neighbours(&self, wanted: &Wanted, link: &Link) -> Vec<String> {
        let view = self.store.view();
        let same = |name: &&String| {
            **name != *link.name && view.clusters.get(*name).is_some_and(|cluster| cluster.spec.id == link.id)
        };
        wanted.clusters.keys().filter(same).cloned().collect()
    }

    async fn take_back(
        &self,
        key: &Key,
        wanted: Option<&Wanted>,
        place: &Place<'_>,
        there: Option<Arc<Value>>,
    ) -> Result<Done, Failure> {
        let Some(there) = there else { return Ok(Done::Absent) };
        let target = place.target;
        let is_going = there.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
        if !marks::is_ours(&there, &target.host, &target.node) || is_going {
            return Ok(Done::Absent);
        }
        // A region of the same cluster still wants it, and takes it over.
        let shared = wanted.is_some_and(|wanted| !self.neighbours(wanted, place.link).is_empty());
        if shared && key.namespace.is_empty() && !is_namespace(&kind(key)) {
            return Ok(Done::Absent);
        }
        if !self.leading.holds() {
            return Ok(Done::Unknown);
        }
        // Pods may be in a namespace: it goes with that of the host, and else stays.
        if is_namespace(&kind(key)) {
            if wanted.is_some() {
                place.give_back(&there).await?;
            }
            return Ok(Done::Absent);
        }
        if wanted.is_none() && marks::annotation(&there, marks::PRESERVED).is_some() {
            place.release(&there).await?;
            tracing::info!(object = %key, cluster = &*place.link.name, "the copy stays, as its policy says");
        } else {
            place.delete(&there).await?;
            tracing::info!(object = %key, cluster = &*place.link.name, "the copy was taken back");
        }
        Ok(Done::Absent)
    }
}

/// A workload that the member runs by itself may do no more there than pods that the host sends.
fn may_run(workload: &Value, target: &Target) -> Result<(), Failure> {
    if target.region.is_some() {
        let message = "a region shares its cluster with others, and a workload that the cluster runs would go to all of it";
        return Err(Failure::new("NotInRegions", message));
    }
    let path = crate::workload::pod_path_of(workload).unwrap_or_default();
    let Some(spec) = workload.pointer(&format!("{path}/spec")) else { return Ok(()) };
    let refused = not_allowed(spec, target);
    if refused.is_empty() { Ok(()) } else { Err(Failure::new("NotAllowed", refused.to_string())) }
}
