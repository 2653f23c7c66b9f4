//! Pods that were there before their policy was.
//!
//! They run where the host's scheduler put them. Those that come back are moved, so that the order in which things are
//! created does not matter; those that do not are left alone, and say so.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
    loop {
        let pause = match look(shared, watch, own).await {
            Ok(0) => EVERY,
            Ok(_) => AGAIN,
            Err(error) => {
                tracing::warn!(%error, "cannot look for pods that came before their policy");
                AGAIN
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.changed() => {}
            // Labels of a workload may have changed so that a policy selects it now.
            _ = owners.recv() => {}
            () = tokio::time::sleep(pause) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SETTLE) => {}
        }
        owners = owners.resubscribe();
    }
}

/// Moves some of them. Returns how many are left.
async fn look(shared: &Arc<Shared>, watch: &Client, own: &str) -> Result<usize, kube::Error> {
    let view = shared.store.view();
    let namespaces: std::collections::BTreeSet<String> =
        shared.owners.all(None).iter().map(|meta| meta.identity.namespace.clone()).collect();
    let namespaces = covered(&view, namespaces.iter(), [], own);
    let mut left = 0;
    for namespace in namespaces {
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(watch.clone(), &namespace);
        let only = ListParams::default()
            .labels(&format!("!{}", stamp::WORKLOAD))
            .fields("status.phase!=Succeeded,status.phase!=Failed")
            .limit(PAGE);
        let mut found: HashMap<String, (Arc<Meta>, Vec<PartialObjectMeta<Pod>>)> = HashMap::new();
        for pod in pods.list(&only).await?.items {
            let Some(owner) = Owner::of(&json!({ "metadata": pod.metadata })) else { continue };
            if pod.metadata.deletion_timestamp.is_some() || owner.kind == "DaemonSet" {
                continue;
            }
            let chain = shared.owners.chain(&namespace, Some(owner)).await?;
            let governed = chain.into_iter().rev().find(|meta| {
                let binding = shared.bindings.get(&meta.uid);
                govern(meta, &view, binding.as_deref()).is_some_and(|governed| governed.current)
            });
            if let Some(workload) = governed {
                found.entry(workload.uid.clone()).or_insert_with(|| (workload, vec![])).1.push(pod);
            }
        }
        for (workload, pods) in found.into_values() {
            left += bring(shared, &workload, &pods).await;
        }
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
