use std::{collections::HashMap, fmt, sync::Arc};

use federlet_node::contract::ProviderError;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    errors::from_member,
    marks,
    names::{Claim, MemberNamespace, anchor},
    target::{Anchor, Target},
};

/// A namespace of the member that we may use, and the owner of all that we make in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// The namespace.
    pub namespace: MemberNamespace,
    /// The owner.
    pub anchor: Anchor,
}

/// The namespaces of the member that pods of this node are in, each made when the first pod needs it.
pub struct Spaces {
    client: Client,
    /// By the host's namespace.
    known: Mutex<HashMap<String, Known>>,
}

/// A space, once it is made. The lock makes those who ask at the same time wait for one answer.
type Known = Arc<tokio::sync::Mutex<Option<Arc<Space>>>>;

impl Spaces {
    /// The namespaces of a member. None is known yet.
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// The place of a namespace of the host, made if it is not there.
    pub async fn get(&self, host_namespace: &str, target: &Target) -> Result<Arc<Space>, ProviderError> {
        let slot = self.known.lock().entry(host_namespace.to_owned()).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(space) = &*slot {
            return Ok(space.clone());
        }
        let space = Arc::new(self.make(host_namespace, target).await?);
        *slot = Some(space.clone());
        Ok(space)
    }

    /// What we know of a namespace may be wrong: the member said that it, or the anchor in it, is gone.
    pub fn doubt(&self, host_namespace: &str) {
        self.known.lock().remove(host_namespace);
    }

    async fn make(&self, host_namespace: &str, target: &Target) -> Result<Space, ProviderError> {
        let refused = |error: crate::names::MappingError| {
            ProviderError::rejected("NamespaceNotAllowed", error.to_string())
        };
        let namespace = target.namespaces.map(host_namespace).map_err(refused)?;
        let manifest =
            target.namespaces.manifest(host_namespace, &target.host, &target.node).map_err(refused)?;
        let namespaces: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Namespace>(&()));
        let there = get_or_create(&namespaces, namespace.as_str(), &manifest).await?;
        if there.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
            return Err(ProviderError::rejected(
                "NamespaceTerminating",
                format!("namespace {namespace} of the member is being deleted"),
            ));
        }
        if let Claim::Foreign(why) =
            target.namespaces.claim(Some(&there), host_namespace, &target.host, &target.node)
        {
            return Err(ProviderError::already_exists(format!(
                "namespace {namespace} of the member cannot be used: {why}"
            )));
        }
        let anchor = self.anchor(&namespace, target).await?;
        Ok(Space { namespace, anchor })
    }

    async fn anchor(&self, namespace: &MemberNamespace, target: &Target) -> Result<Anchor, ProviderError> {
        let manifest = Anchor::manifest(namespace, &target.host, &target.node);
        let maps: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            namespace.as_str(),
            &ApiResource::erase::<ConfigMap>(&()),
        );
        let name = anchor(&target.host, &target.node);
        let there = get_or_create(&maps, &name, &manifest).await?;
        Anchor::read(&there, &target.host, &target.node).ok_or_else(|| {
            ProviderError::already_exists(format!(
                "ConfigMap {name} in namespace {namespace} of the member is not ours: it lacks the labels {} and {}",
                marks::HOST,
                marks::NODE
            ))
        })
    }
}

/// The object of this name, made from the manifest if there is none. Somebody else may be quicker.
async fn get_or_create(
    api: &Api<DynamicObject>,
    name: &str,
    manifest: &Value,
) -> Result<Value, ProviderError> {
    let json = |object: DynamicObject| serde_json::to_value(object).unwrap_or_default();
    if let Some(there) = api.get_opt(name).await.map_err(|e| from_member(&e))? {
        return Ok(json(there));
    }
    let object: DynamicObject = serde_json::from_value(manifest.clone())
        .map_err(|error| ProviderError::invalid(format!("cannot make {name}: {error}")))?;
    match api.create(&PostParams::default(), &object).await {
        Ok(made) => Ok(json(made)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            api.get(name).await.map(json).map_err(|e| from_member(&e))
        }
        Err(error) => Err(from_member(&error)),
    }
}

impl fmt::Debug for Spaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spaces").field("known", &self.known.lock().len()).finish_non_exhaustive()
    }
}
