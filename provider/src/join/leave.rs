//! Taking away what we made in a member, and then what belongs to it on the host.
//!
//! Each step can be taken again, and says by itself whether it was: whoever leaves may be interrupted at any time.

mod copies;
mod volumes;

pub use self::copies::release;
pub(crate) use self::copies::release_namespace;

use std::{collections::BTreeSet, fmt};

use federlet_node::node::LEAVING_ANNOTATION;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolumeClaim, Pod, Secret, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{FINALIZER, account::Account, node::is_virtual};
use crate::{
    api::Cluster,
    copied::CopiedKind,
    errors::brief,
    marks,
    names::{HostId, MemberName, anchor},
    site::Contents,
};

/// Annotation of a Cluster that is being deleted: nothing of ours is left in its member but, maybe, the account.
const LEFT: &str = "federlet.io/member-left";

/// Why leaving does not go on.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// Because of the host.
    #[error("the host refused: {}", brief(.0))]
    Host(#[source] Box<kube::Error>),
    /// Because of the member.
    #[error("the member refused: {}", brief(.0))]
    Member(#[source] Box<kube::Error>),
}

impl LeaveError {
    fn host(error: kube::Error) -> Self {
        Self::Host(Box::new(error))
    }

    fn member(error: kube::Error) -> Self {
        Self::Member(Box::new(error))
    }
}

/// What is still there of what we made in a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Kinds, and how many of each; only those of which there are any.
    pub counts: Vec<(String, usize)>,
}

impl Remains {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each =
            |(kind, count): &(String, usize)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" });
        f.write_str(&self.counts.iter().map(each).collect::<Vec<_>>().join(", "))
    }
}

/// What becomes of our account in a member that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountFate {
    /// Nobody else has it: it goes.
    Remove,
    /// Others have it, or see to it.
    Stay,
    /// It goes when this Cluster, which is the same member, has left.
    After(String),
}

impl AccountFate {
    /// Of Clusters that are the same member and leave together, the one with the last name stays until the others are gone:
    /// each would leave the account to the rest.
    pub fn of<'a>(cluster: &Cluster, others: impl IntoIterator<Item = &'a Cluster>) -> Self {
        let departs = |other: &Cluster| other.meta().deletion_timestamp.is_some();
        let has_left =
            |other: &Cluster| departs(other) && !other.finalizers().iter().any(|one| one == FINALIZER);
        let same = |other: &&Cluster| !other.spec.id.is_empty() && other.spec.id == cluster.spec.id;
        let siblings: Vec<&Cluster> =
            others.into_iter().filter(same).filter(|other| !has_left(other)).collect();
        let Some(first) = siblings.first() else { return Self::Remove };
        let is_last = siblings.iter().all(|other| other.name_any() < cluster.name_any());
        if is_last && siblings.iter().all(|other| departs(other)) {
            return Self::After(first.name_any());
        }
        Self::Stay
    }

    /// Why a Cluster of which nothing else is left in the member is still there.
    pub fn awaited(&self) -> Option<String> {
        let Self::After(other) = self else { return None };
        Some(format!("waiting until {other}, which is the same member, has left; then its account goes"))
    }
}

/// Goes on with leaving a member: first what we made there, then, if that is its fate, the account. Says what is still
/// there; ask again until nothing remains.
pub async fn leave_member(
    host: &Client,
    member: &Client,
    id: &HostId,
    cluster: &Cluster,
    account: &AccountFate,
) -> Result<Remains, LeaveError> {
    let name = cluster.name_any();
    // A name that cannot be a node's never was one.
    let Ok(node) = MemberName::new(&name) else { return Ok(Remains::default()) };
    let left = cluster.annotations().contains_key(LEFT);
    if !left {
        let copied = CopiedKind::all(cluster);
        let claims =
            list::<PersistentVolumeClaim>(member, &ours(id, &node)).await.map_err(LeaveError::member)?;
        volumes::keep_retained(host, member, &node, &claims).await?;
        let remains = clear(member, id, &node, &copied).await.map_err(LeaveError::member)?;
        if !remains.is_empty() {
            return Ok(remains);
        }
    }
    if *account == AccountFate::Remove {
        // Without the account nobody can look any more, so what was seen is noted first.
        let clusters: Api<Cluster> = Api::all(host.clone());
        let mark = Patch::Merge(json!({ "metadata": { "annotations": { LEFT: "true" } } }));
        gone(clusters.patch(&name, &PatchParams::default(), &mark).await.map(drop))
            .map_err(LeaveError::host)?;
        match Account::of(id).remove(member).await {
            // It is gone already.
            Err(kube::Error::Api(status)) if left && matches!(status.code, 401 | 403) => {}
            answer => answer.map_err(LeaveError::member)?,
        }
    }
    Ok(Remains::default())
}

/// Takes away the node of a Cluster on the host, and lets the Cluster go. Its Secret goes with it. `as_node` ends the pods
/// that are bound to the node: a client that may end no others is enough.
pub async fn leave_host(host: &Client, as_node: &Client, cluster: &Cluster) -> Result<(), LeaveError> {
    let name = cluster.name_any();
    remove_node(host, as_node, &name).await.map_err(LeaveError::host)?;
    if let Ok(node) = MemberName::new(&name) {
        volumes::remove_volumes(host, &node).await.map_err(LeaveError::host)?;
        volumes::give_back_claims(host, &node).await.map_err(LeaveError::host)?;
    }
    let clusters: Api<Cluster> = Api::all(host.clone());
    // Nobody can add one to an object that is being deleted, so what is written here is at most too little.
    let finalizers: Vec<&String> = cluster.finalizers().iter().filter(|other| *other != FINALIZER).collect();
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    gone(clusters.patch(&name, &PatchParams::default(), &patch).await.map(drop)).map_err(LeaveError::host)
}

/// Takes the Node away for good, and with it the host's pods that were bound to it. A machine of the host that has this
/// name stays as it is, and so do its pods.
async fn remove_node(client: &Client, as_node: &Client, name: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get_metadata_opt(name).await?.map(|node| (is_virtual(&node), node.uid()));
    if let Some((ours, uid)) = node {
        if !ours {
            tracing::info!(node = name, "the node is a machine of the host and is left alone");
            return Ok(());
        }
        // A process that still serves it must not register it again. Should another Node have come in its place, we
        // are told of the conflict.
        let mark = json!({ "metadata": { "uid": uid, "annotations": { LEAVING_ANNOTATION: "true" } } });
        gone(nodes.patch(name, &PatchParams::default(), &Patch::Merge(mark)).await.map(drop))?;
        let only_this = Preconditions { uid, resource_version: None };
        gone(nodes.delete(name, &DeleteParams::default().preconditions(only_this)).await.map(drop))?;
    }
    let pods: Api<Pod> = Api::all(client.clone());
    let bound = pods.list_metadata(&ListParams::default().fields(&format!("spec.nodeName={name}"))).await?;
    for pod in bound.items {
        let there: Api<Pod> = Api::namespaced(as_node.clone(), &pod.namespace().unwrap_or_default());
        let only_this = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(only_this);
        match there.delete(&pod.name_any(), &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// That it is not there any more is as good.
fn gone(answer: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        answer => answer,
    }
}

/// Asks the member to take away all that this host made there for this node, and says what is still there.
///
/// Everything that goes along with pods has an anchor for its owner, and the anchors are what is deleted; what policies sent
/// is looked for by its kinds. Namespaces that we made go as a whole, but for those where others have something: from
/// these our marks go. What carries no mark of ours is not touched.
async fn clear(
    member: &Client,
    host: &HostId,
    node: &MemberName,
    copied: &BTreeSet<CopiedKind>,
) -> Result<Remains, kube::Error> {
    let ours = ours(host, node);
    let mut counts = copies::take_back(member, host, node, copied).await?;
    let maps = list::<ConfigMap>(member, &ours).await?;
    let name = anchor(host, node);
    for map in maps.iter().filter(|map| map.name_any() == name) {
        let namespaced: Api<ConfigMap> =
            Api::namespaced(member.clone(), &map.namespace().unwrap_or_default());
        delete(&namespaced, map).await?;
    }
    let mut namespaces = list::<Namespace>(member, &ours).await?;
    // While copies of policies are still going, what they made looks like somebody else's.
    if counts.is_empty() {
        let mut left = vec![];
        for namespace in namespaces {
            if remove_namespace(member, host, node, &namespace).await? {
                left.push(namespace);
            }
        }
        namespaces = left;
    }
    let along = [
        ("Pod", list::<Pod>(member, &ours).await?.len()),
        ("ConfigMap", maps.len()),
        ("Secret", list::<Secret>(member, &ours).await?.len()),
        ("PersistentVolumeClaim", list::<PersistentVolumeClaim>(member, &ours).await?.len()),
        ("Service", list::<Service>(member, &ours).await?.len()),
        ("Namespace", namespaces.len()),
    ];
    let along = along.into_iter().filter(|(_, count)| *count > 0);
    counts.extend(along.map(|(kind, count)| (kind.to_owned(), count)));
    Ok(Remains { counts })
}

fn ours(host: &HostId, node: &MemberName) -> ListParams {
    ListParams::default().labels(&format!("{}={host},{}={node}", marks::HOST, marks::NODE)).limit(500)
}

/// Removes a namespace that we made, or leaves it to those who have something there. Whether it has to go yet.
async fn remove_namespace(
    member: &Client,
    host: &HostId,
    node: &MemberName,
    namespace: &PartialObjectMeta<Namespace>,
) -> Result<bool, kube::Error> {
    let (api, name) = (Api::<Namespace>::all(member.clone()), namespace.name_any());
    if namespace.meta().deletion_timestamp.is_none() {
        let contents = Contents::of(member, &name, host, node).await?;
        if !contents.others().is_empty() {
            let others = contents.others().join(", ");
            tracing::info!(%node, namespace = name, others, "the namespace stays for what others have there");
            let release = Patch::Merge(release_namespace());
            return gone(api.patch_metadata(&name, &PatchParams::default(), &release).await.map(drop))
                .map(|()| false);
        }
    }
    delete(&api, namespace).await.map(|()| true)
}

async fn list<K>(client: &Client, params: &ListParams) -> Result<Vec<PartialObjectMeta<K>>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let (mut found, mut params) = (vec![], params.clone());
    loop {
        let page = api.list_metadata(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Deletes exactly this object, unless it is on its way already.
async fn delete<K>(api: &Api<K>, object: &PartialObjectMeta<K>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
{
    if object.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let only_this = Preconditions { uid: object.uid(), resource_version: None };
    match api.delete(&object.name_any(), &DeleteParams::background().preconditions(only_this)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        answer => answer.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    /// Takes the node `n` away on a host that has such a Node and one pod on it. What the host was asked.
    async fn asked_to_remove(labels: serde_json::Value) -> Vec<String> {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "uid": "u", "labels": labels },
        });
        let pod = json!({ "metadata": { "name": "p", "namespace": "shop", "uid": "p1" } });
        let asked = Arc::new(Mutex::new(vec![]));
        let noted = asked.clone();
        let host = Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let (verb, path) = (request.method().to_string(), request.uri().path().to_owned());
                let body = match &*path {
                    "/api/v1/nodes/n" => node.clone(),
                    "/api/v1/pods" => json!({
                        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                        "metadata": {}, "items": [pod],
                    }),
                    _ => pod.clone(),
                };
                noted.lock().push(format!("{verb} {path}"));
                let answer = Response::new(Body::from(body.to_string().into_bytes()));
                std::future::ready(Ok::<_, std::convert::Infallible>(answer))
            }),
            "default",
        );
        remove_node(&host, &host, "n").await.unwrap();
        asked.lock().clone()
    }

    #[tokio::test]
    async fn a_machine_of_the_host_stays_and_so_do_its_pods() {
        assert_eq!(asked_to_remove(json!({ "type": "worker" })).await, ["GET /api/v1/nodes/n"]);
        assert_eq!(
            asked_to_remove(json!({ "type": "virtual-kubelet" })).await,
            [
                "GET /api/v1/nodes/n",
                "PATCH /api/v1/nodes/n",
                "DELETE /api/v1/nodes/n",
                "GET /api/v1/pods",
                "DELETE /api/v1/namespaces/shop/pods/p",
            ]
        );
    }

    fn cluster(name: &str, id: &str, meta: &serde_json::Value) -> Cluster {
        let mut cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": { "id": id },
        }))
        .unwrap();
        cluster.metadata.name = Some(name.into());
        cluster
    }

    #[test]
    fn the_last_of_those_that_leave_together_takes_the_account_along() {
        let stays = json!({ "finalizers": [FINALIZER] });
        let leaves = json!({ "finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let left = json!({ "finalizers": ["other"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let b = cluster("b", "one", &leaves);
        let after = |name: &str| AccountFate::After(name.into());
        for (others, fate) in [
            (vec![], AccountFate::Remove),
            (vec![cluster("a", "two", &stays), cluster("c", "", &stays)], AccountFate::Remove),
            (vec![cluster("a", "one", &stays)], AccountFate::Stay),
            (vec![cluster("a", "one", &leaves)], after("a")),
            (vec![cluster("c", "one", &leaves)], AccountFate::Stay),
            (vec![cluster("a", "one", &leaves), cluster("c", "one", &leaves)], AccountFate::Stay),
            (vec![cluster("a", "one", &leaves), cluster("a2", "one", &stays)], AccountFate::Stay),
            (vec![cluster("a", "one", &left), cluster("c", "one", &left)], AccountFate::Remove),
        ] {
            assert_eq!(AccountFate::of(&b, &others), fate, "{others:?}");
        }
    }

    #[test]
    fn what_remains_reads_well() {
        assert!(Remains::default().is_empty());
        let some = Remains { counts: vec![("Pod".into(), 1), ("Secret".into(), 2)] };
        assert_eq!(some.to_string(), "1 Pod, 2 Secrets");
    }
}
