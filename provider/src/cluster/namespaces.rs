//! Takes away what we made in the member for namespaces that the host has no more.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::ClusterProvider;
use crate::{
    join::leave::release_namespace,
    marks,
    names::anchor,
    site::{Contents, Fate},
    target::Target,
};

/// Namespaces that go together are looked at together; and what did not work, or must wait, is tried again.
const TOGETHER: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(10);
/// How often to look though nothing changed.
const SWEEP: Duration = Duration::from_secs(300);

impl ClusterProvider {
    pub(super) async fn follow_namespaces(&self, stop: CancellationToken) {
        let mut names = self.site.host.namespaces.names();
        names.mark_changed();
        let (mut again, mut shared) = (SWEEP, BTreeSet::new());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = names.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(again) => {}
            }
            tokio::time::sleep(TOGETHER).await;
            let existing = names.borrow_and_update().clone();
            let Some(existing) = existing else { continue };
            again = match self.remove_namespaces_but(&existing, &mut shared).await {
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
    ///
    /// `shared` are those where the last look found something of others: one look may meet pods whose Deployment is
    /// gone, and that go this moment.
    async fn remove_namespaces_but(
        &self,
        existing: &BTreeSet<String>,
        shared: &mut BTreeSet<String>,
    ) -> Result<bool, kube::Error> {
        // Only of the cluster that joined, and only once we know which pods are there.
        if !self.watch.has_pods() || self.watch.must_be_the_member().await.is_err() {
            return Ok(false);
        }
        let target = self.site.target();
        let ours = format!("{}={},{}={}", marks::HOST, target.host, marks::NODE, target.node);
        let client = &self.site.member.pods;
        let maps: Api<PartialObjectMeta<ConfigMap>> = Api::all(client.clone());
        let name = format!("metadata.name={}", anchor(&target.host, &target.node));
        let anchors = maps.list(&ListParams::default().labels(&ours).fields(&name)).await?.items;
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let listed = namespaces.list(&ListParams::default().labels(&ours)).await?.items;
        let (mut all, mut made, mut seen) = (true, BTreeSet::new(), BTreeSet::new());
        for namespace in listed {
            let name = namespace.name_any();
            let host = namespace.annotations().get(marks::HOST_NAMESPACE);
            made.insert(name.clone());
            // What the annotation says is believed only if the mapping leads back here.
            let mapped = host
                .is_some_and(|host| target.namespaces.map(host).is_ok_and(|mapped| mapped.as_str() == name));
            let needed = host.is_none_or(|host| existing.contains(host));
            if !mapped || needed || namespace.meta().deletion_timestamp.is_some() {
                continue;
            }
            let (fate, others) = self.fate(&name, &target).await?;
            match fate {
                Fate::Remove => {
                    tracing::info!(node = %target.node, namespace = name, "its namespace on the host is gone");
                    delete(&namespaces, &namespace).await?;
                }
                Fate::Release if shared.contains(&name) => {
                    tracing::info!(node = %target.node, namespace = name, others, "only what is ours goes: it is shared");
                    // The anchor first: once the namespace is nobody's, nothing leads to it.
                    self.delete_anchor(&anchors, &name).await?;
                    let release = Patch::Merge(release_namespace());
                    let namespaces: Api<Namespace> = Api::all(client.clone());
                    namespaces.patch_metadata(&name, &PatchParams::default(), &release).await?;
                }
                Fate::Release => {
                    seen.insert(name);
                    all = false;
                }
                Fate::Wait => all = false,
            }
        }
        *shared = seen;
        // In namespaces that somebody else made, only what is ours goes: the anchor, and all that it owns.
        let needed: BTreeSet<String> = existing
            .iter()
            .filter_map(|host| Some(target.namespaces.map(host).ok()?.as_str().to_owned()))
            .collect();
        let elsewhere = anchors.iter().filter_map(ResourceExt::namespace);
        let elsewhere = elsewhere.filter(|name| !made.contains(name) && !needed.contains(name));
        for name in elsewhere.collect::<Vec<_>>() {
            match self.fate(&name, &target).await?.0 {
                Fate::Wait => all = false,
                Fate::Remove | Fate::Release => self.delete_anchor(&anchors, &name).await?,
            }
        }
        self.site.spaces.keep_only(existing);
        Ok(all)
    }

    /// What becomes of a namespace whose namespace on the host is gone, and for what of others it stays.
    async fn fate(&self, namespace: &str, target: &Target) -> Result<(Fate, String), kube::Error> {
        if self.has_pods_in(namespace, target) {
            return Ok((Fate::Wait, String::new()));
        }
        let contents = Contents::of(&self.site.member.pods, namespace, &target.host, &target.node).await?;
        Ok((contents.fate(), contents.others().join(", ")))
    }

    /// Deletes our anchor in a namespace, and with it all that it owns.
    async fn delete_anchor(
        &self,
        anchors: &[PartialObjectMeta<ConfigMap>],
        namespace: &str,
    ) -> Result<(), kube::Error> {
        let api: Api<PartialObjectMeta<ConfigMap>> =
            Api::namespaced(self.site.member.pods.clone(), namespace);
        for anchor in anchors.iter().filter(|anchor| anchor.namespace().as_deref() == Some(namespace)) {
            delete(&api, anchor).await?;
        }
        Ok(())
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
