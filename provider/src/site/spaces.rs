use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::Arc,
};

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
    follow::claims::is_deleted,
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

    /// The member has this anchor in one of its namespaces. Any other that we remember is gone, and with it goes what is
    /// made as its own: API servers take owners that do not exist, and garbage collectors take what they own.
    pub(crate) fn anchor_is(&self, namespace: &str, uid: &str) {
        self.forget(|space| space.namespace.as_str() == namespace && space.anchor.uid != uid);
    }

    /// This anchor is gone.
    pub(crate) fn anchor_went(&self, uid: &str) {
        self.forget(|space| space.anchor.uid == uid);
    }

    /// These are all the anchors that the member has.
    pub(crate) fn anchors_are(&self, uids: &HashSet<String>) {
        self.forget(|space| !uids.contains(&space.anchor.uid));
    }

    fn forget(&self, wrong: impl Fn(&Space) -> bool) {
        // Whoever is being told of a space now was told before this was known.
        self.known.lock().retain(|_, slot| match slot.try_lock() {
            Ok(slot) => !slot.as_deref().is_some_and(&wrong),
            Err(_) => false,
        });
    }

    /// Of namespaces that the host has no more, nothing is known.
    pub(crate) fn keep_only(&self, existing: &BTreeSet<String>) {
        self.known.lock().retain(|host_namespace, _| existing.contains(host_namespace));
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
        if is_deleted(&there) {
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
        if is_deleted(&there) {
            let message = format!("ConfigMap {name} in namespace {namespace} of the member is being deleted");
            return Err(ProviderError::unavailable(message));
        }
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;
    use crate::names::NamespaceMap;

    fn spaces(anchors: &[(&str, &str)]) -> Spaces {
        let nobody =
            tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let spaces = Spaces::new(Client::new(nobody, "default"));
        for (namespace, uid) in anchors {
            let anchor = Anchor { name: "federlet".into(), uid: (*uid).to_owned() };
            let space = Space { namespace: NamespaceMap::same().map(namespace).unwrap(), anchor };
            let slot = Arc::new(tokio::sync::Mutex::new(Some(Arc::new(space))));
            spaces.known.lock().insert((*namespace).to_owned(), slot);
        }
        spaces
    }

    #[tokio::test]
    async fn an_anchor_that_is_gone_owns_nothing_new() {
        type Told = fn(&Spaces);
        let table: [(Told, &[&str]); 6] = [
            (|spaces| spaces.anchor_is("shop", "a"), &["bank", "shop"]),
            (|spaces| spaces.anchor_is("shop", "other"), &["bank"]),
            (|spaces| spaces.anchor_went("a"), &["bank"]),
            // The one before ours.
            (|spaces| spaces.anchor_went("earlier"), &["bank", "shop"]),
            (|spaces| spaces.anchors_are(&["a".to_owned()].into()), &["shop"]),
            (|spaces| spaces.anchors_are(&HashSet::new()), &[]),
        ];
        for (at, (told, left)) in table.into_iter().enumerate() {
            let spaces = spaces(&[("shop", "a"), ("bank", "b")]);
            told(&spaces);
            let known: BTreeSet<String> = spaces.known.lock().keys().cloned().collect();
            assert_eq!(known.iter().map(String::as_str).collect::<Vec<_>>(), left, "row {at}");
        }
    }
}
