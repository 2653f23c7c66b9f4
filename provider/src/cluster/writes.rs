//! Writes to the member's pods. JSON in, JSON out: a typed struct would drop what it does not know.

use std::time::Duration;

use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
};
use serde_json::Value;

use crate::{names::MemberPodKey, watch::Slot};

/// What we do to pods in the member, and no more.
#[derive(Clone)]
pub(super) struct MemberPods(pub(super) Client);

impl MemberPods {
    fn request(namespace: &str) -> Request {
        Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
    }

    pub(super) async fn create(&self, key: &MemberPodKey, pod: &Value) -> Result<Value, kube::Error> {
        let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
        let request = Self::request(key.namespace()).create(&PostParams::default(), body);
        self.0.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// The pod as the API server has it this moment; none is a definite answer.
    pub(super) async fn get(&self, slot: &Slot) -> Result<Option<Value>, kube::Error> {
        let request = Self::request(&slot.namespace).get(&slot.name, &Default::default());
        match self.0.request(request.map_err(kube::Error::BuildRequest)?).await {
            Ok(pod) => Ok(Some(pod)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Patches a pod or one of its subresources. The patch names the UID, so it can only land on that pod.
    pub(super) async fn patch(
        &self,
        slot: &Slot,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let requests = Self::request(&slot.namespace);
        let request = match subresource {
            Some(part) => requests.patch_subresource(part, &slot.name, &params, &patch),
            None => requests.patch(&slot.name, &params, &patch),
        };
        self.0.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// Begins to end exactly this pod.
    pub(super) async fn delete(&self, slot: &Slot, uid: &str, grace: Duration) -> Result<(), kube::Error> {
        let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let params = DeleteParams::default().grace_period(seconds).preconditions(only_this);
        let request = Self::request(&slot.namespace).delete(&slot.name, &params);
        self.0.request::<Value>(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
    }
}
