//! Copies that policies sent to a member that is being left.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions},
    core::ApiResource,
};
use serde_json::{Value, json};

use crate::{
    copied::CopiedKind,
    marks,
    names::{HostId, MemberName},
};

/// The labels of a copy.
const LABELS: [&str; 4] = [marks::HOST, marks::NODE, marks::HOST_UID, marks::PROPAGATED];
/// And its annotations.
const ANNOTATIONS: [&str; 3] = [marks::HOST_NAMESPACE, marks::PRESERVED, marks::SENT];

/// A patch that makes an object nobody's: it stays as it is, and we do not know it any more.
#[must_use]
pub fn release() -> Value {
    let none = |keys: &[&str]| {
        keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect::<serde_json::Map<_, _>>()
    };
    json!({ "metadata": { "labels": none(&LABELS), "annotations": none(&ANNOTATIONS) } })
}

/// A patch by which a namespace that we made is ours no more, because something of others is in it. What it stood for
/// stays on it: a namespace of that name on the host may use it again.
#[must_use]
pub(crate) fn release_namespace() -> Value {
    let mut patch = release();
    if let Some(annotations) = patch.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(marks::HOST_NAMESPACE);
    }
    patch
}

/// Takes back what policies sent, but leaves what they want to stay. Kinds, and how many copies of each are still there.
pub(super) async fn take_back(
    member: &Client,
    host: &HostId,
    node: &MemberName,
    copied: &BTreeSet<CopiedKind>,
) -> Result<Vec<(String, usize)>, kube::Error> {
    let ours = format!("{}={host},{}={node},{}", marks::HOST, marks::NODE, marks::PROPAGATED);
    let mut counts = vec![];
    for kind in copied {
        // Namespaces that are ours go as a whole, whoever made them.
        if kind.api_version == "v1" && kind.kind == "Namespace" {
            continue;
        }
        let resource = kind.resource();
        let all: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(member.clone(), &resource);
        let found = match all.list(&ListParams::default().labels(&ours)).await {
            Ok(found) => found.items,
            // Who may not look there any more, or where there is no such kind any more, finds nothing.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                tracing::warn!(%kind, message = status.message, "copies of this kind cannot be looked for");
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut count = 0;
        for copy in found {
            if copy.annotations().contains_key(marks::PRESERVED) {
                keep(member, &resource, &copy, host, node).await?;
            } else {
                count += 1;
                delete(member, &resource, &copy).await?;
            }
        }
        if count > 0 {
            counts.push((kind.kind.clone(), count));
        }
    }
    Ok(counts)
}

fn api(
    member: &Client,
    resource: &ApiResource,
    copy: &PartialObjectMeta<DynamicObject>,
) -> Api<DynamicObject> {
    match copy.namespace() {
        Some(namespace) => Api::namespaced_with(member.clone(), &namespace, resource),
        None => Api::all_with(member.clone(), resource),
    }
}

/// A copy stays, and the namespace that it is in.
async fn keep(
    member: &Client,
    resource: &ApiResource,
    copy: &PartialObjectMeta<DynamicObject>,
    host: &HostId,
    node: &MemberName,
) -> Result<(), kube::Error> {
    // The namespace first: once the copy is nobody's, nothing tells that it must stay.
    if let Some(namespace) = copy.namespace() {
        let namespaces: Api<Namespace> = Api::all(member.clone());
        let there = namespaces.get_opt(&namespace).await?;
        let is_ours = there.is_some_and(|there| {
            let label = |key: &str| there.labels().get(key).map(String::as_str);
            label(marks::HOST) == Some(host.as_str()) && label(marks::NODE) == Some(node.as_str())
        });
        if is_ours {
            let release = Patch::Merge(release_namespace());
            namespaces.patch_metadata(&namespace, &PatchParams::default(), &release).await?;
        }
    }
    let answer = api(member, resource, copy)
        .patch_metadata(&copy.name_any(), &PatchParams::default(), &Patch::Merge(release()))
        .await;
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop),
    }
}

/// Deletes exactly this object, unless it is on its way already.
async fn delete(
    member: &Client,
    resource: &ApiResource,
    copy: &PartialObjectMeta<DynamicObject>,
) -> Result<(), kube::Error> {
    if copy.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let only_this = Preconditions { uid: copy.uid(), resource_version: None };
    // What a workload made goes before it does: pods whose Deployment is gone would look like somebody else's.
    let params = DeleteParams::foreground().preconditions(only_this);
    match api(member, resource, copy).delete(&copy.name_any(), &params).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        answer => answer.map(drop),
    }
}
