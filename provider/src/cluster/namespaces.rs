//! Takes away what we made in the member for namespaces that the host has no more.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::ClusterProvider;
use crate::{marks, names::anchor, target::Target};

/// Namespaces that go together are looked at together; and what did not work is tried again.
const TOGETHER: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(30);
/// How often to look though nothing changed: pods that were still ending have ended.
const SWEEP: Duration = Duration::from_secs(300);

impl ClusterProvider {
    pub(super) async fn follow_namespaces(&self, stop: CancellationToken) {
        let mut names = self.site.host.namespaces.names();
        names.mark_changed();
        let mut again = SWEEP;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = names.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(again) => {}
            }
            tokio::time::sleep(TOGETHER).await;
            let existing = names.borrow_and_update().clone();
            let Some(existing) = existing else { continue };
            again = match self.remove_namespaces_but(&existing).await {
                Ok(true) => SWEEP,
                Ok(false) => AGAIN,
                Err(error) => {
                    tracing::debug!(node = %self.site.host.node, %error, "namespaces of the member stay for now");
                    AGAIN
                }
            };
        }
    }

    /// Removes our namespaces, and our anchors in those of others, that stand for none of these. False if some must
    /// stay for now.
    async fn remove_namespaces_but(&self, existing: &BTreeSet<String>) -> Result<bool, kube::Error> {
        // Only of the cluster that joined, and only once we know which pods are there.
        if !self.watch.has_pods() || self.watch.must_be_the_member().await.is_err() {
            return Ok(false);
        }
        let target = self.site.target();
        let ours = format!("{}={},{}={}", marks::HOST, target.host, marks::NODE, target.node);
        let client = &self.site.member.pods;
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let mut all = true;
        let mut removed = BTreeSet::new();
        for namespace in namespaces.list(&ListParams::default().labels(&ours)).await?.items {
            let Some(host) = namespace.annotations().get(marks::HOST_NAMESPACE) else { continue };
            // What the annotation says is believed only if the mapping leads back here.
            let mapped = target.namespaces.map(host).is_ok_and(|name| name.as_str() == namespace.name_any());
            if !mapped || existing.contains(host) || namespace.meta().deletion_timestamp.is_some() {
                continue;
            }
            if self.has_pods_in(&namespace.name_any(), &target) {
                all = false;
                continue;
            }
            tracing::info!(node = %self.site.host.node, namespace = namespace.name_any(), "its namespace on the host is gone");
            delete(&namespaces, &namespace).await?;
            self.site.spaces.doubt(host);
            removed.insert(namespace.name_any());
        }
        // In namespaces that somebody else made, only what is ours goes: the anchor, and all that it owns.
        let maps: Api<PartialObjectMeta<ConfigMap>> = Api::all(client.clone());
        let name = format!("metadata.name={}", anchor(&target.host, &target.node));
        for found in maps.list(&ListParams::default().labels(&ours).fields(&name)).await?.items {
            let namespace = found.namespace().unwrap_or_default();
            let host = target.namespaces.host_namespace(&namespace, &serde_json::json!({}));
            let Some(host) = host.filter(|host| !existing.contains(host) && !removed.contains(&namespace))
            else {
                continue;
            };
            if self.has_pods_in(&namespace, &target) {
                all = false;
                continue;
            }
            delete(&Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), &namespace), &found)
                .await?;
            self.site.spaces.doubt(&host);
        }
        Ok(all)
    }

    fn has_pods_in(&self, namespace: &str, target: &Target) -> bool {
        self.watch.pods_of(&target.node).iter().any(|pod| &*pod.slot().namespace == namespace)
    }
}

/// Deletes exactly this object.
async fn delete<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let only_this = Preconditions { uid: object.uid(), resource_version: None };
    match api.delete(&object.name_any(), &DeleteParams::background().preconditions(only_this)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
