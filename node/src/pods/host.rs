use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as TypedPod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject},
};
use serde_json::Value;

use crate::{
    client::{HostError, answered},
    contract::{NodeName, Pod, PodId, PodKey},
};

/// What we do to pods on the host, and no more.
#[derive(Clone)]
pub(crate) struct Host {
    client: Client,
}

/// What the host made of a write.
pub(crate) enum Written {
    /// The pod as it is now.
    Now(Box<Pod>),
    /// There is no such pod any more.
    Gone,
    /// There is another of that name, or somebody was quicker.
    Conflict,
    /// The host calls what we wrote invalid, or forbids it.
    Refused(String),
}

impl Host {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Whether the host has exactly this pod on this node, as it is now and not as a cache has it.
    ///
    /// Asked for by name, a node is refused once the pod is gone: the host's Node authorizer knows of nothing any more
    /// that connects the two. A list of the node's own pods it may always have.
    pub(crate) async fn has(&self, node: &NodeName, id: &PodId) -> Result<bool, HostError> {
        let key = id.key();
        let fields = format!("spec.nodeName={node},metadata.name={}", key.name());
        let (pods, params) = (self.pods(key.namespace()), ListParams::default().fields(&fields));
        let found = answered(pods.list_metadata(&params)).await??;
        Ok(found.items.iter().any(|pod| pod.metadata.uid.as_deref() == Some(id.uid())))
    }

    fn pods(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<TypedPod>(&()))
    }

    /// The pod as the API server has it this moment, not as a cache does.
    pub(crate) async fn get(&self, key: &PodKey) -> Result<Option<Pod>, HostError> {
        let found = answered(self.pods(key.namespace()).get_opt(key.name())).await??;
        Ok(found.and_then(whole))
    }

    /// Writes a status. The patch names the UID, so it cannot land on another pod.
    pub(crate) async fn patch_status(&self, key: &PodKey, patch: &Value) -> Result<Written, HostError> {
        let params = PatchParams::default();
        let (pods, patch) = (self.pods(key.namespace()), Patch::Strategic(patch));
        let answer = answered(pods.patch_status(key.name(), &params, &patch)).await?;
        written(answer.map(whole))
    }

    /// Asks for the end of a pod, or takes its object away when the grace is zero.
    pub(crate) async fn delete(&self, id: &PodId, grace: Duration) -> Result<Written, HostError> {
        let only_this = Preconditions { uid: Some(id.uid().to_owned()), resource_version: None };
        let seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
        let params = DeleteParams::default().grace_period(seconds).preconditions(only_this);
        let answer = answered(self.pods(id.key().namespace()).delete(id.key().name(), &params)).await?;
        written(answer.map(|outcome| outcome.left().and_then(whole)))
    }
}

fn written(answer: Result<Option<Pod>, kube::Error>) -> Result<Written, HostError> {
    match answer {
        Ok(Some(pod)) => Ok(Written::Now(Box::new(pod))),
        Ok(None) => Ok(Written::Gone),
        Err(kube::Error::Api(status)) => match status.code {
            404 => Ok(Written::Gone),
            409 => Ok(Written::Conflict),
            // Bad Request, too: what the API server cannot even read will not get better by repeating it. Nor will what an
            // admission policy forbids, though that may be a right that comes back.
            400 | 403 | 422 => Ok(Written::Refused(status.message.clone())),
            _ => Err(kube::Error::Api(status).into()),
        },
        Err(error) => Err(error.into()),
    }
}

fn whole(object: DynamicObject) -> Option<Pod> {
    let mut json = serde_json::to_value(object).ok()?;
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Pod::try_from(json).ok()
}
