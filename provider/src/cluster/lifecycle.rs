//! Pods to the member: started, changed, ended.

use std::time::Duration;

use async_trait::async_trait;
use federlet_node::contract::{Pod, PodId, PodKey, PodLifecycleHandler, ProviderError};
use kube::runtime::events::EventType;
use serde_json::Value;

use super::{ClusterProvider, mirror::key_of, phantom, writes::MemberPods};
use crate::{
    errors::from_member,
    fleet::relabelled,
    marks,
    site::Space,
    translate::{MemberPod, Notice, Request, translate, unknown},
    update::plan,
    watch::{OurPod, Slot},
};

/// Zero would take the object away before the member's kubelet has ended the containers, and they would run on beside
/// those of the next pod.
pub(super) const LEAST_GRACE: Duration = Duration::from_secs(1);

/// How long a pod waits for what is not known of the member yet.
const MOMENT: Duration = Duration::from_secs(5);

#[async_trait]
impl PodLifecycleHandler for ClusterProvider {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        if phantom::is_phantom(pod) {
            return Ok(());
        }
        self.watch.must_be_the_member().await?;
        let (space, wanted) = self.prepare(pod).await?;
        self.tell(pod, &wanted.notices);
        match self.pods().create(&wanted.key, &wanted.json).await {
            Ok(made) => self.watch.note(&made),
            Err(error) => self.not_created(pod, &space, &wanted, &error).await?,
        }
        if wanted.ephemeral.is_empty() { Ok(()) } else { self.update_pod(pod).await }
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        if phantom::is_phantom(pod) {
            return Ok(());
        }
        self.watch.must_be_the_member().await?;
        let slot = self.slot(pod.key())?;
        let current = self.ours(&slot).filter(|there| there.host_uid() == pod.uid());
        let current = current.ok_or(ProviderError::NotFound)?.json();
        let (_, wanted) = self.prepare(pod).await?;
        let made = |member| marks::annotation(member, marks::OVERRIDDEN);
        if let Some(rewrite) = &self.site.host.rewrite
            && made(&wanted.json) != made(&current)
        {
            return rewrite.replace(pod).await;
        }
        let plan = plan(&wanted, &current, self.site.target().version);
        let notices: Vec<Notice> = wanted.notices.into_iter().chain(plan.notices.clone()).collect();
        if !plan.is_empty() {
            self.tell(pod, &notices);
        }
        // The member may refuse one for good, such as a debug container that a policy there forbids: the others go on.
        let mut refused = None;
        for (part, patch) in
            [(None, plan.patch), (Some("ephemeralcontainers"), plan.ephemeral), (Some("resize"), plan.resize)]
        {
            let Some(patch) = patch else { continue };
            match self.pods().patch(&slot, part, &patch).await {
                Ok(answer) => self.watch.note(&answer),
                Err(error) => refused = refused.or(Some(from_member(&error))),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    async fn delete_pod(&self, pod: &PodId, grace: Duration) -> Result<(), ProviderError> {
        let slot = self.slot(pod.key())?;
        let host = self.site.host_pod(pod.key()).filter(|host| host.uid() == pod.uid());
        // It was never sent anywhere, so nobody need be asked.
        if host.is_some_and(|host| phantom::is_phantom(&host)) && self.ours(&slot).is_none() {
            self.follow.release(pod);
            return Err(ProviderError::NotFound);
        }
        self.watch.must_be_the_member().await?;
        let there = match self.ours(&slot) {
            Some(there) => Some(there.json()),
            None => self.pods().get(&slot).await.map_err(|error| from_member(&error))?,
        };
        let ours = there.filter(|there| self.stands_for(there, pod.uid()));
        let uid = ours.as_ref().and_then(|there| there.pointer("/metadata/uid")?.as_str());
        let Some(uid) = uid else {
            self.follow.release(pod);
            return Err(ProviderError::NotFound);
        };
        match self.pods().delete(&slot, uid, grace.max(LEAST_GRACE)).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // Another pod has the name by now, so the one we mean is gone.
                let taken = matches!(&error, kube::Error::Api(status) if status.code == 409);
                let error = if taken { ProviderError::NotFound } else { from_member(&error) };
                if matches!(error, ProviderError::NotFound) {
                    self.watch.is_gone(&slot, uid);
                }
                Err(error)
            }
        }
    }

    async fn get_pod(&self, key: &PodKey) -> Result<Pod, ProviderError> {
        let slot = match self.slot(key) {
            Ok(slot) => slot,
            // What has no place in the member is not there.
            Err(ProviderError::Rejected { .. }) => return Err(ProviderError::NotFound),
            Err(error) => return Err(error),
        };
        match self.named(key, &slot) {
            Some(pod) => self.shown(key, &pod),
            None => self.absent(key, &slot).await,
        }
    }

    async fn get_pods(&self) -> Result<Vec<Pod>, ProviderError> {
        if !self.watch.has_pods() {
            return Err(ProviderError::unavailable("the member's pods are not listed yet"));
        }
        let pods = self.watch.pods_of(&self.site.settings().name);
        let shown = |pod: &OurPod| Some(self.shown(&key_of(&self.site, pod)?, pod));
        pods.iter().filter_map(shown).collect()
    }
}

impl ClusterProvider {
    pub(super) fn pods(&self) -> MemberPods {
        MemberPods(self.site.member.pods.clone())
    }

    /// The pod as the member should have it, and all that it refers to in its place.
    async fn prepare(&self, pod: &Pod) -> Result<(std::sync::Arc<Space>, MemberPod), ProviderError> {
        let relabelled = relabelled(pod);
        let pod = relabelled.as_ref().unwrap_or(pod);
        let space = self.site.space(pod.key().namespace()).await?;
        let rewritten = match &self.site.host.rewrite {
            Some(rewrite) => rewrite.rewrite(pod, self.site.host.node.as_str()).await?,
            None => None,
        };
        let pod = rewritten.as_ref().unwrap_or(pod);
        let slot = self.slot(pod.key())?;
        self.learned(pod).await;
        let request = Request { anchor: &space.anchor, member_name: Some(&slot.name), service_env: &[] };
        let wanted = translate(pod.json(), &self.site.target(), &request)?;
        self.follow.bring(pod).await?;
        Ok((space, wanted))
    }

    /// When a process begins, pods come quicker than lists of what the member has: a moment's patience is better than an
    /// error on each of them.
    async fn learned(&self, pod: &Pod) {
        let mut room = self.watch.room();
        let known = async {
            loop {
                room.borrow_and_update();
                self.learn();
                let waits = unknown(pod.json(), &self.site.target()).is_some();
                if !waits || room.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(MOMENT, known).await;
    }

    fn stands_for(&self, member: &Value, host_uid: &str) -> bool {
        let target = self.site.target();
        marks::is_ours(member, &target.host, &target.node)
            && marks::label(member, marks::HOST_UID) == Some(host_uid)
    }

    fn tell(&self, pod: &Pod, notices: &[Notice]) {
        for notice in notices {
            self.site.host.events.tell(
                EventType::Warning,
                pod,
                "Translating",
                notice.reason,
                &notice.message,
            );
        }
    }

    /// Finds out what a failed create means.
    async fn not_created(
        &self,
        pod: &Pod,
        space: &Space,
        wanted: &MemberPod,
        error: &kube::Error,
    ) -> Result<(), ProviderError> {
        let kube::Error::Api(status) = error else { return Err(from_member(error)) };
        if status.is_already_exists() {
            let slot = Slot::new(space.namespace.as_str(), wanted.key.name());
            let there = self.pods().get(&slot).await.map_err(|error| from_member(&error))?;
            return self.name_is_taken(pod, &slot, there);
        }
        let message = &status.message;
        if status.is_not_found() || message.contains("being terminated") || message.contains("owner") {
            // The namespace or the anchor is not what we remember: look at it again next time.
            self.site.spaces.doubt(pod.key().namespace());
        }
        if status.is_not_found() {
            return Err(ProviderError::unavailable(message.clone()));
        }
        Err(from_member(error))
    }

    fn name_is_taken(&self, pod: &Pod, slot: &Slot, there: Option<Value>) -> Result<(), ProviderError> {
        let Some(there) = there else {
            return Err(ProviderError::unavailable("a pod of this name is just going away in the member"));
        };
        // The answer to an earlier attempt was lost: it is the very pod we wanted.
        if self.stands_for(&there, pod.uid()) {
            self.watch.note(&there);
            return Ok(());
        }
        let target = self.site.target();
        if marks::is_ours(&there, &target.host, &target.node) {
            self.watch.note(&there);
            return Err(ProviderError::unavailable(
                "an earlier pod of this name is still ending in the member",
            ));
        }
        Err(ProviderError::already_exists(format!(
            "pod {}/{} in the member is not ours; remove or rename it there",
            slot.namespace, slot.name
        )))
    }
}
