//! Pods that were there before their policy was.
//!
//! They run where the host's scheduler put them. Those that come back are moved, so that the order in which things are
//! created does not matter; those that do not are left alone, and say so.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    cover::{Cover, covered},
    evict::Evicted,
    seen::{Group, SeenPod},
};
use crate::{
    daemon::{self, Nodes},
    govern::govern,
    object::Identity,
    owners::{Meta, Owner},
    stamp,
};

/// How long after a change the pods are looked at: first the host must know to ask us about new ones.
const SETTLE: Duration = Duration::from_secs(2);
/// How often they are looked at while some are left.
const AGAIN: Duration = Duration::from_secs(3);
/// How soon after a pod was told to end its ReplicaSet has made the next one, and we know of it.
const SUCCEEDED: SignedDuration = SignedDuration::from_secs(3);
/// And how often otherwise.
const EVERY: Duration = Duration::from_secs(300);
const PAGE: u32 = 500;
/// Pods that are over stay where they were.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

pub(super) async fn run(shared: &Arc<Shared>, cover: &Cover, watch: &Client, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        // Who came for those that moved is among them.
        () = shared.pods.complete() => {}
    }
    let mut changes = shared.store.changes();
    let mut owners = shared.owners.changes();
    let (mut policies, mut daemons) = (None, BTreeMap::new());
    let mut left: BTreeSet<String> = BTreeSet::new();
    loop {
        // Only a change of policies concerns everybody.
        let now: Vec<usize> =
            shared.store.view().propagation.iter().map(|policy| Arc::as_ptr(policy).addr()).collect();
        if policies.replace(now.clone()).is_none_or(|before| before != now) {
            left.extend(covered_namespaces(shared, cover));
        }
        // A daemon set has pods on all nodes already, and other clusters may be meant now.
        let now = daemon_nodes(shared);
        let changed = now.iter().filter(|(set, nodes)| daemons.get(*set) != Some(*nodes));
        left.extend(changed.map(|((namespace, _), _)| namespace.clone()).filter(|name| name != cover.own));
        daemons = now;
        for namespace in std::mem::take(&mut left) {
            match look(shared, watch, &namespace).await {
                Ok(0) => {}
                Ok(_) => drop(left.insert(namespace)),
                Err(error) => {
                    tracing::warn!(namespace, %error, "cannot look for pods that came before their policy");
                    left.insert(namespace);
                }
            }
        }
        let nothing_changed = tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.changed() => false,
            // Labels of a workload may have changed so that a policy selects it now.
            meta = owners.recv() => {
                match meta {
                    Ok(meta) => left.extend(is_new(shared, &meta).then(|| meta.identity.namespace.clone())),
                    Err(_) => left.extend(covered_namespaces(shared, cover)),
                }
                false
            }
            () = tokio::time::sleep(if left.is_empty() { EVERY } else { AGAIN }) => {
                if left.is_empty() {
                    left.extend(covered_namespaces(shared, cover));
                }
                true
            }
        };
        if !nothing_changed && (!left.is_empty() || changes.has_changed().unwrap_or(false)) {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SETTLE) => {}
            }
        }
    }
}

fn covered_namespaces(shared: &Arc<Shared>, cover: &Cover) -> BTreeSet<String> {
    let mut all = cover.namespaces();
    // They may be known before their namespaces are.
    all.extend(shared.owners.all(None).iter().map(|meta| meta.identity.namespace.clone()));
    covered(&shared.store.view(), all.iter(), [], cover.own)
}

/// The nodes on which pods of each daemon set are to run, by its namespace and UID, as far as a policy says.
fn daemon_nodes(shared: &Arc<Shared>) -> BTreeMap<(String, String), BTreeSet<String>> {
    let view = shared.store.view();
    let sets = shared.owners.all(None).into_iter().filter(|meta| meta.identity.kind == "DaemonSet");
    sets.filter_map(|meta| {
        let binding = shared.bindings.get(&meta.uid);
        let governed = govern(&meta, &view, binding.as_deref()).filter(|governed| governed.current)?;
        let nodes = daemon::nodes(&governed, &view, binding.as_deref())?;
        Some(((meta.identity.namespace.clone(), meta.uid.clone()), nodes.run))
    })
    .collect()
}

/// Whether a policy selects a workload that nothing was decided for yet.
fn is_new(shared: &Arc<Shared>, workload: &Meta) -> bool {
    shared.bindings.get(&workload.uid).is_none() && govern(workload, &shared.store.view(), None).is_some()
}

/// Moves some of the pods of a namespace. Returns how many are left.
async fn look(shared: &Arc<Shared>, watch: &Client, namespace: &str) -> Result<usize, kube::Error> {
    let view = shared.store.view();
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(watch.clone(), namespace);
    let mut only = unmarked().fields(UNFINISHED).limit(PAGE);
    let mut unmarked = vec![];
    loop {
        let page = pods.list(&only).await?;
        unmarked.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => only = only.continue_token(&token),
            None => break,
        }
    }
    let mut found: HashMap<String, Vec<Late>> = HashMap::new();
    let mut daemons: HashMap<String, Nodes> = HashMap::new();
    for pod in unmarked {
        let owner = Owner::of(&json!({ "metadata": pod.metadata }));
        let itself = Arc::new(itself(&pod));
        let chain = shared.owners.chain(namespace, owner.clone()).await?;
        let governed = chain.into_iter().rev().chain([itself]).find_map(|meta| {
            let binding = shared.bindings.get(&meta.uid);
            let governed = govern(&meta, &view, binding.as_deref()).filter(|governed| governed.current)?;
            Some((meta, governed, binding))
        });
        let Some((workload, governed, binding)) = governed else { continue };
        if let Some(owner) = owner.as_ref().filter(|owner| owner.kind == "DaemonSet") {
            // Which of its pods are concerned depends on their nodes.
            if !daemons.contains_key(&owner.uid)
                && let Some(nodes) = daemon::nodes(&governed, &view, binding.as_deref())
            {
                daemons.insert(owner.uid.clone(), nodes);
            }
            continue;
        }
        found.entry(workload.uid.clone()).or_default().push(Late { pod, owner });
    }
    for pod in on_nodes(&pods, &daemons).await? {
        let owner = Owner::of(&json!({ "metadata": pod.metadata }));
        let set = owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default();
        found.entry(set).or_default().push(Late { pod, owner });
    }
    let mut left = 0;
    for (uid, pods) in found {
        left += bring(shared, &Group { namespace: namespace.to_owned(), uid }, pods).await;
    }
    Ok(left)
}

/// A pod that was there before its policy.
struct Late {
    pod: PartialObjectMeta<Pod>,
    owner: Option<Owner>,
}

impl Late {
    /// Why it stays, if nobody would make it again, or would count it as a failure.
    fn stays(&self) -> Option<&'static str> {
        match &self.owner {
            None => Some("a policy selects it, but came later: it runs where it is until it is made anew"),
            Some(owner) if owner.kind == "Job" => {
                Some("a policy selects its workload, but came later: the pod runs where it is")
            }
            Some(_) => None,
        }
    }

    /// Whether it is ending, and whoever comes for it is not known yet. A ReplicaSet makes the next pod at once, however long
    /// the last one takes to end; nobody comes for one of a daemon set; others wait until it is gone.
    fn is_missed(&self, now: Timestamp) -> bool {
        let metadata = &self.pod.metadata;
        let Some(ends) = &metadata.deletion_timestamp else { return false };
        let grace = SignedDuration::from_secs(metadata.deletion_grace_period_seconds.unwrap_or_default());
        match self.owner.as_ref().map(|owner| owner.kind.as_str()) {
            Some("ReplicaSet") => {
                ends.0.checked_sub(grace).is_ok_and(|told| now.duration_since(told) < SUCCEEDED)
            }
            Some("DaemonSet") => false,
            _ => true,
        }
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: self.pod.namespace(),
            name: Some(self.pod.name_any()),
            uid: self.pod.uid(),
            ..ObjectReference::default()
        }
    }
}

/// A pod as a policy can select it.
fn itself(pod: &PartialObjectMeta<Pod>) -> Meta {
    let meta = pod.metadata.clone();
    let identity = Identity {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: meta.namespace.unwrap_or_default(),
        name: meta.name.unwrap_or_default(),
        labels: meta.labels.unwrap_or_default(),
        annotations: meta.annotations.unwrap_or_default(),
    };
    Meta { identity, uid: meta.uid.unwrap_or_default(), ..Meta::default() }
}

/// Pods of daemon sets that nobody marked, on nodes where they are to run. There is one for each, so they are few; the
/// pods on machines of the host may be many and are not looked at.
async fn on_nodes(
    pods: &Api<PartialObjectMeta<Pod>>,
    daemons: &HashMap<String, Nodes>,
) -> Result<Vec<PartialObjectMeta<Pod>>, kube::Error> {
    let nodes: BTreeSet<&String> = daemons.values().flat_map(|nodes| &nodes.run).collect();
    let mut found = vec![];
    for node in nodes {
        let only = unmarked().fields(&format!("{UNFINISHED},spec.nodeName={node}"));
        let wanted = |pod: &PartialObjectMeta<Pod>| {
            let owner = Owner::of(&json!({ "metadata": pod.metadata }));
            let daemon = owner.and_then(|owner| daemons.get(&owner.uid));
            daemon.is_some_and(|one| one.run.contains(node))
        };
        found.extend(pods.list(&only).await?.items.into_iter().filter(wanted));
    }
    Ok(found)
}

fn unmarked() -> ListParams {
    ListParams::default().labels(&format!("!{},!{}", stamp::WORKLOAD, stamp::COPY_OF))
}

/// How many of so many pods may move now: a tenth of all, less those that are on their way, whoever they are.
fn budget(going: usize, missed: usize, steered: &[SeenPod]) -> usize {
    let alive = steered.iter().filter(|pod| !pod.over);
    // Nobody waits for a pod of a daemon set: it is there for its own node alone.
    let on_the_way = |pod: &&SeenPod| pod.deleting || pod.is_gated() || (!pod.ready && !pod.is_daemon());
    let unsettled = alive.clone().filter(on_the_way).count() + missed;
    ((going + alive.count()) / 10).max(1).saturating_sub(unsettled)
}

/// Moves some of the pods of a workload. Returns how many are left.
async fn bring(shared: &Arc<Shared>, group: &Group, pods: Vec<Late>) -> usize {
    let is_ending = |pod: &Late| pod.pod.metadata.deletion_timestamp.is_some();
    let (ending, pods): (Vec<Late>, Vec<Late>) = pods.into_iter().partition(is_ending);
    let (stay, go): (Vec<Late>, Vec<Late>) = pods.into_iter().partition(|pod| pod.stays().is_some());
    for pod in stay {
        shared.tell.warn(pod.reference(), "BeforePolicy", pod.stays().unwrap_or_default());
    }
    // A few at a time, the next when those that came for them are Ready.
    let now = Timestamp::now();
    let missed = ending.iter().filter(|pod| pod.is_missed(now)).count();
    for late in go.iter().take(budget(go.len(), missed, &shared.pods.of(group))) {
        if !shared.leading.holds() {
            break;
        }
        let pod = &late.pod;
        let (namespace, uid) = (pod.namespace().unwrap_or_default(), pod.uid().unwrap_or_default());
        match shared.evictions.evict(&shared.client, &namespace, &pod.name_any(), &uid).await {
            Evicted::Yes => {
                tracing::info!(namespace, pod = pod.name_any(), "moved, for its policy came later");
            }
            Evicted::NotNow(why) => {
                shared.tell.warn(
                    late.reference(),
                    "CannotMove",
                    &format!("its policy came later, and it cannot move yet: {why}"),
                );
            }
            Evicted::Gone | Evicted::Failed(_) => {}
        }
    }
    go.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_made_again_moves_and_others_say_that_they_stay() {
        let late = |owner: Option<&str>| Late {
            pod: PartialObjectMeta::default(),
            owner: owner.map(|kind| Owner { kind: kind.into(), ..Owner::default() }),
        };
        for (owner, stays) in [
            (Some("ReplicaSet"), false),
            (Some("StatefulSet"), false),
            (Some("DaemonSet"), false),
            (Some("Widget"), false),
            (Some("Job"), true),
            (None, true),
        ] {
            assert_eq!(late(owner).stays().is_some(), stays, "{owner:?}");
        }
    }

    #[test]
    fn the_next_move_when_those_that_came_for_the_last_are_ready() {
        let kind = |kind: &str| Some(Owner { kind: kind.into(), ..Owner::default() });
        let ready = SeenPod { ready: true, owner: kind("ReplicaSet"), ..SeenPod::default() };
        let unready = SeenPod { ready: false, ..ready.clone() };
        let gated = SeenPod { gate: Some(0), ..unready.clone() };
        let deleting = SeenPod { deleting: true, ..ready.clone() };
        let over = SeenPod { over: true, ..unready.clone() };
        let daemon = SeenPod { owner: kind("DaemonSet"), ..unready.clone() };
        for (going, ending, steered, expected) in [
            (4, 0, vec![], 1),
            (30, 0, vec![], 3),
            (30, 1, vec![], 2),
            (4, 1, vec![], 0),
            (3, 0, vec![ready.clone()], 1),
            (3, 0, vec![ready.clone(), over], 1),
            (3, 0, vec![unready], 0),
            (3, 0, vec![gated.clone()], 0),
            (3, 0, vec![deleting], 0),
            (3, 0, vec![daemon], 1),
            (10, 0, vec![ready; 20], 3),
            (28, 0, vec![gated; 2], 1),
        ] {
            assert_eq!(budget(going, ending, &steered), expected, "{going} {ending} {steered:?}");
        }
    }

    #[test]
    fn who_ends_is_missed_until_the_next_one_can_be_known() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let told = |kind: &str, ends: Option<&str>| Late {
            pod: serde_json::from_value(json!({"metadata": {
                "name": "p", "deletionTimestamp": ends, "deletionGracePeriodSeconds": 30}}))
            .unwrap(),
            owner: Some(Owner { kind: kind.into(), ..Owner::default() }),
        };
        for (kind, ends, missed) in [
            ("ReplicaSet", None, false),
            ("ReplicaSet", Some("2026-01-01T00:01:29Z"), true),
            ("ReplicaSet", Some("2026-01-01T00:01:20Z"), false),
            ("StatefulSet", Some("2026-01-01T00:01:20Z"), true),
            ("DaemonSet", Some("2026-01-01T00:01:29Z"), false),
        ] {
            assert_eq!(told(kind, ends).is_missed(now), missed, "{kind} {ends:?}");
        }
    }

    #[test]
    fn a_pod_is_what_a_policy_selects() {
        let pod: PartialObjectMeta<Pod> = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "labels": {"a": "b"}}}))
        .unwrap();
        let meta = itself(&pod);
        assert_eq!((&*meta.identity.api_version, &*meta.identity.kind, &*meta.uid), ("v1", "Pod", "u"));
        assert_eq!(meta.identity.labels["a"], "b");
    }
}
