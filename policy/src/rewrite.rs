//! Overrides, made on pods as they are sent to their cluster.
//!
//! An override is about a workload. It is made on the workload as it was when the pod came from it, and what that changed
//! in the template is carried over to the pod.

mod revision;
pub(crate) mod workloads;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use federlet_node::contract::{Pod, ProviderError};
use federlet_provider::{errors::brief, marks::OVERRIDDEN, site::Rewrite};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use self::{revision::as_made, workloads::Workloads};
use crate::{
    affinity,
    overrides::{self, Failure, project::Projection},
    owners::{Meta, Owner, Owners},
    placer::{Evicted, Evictions},
    stamp::{self, Workload},
    steer,
    store::{Override, Store},
    tell::Tell,
    workload,
};

/// How long after one pod of a workload was replaced the next one is.
const NEXT: Duration = Duration::from_secs(5);

/// Makes overrides.
pub struct Rewriter {
    client: Client,
    store: Arc<Store>,
    owners: Arc<Owners>,
    workloads: Workloads,
    tell: Tell,
    evictions: Evictions,
    replaced: Mutex<HashMap<String, Instant>>,
}

impl Rewriter {
    /// With the policies of this store.
    #[must_use]
    pub fn new(client: Client, store: Arc<Store>, owners: Arc<Owners>, tell: Tell) -> Arc<Self> {
        let workloads = Workloads::new(client.clone(), owners.clone());
        let (evictions, replaced) = (Evictions::default(), Mutex::default());
        Arc::new(Self { client, store, owners, workloads, tell, evictions, replaced })
    }

    async fn made(
        &self,
        pod: &Pod,
        workload: &Workload,
        cluster: &str,
    ) -> Result<Option<Value>, ProviderError> {
        let view = self.store.view();
        if !view.complete {
            return Err(ProviderError::unavailable("override policies are not read yet"));
        }
        let Some(cluster) = view.clusters.get(cluster) else { return Ok(None) };
        let namespace = pod.key().namespace();
        let owner = owner(pod, workload);
        let found = self.owners.get(namespace, &owner).await;
        let found = found.map_err(|error| ProviderError::unavailable(brief(&error)))?;
        // A workload that is gone takes its pods along; they stay as they are until then.
        let Some(meta) = found else { return Ok(None) };
        let about: Vec<&Arc<Override>> = view
            .overrides
            .iter()
            .filter(|policy| {
                let policy = policy.policy();
                policy.precision(&meta.identity).is_some()
                    && policy.rules().any(|(target, _)| affinity::includes(target, cluster))
            })
            .collect();
        if about.is_empty() {
            return Ok(None);
        }
        let mut live = pod.json().clone();
        steer::constraints::put_back(&mut live);
        let before = self.before(&live, namespace, &meta).await?;
        let policies = about.iter().map(|policy| policy.policy());
        let rendered = overrides::render(&before, cluster, policies)
            .map_err(|failure| self.failed(&about, &meta, &failure))?;
        let Some(projection) = Projection::between(&before, &rendered.object) else {
            let note = format!(
                "its pods cannot be overridden: where {} keeps them is not known",
                meta.identity.kind
            );
            about.iter().for_each(|policy| self.tell.warn(policy.reference(), "NotApplicable", &note));
            return Ok(None);
        };
        if projection.is_empty() {
            return Ok(None);
        }
        let mut made = projection.apply(&live);
        let digest = fixed(&live, &made);
        steer::constraints::move_away(&mut made);
        if let Some(digest) = digest {
            made["metadata"]["annotations"][OVERRIDDEN] = digest.into();
        }
        Ok(Some(made))
    }

    /// The workload as it was when the pod came from it.
    async fn before(&self, live: &Value, namespace: &str, workload: &Meta) -> Result<Value, ProviderError> {
        if workload.identity.kind == "Pod" {
            let mut pod = live.clone();
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
            return Ok(pod);
        }
        let maker = stamp::maker(live);
        let itself = maker.as_ref().is_some_and(|maker| maker.uid == workload.uid);
        let mut found = self.workloads.of(namespace, maker, workload).await.map_err(|error| {
            ProviderError::unavailable(format!("cannot read its workload: {}", brief(&error)))
        })?;
        let path = workload::pod_path_of(&found).filter(|_| itself);
        if let Some(template) = path.and_then(|path| found.pointer_mut(path)) {
            *template = as_made(template, live);
        }
        Ok(found)
    }

    /// Said on the policy; the pod is told by whoever asked.
    fn failed(&self, about: &[&Arc<Override>], workload: &Meta, failure: &Failure) -> ProviderError {
        let why = format!("{failure}: {}", failure.source);
        if let Some(policy) = about.iter().find(|policy| policy.policy().key() == failure.policy) {
            let note = format!("{} {}: {why}", workload.identity.kind, workload.identity.name);
            self.tell.warn(policy.reference(), "ApplyOverridePolicyFailed", &note);
        }
        ProviderError::rejected("ApplyOverridePolicyFailed", why)
    }
}

#[async_trait]
impl Rewrite for Rewriter {
    async fn rewrite(&self, pod: &Pod, cluster: &str) -> Result<Option<Pod>, ProviderError> {
        let Some(workload) = Workload::of(pod.json()) else { return Ok(None) };
        let Some(made) = self.made(pod, &workload, cluster).await? else { return Ok(None) };
        let made = Pod::try_from(made).map_err(|error| {
            ProviderError::rejected(
                "ApplyOverridePolicyFailed",
                format!("what overrides make is no pod: {error}"),
            )
        })?;
        Ok(Some(made))
    }

    async fn replace(&self, pod: &Pod) -> Result<(), ProviderError> {
        let comes_back = stamp::maker(pod.json()).is_some_and(|owner| owner.kind != "Job");
        if !comes_back {
            let note = "an override of it changed that cannot change in a pod that runs; it stays as it is";
            let about = ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                namespace: Some(pod.key().namespace().into()),
                name: Some(pod.key().name().into()),
                uid: Some(pod.uid().into()),
                ..ObjectReference::default()
            };
            self.tell.warn(about, "OverrideChanged", note);
            return Ok(());
        }
        let later = |message: String| Err(ProviderError::Unavailable { message, retry_after: Some(NEXT) });
        let workload = Workload::of(pod.json()).unwrap_or_default().uid;
        {
            let mut replaced = self.replaced.lock();
            replaced.retain(|_, at| at.elapsed() < NEXT);
            if replaced.contains_key(&workload) {
                return later("an override changed: it is replaced after others of its workload".into());
            }
            replaced.insert(workload, Instant::now());
        }
        let (namespace, name) = (pod.key().namespace(), pod.key().name());
        match self.evictions.evict(&self.client, namespace, name, pod.uid()).await {
            Evicted::Yes | Evicted::Gone => Ok(()),
            Evicted::NotNow(why) | Evicted::Failed(why) => {
                later(format!("an override changed, and it cannot be replaced yet: {why}"))
            }
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.store.override_changes()
    }
}

fn owner(pod: &Pod, workload: &Workload) -> Owner {
    if workload.uid.is_empty() {
        return Owner {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.key().name().into(),
            uid: pod.uid().into(),
        };
    }
    let Workload { api_version, kind, name, uid } = workload.clone();
    Owner { api_version, kind, name, uid }
}

/// A digest of what was changed and cannot change in a pod that runs: all of its spec but images.
fn fixed(before: &Value, after: &Value) -> Option<String> {
    let spec = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        for list in ["initContainers", "containers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container.as_object_mut().map(|container| container.remove("image"));
            }
        }
        spec
    };
    let change = json_patch::diff(&spec(before), &spec(after));
    // FNV-1a, 64 bits: the same in every process.
    let hash = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    (!change.0.is_empty()).then(|| format!("{:016x}", hash(&json!(change).to_string())))
}

impl fmt::Debug for Rewriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rewriter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_change_in_place_counts() {
        let pod = |image: &str, command: &str| {
            json!({"metadata": {"labels": {"a": command}}, "spec": {
            "containers": [{"name": "a", "image": image, "command": [command]}]}})
        };
        assert_eq!(fixed(&pod("a", "x"), &pod("b", "x")), None);
        let one = fixed(&pod("a", "x"), &pod("a", "y")).unwrap();
        assert_eq!(fixed(&pod("a", "x"), &pod("c", "y")).unwrap(), one, "images do not matter");
        assert_ne!(fixed(&pod("a", "x"), &pod("a", "z")).unwrap(), one);
    }
}
