//! Pods that were there before their policy was.
//!
//! They run where the host's scheduler put them. Those that come back are moved, so that the order in which things are
//! created does not matter; those that do not are left alone, and say so.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Shared, cover::covered, evict::Evicted};
use crate::{
    govern::govern,
    owners::{Meta, Owner},
    stamp,
};

/// How long after a change the pods are looked at: first the host must know to ask us about new ones.
const SETTLE: Duration = Duration::from_secs(2);
/// How often they are looked at while some are left.
const AGAIN: Duration = Duration::from_secs(5);
/// And how often otherwise.
const EVERY: Duration = Duration::from_secs(300);
const PAGE: u32 = 500;

pub(super) async fn run(shared: &Arc<Shared>, watch: &Client, own: &'static str, stop: &CancellationToken) {
    let mut changes = shared.store.changes();
    let mut owners = shared.owners.changes();
    let mut policies = None;
    let mut left: BTreeSet<String> = BTreeSet::new();
    loop {
        // Only a change of policies concerns everybody.
        let now: Vec<usize> =
            shared.store.view().propagation.iter().map(|policy| Arc::as_ptr(policy).addr()).collect();
        if policies.replace(now.clone()).is_none_or(|before| before != now) {
            left.extend(covered_namespaces(shared, own));
        }
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
        tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.changed() => {}
            // Labels of a workload may have changed so that a policy selects it now.
            meta = owners.recv() => match meta {
                Ok(meta) => left.extend(is_new(shared, &meta).then(|| meta.identity.namespace.clone())),
                Err(_) => left.extend(covered_namespaces(shared, own)),
            },
            () = tokio::time::sleep(if left.is_empty() { EVERY } else { AGAIN }) => {
                if left.is_empty() {
                    left.extend(covered_namespaces(shared, own));
                }
            }
        }
        if !left.is_empty() || changes.has_changed().unwrap_or(false) {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SETTLE) => {}
            }
        }
    }
}

fn covered_namespaces(shared: &Arc<Shared>, own: &str) -> BTreeSet<String> {
    let all: BTreeSet<String> =
        shared.owners.all(None).iter().map(|meta| meta.identity.namespace.clone()).collect();
    covered(&shared.store.view(), all.iter(), [], own)
}

/// Whether a policy selects a workload that nothing was decided for yet.
fn is_new(shared: &Arc<Shared>, workload: &Meta) -> bool {
    shared.bindings.get(&workload.uid).is_none() && govern(workload, &shared.store.view(), None).is_some()
}

/// Moves some of the pods of a namespace. Returns how many are left.
async fn look(shared: &Arc<Shared>, watch: &Client, namespace: &str) -> Result<usize, kube::Error> {
    let view = shared.store.view();
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(watch.clone(), namespace);
    let mut only = ListParams::default()
        .labels(&format!("!{},!{}", stamp::WORKLOAD, stamp::COPY_OF))
        .fields("status.phase!=Succeeded,status.phase!=Failed")
        .limit(PAGE);
    let mut found: HashMap<String, (Arc<Meta>, Vec<PartialObjectMeta<Pod>>)> = HashMap::new();
    let mut unmarked = vec![];
    loop {
        let page = pods.list(&only).await?;
        unmarked.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => only = only.continue_token(&token),
            None => break,
        }
    }
    for pod in unmarked {
        let Some(owner) = Owner::of(&json!({ "metadata": pod.metadata })) else { continue };
        if pod.metadata.deletion_timestamp.is_some() || owner.kind == "DaemonSet" {
            continue;
        }
        let chain = shared.owners.chain(namespace, Some(owner)).await?;
        let governed = chain.into_iter().rev().find(|meta| {
            let binding = shared.bindings.get(&meta.uid);
            govern(meta, &view, binding.as_deref()).is_some_and(|governed| governed.current)
        });
        if let Some(workload) = governed {
            found.entry(workload.uid.clone()).or_insert_with(|| (workload, vec![])).1.push(pod);
        }
    }
    let mut left = 0;
    for (workload, pods) in found.into_values() {
        left += bring(shared, &workload, &pods).await;
    }
    Ok(left)
}

async fn bring(shared: &Arc<Shared>, workload: &Meta, pods: &[PartialObjectMeta<Pod>]) -> usize {
    let about = |pod: &PartialObjectMeta<Pod>| ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: pod.namespace(),
        name: Some(pod.name_any()),
        uid: pod.uid(),
        ..ObjectReference::default()
    };
    if matches!(workload.identity.kind.as_str(), "Job" | "CronJob") {
        for pod in pods {
            let note = "a policy selects its workload, but came later: the pod runs where it is";
            shared.tell.warn(about(pod), "BeforePolicy", note);
        }
        return 0;
    }
    // A few at a time, the next when these are gone.
    for pod in pods.iter().take((pods.len() / 10).max(1)) {
        if !shared.leading.holds() {
            break;
        }
        let (namespace, uid) = (pod.namespace().unwrap_or_default(), pod.uid().unwrap_or_default());
        match shared.evictions.evict(&shared.client, &namespace, &pod.name_any(), &uid).await {
            Evicted::Yes => {
                tracing::info!(namespace, pod = pod.name_any(), "moved, for its policy came later");
            }
            Evicted::NotNow(why) => {
                shared.tell.warn(
                    about(pod),
                    "CannotMove",
                    &format!("its policy came later, and it cannot move yet: {why}"),
                );
            }
            Evicted::Gone | Evicted::Failed(_) => {}
        }
    }
    pods.len()
}
