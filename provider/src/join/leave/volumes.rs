//! Volumes of the host that stand for claims of a member that is being left, and claims that wait for one there.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams,
        Preconditions,
    },
};
use serde_json::{Value, json};

use super::LeaveError;
use crate::{
    follow::claims::{Claimed, choose_again, is_deleted, is_retained, volume_name, waits_for},
    json::text,
    marks,
    names::MemberName,
};

/// How often to begin again when somebody else is quicker.
const ATTEMPTS: usize = 4;

/// The volumes of the host whose data is in this member.
async fn volumes(host: &Client, node: &MemberName) -> Result<Vec<Value>, kube::Error> {
    list(&all(host), |volume| is_of(volume, node)).await
}

async fn list(api: &Api<DynamicObject>, which: impl Fn(&Value) -> bool) -> Result<Vec<Value>, kube::Error> {
    let (mut found, mut params) = (vec![], ListParams::default().limit(500));
    loop {
        let page = api.list(&params).await?;
        let json = page.items.into_iter().map(|object| serde_json::to_value(object).unwrap_or_default());
        found.extend(json.filter(&which));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn all(host: &Client) -> Api<DynamicObject> {
    Api::all_with(host.clone(), &ApiResource::erase::<PersistentVolume>(&()))
}

fn is_of(volume: &Value, node: &MemberName) -> bool {
    Claimed::by(volume).is_some_and(|there| there.node == node.as_str())
}

fn name(object: &Value) -> Option<&str> {
    text(object.get("metadata")?, "name")
}

/// Whether the volume has nothing to stand for once its member has left. One whose data is to be kept stays, for
/// whoever looks for the data.
fn is_pointless(volume: &Value) -> bool {
    !is_retained(volume) && !is_deleted(volume)
}

/// A patch that makes a claim of the member its own. It names the UID, so it can only land on that claim.
fn let_go(uid: &str) -> Value {
    let labels = [marks::HOST, marks::NODE, marks::HOST_UID].map(|label| (label.to_owned(), Value::Null));
    let labels = serde_json::Map::from_iter(labels);
    json!({ "metadata": { "uid": uid, "labels": labels, "ownerReferences": null } })
}

/// Lets claims of the member go whose data is to be kept, before all that is ours is deleted there.
pub(super) async fn keep_retained(
    host: &Client,
    member: &Client,
    node: &MemberName,
    claims: &[PartialObjectMeta<PersistentVolumeClaim>],
) -> Result<(), LeaveError> {
    if claims.is_empty() {
        return Ok(());
    }
    let volumes = volumes(host, node).await.map_err(LeaveError::host)?;
    let kept: BTreeSet<&str> = volumes.iter().filter(|volume| is_retained(volume)).filter_map(name).collect();
    for claim in claims {
        let stands_for = claim.labels().get(marks::HOST_UID).map(|uid| volume_name(uid));
        let (Some(volume), Some(uid)) = (stands_for, claim.uid()) else { continue };
        if !kept.contains(volume.as_str()) || claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(member.clone(), &namespace);
        let patch = Patch::Merge(let_go(&uid));
        match api.patch_metadata(&claim.name_any(), &PatchParams::default(), &patch).await {
            // It went meanwhile, or is another one.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            answer => drop(answer.map_err(LeaveError::member)?),
        }
        tracing::info!(%node, namespace, claim = claim.name_any(), "its data is to be kept: the claim stays in the member");
    }
    Ok(())
}

/// Takes away the volumes of the host whose data nobody is to keep: nobody will reclaim them any more. One that a claim
/// is still bound to goes when the claim does.
pub(super) async fn remove_volumes(host: &Client, node: &MemberName) -> Result<(), kube::Error> {
    let found = match volumes(host, node).await {
        // Who may not see volumes made none.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::warn!(%node, message = status.message, "volumes of the node cannot be looked for");
            return Ok(());
        }
        found => found?,
    };
    let api = all(host);
    for volume in found.iter().filter(|volume| is_pointless(volume)) {
        let Some(name) = name(volume) else { continue };
        let uid = text(&volume["metadata"], "uid").map(str::to_owned);
        let params = DeleteParams::default().preconditions(Preconditions { uid, resource_version: None });
        match api.delete(name, &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// Lets the host's scheduler choose again for claims that wait for a volume in the member: it would look at no other node.
pub(super) async fn give_back_claims(host: &Client, node: &MemberName) -> Result<(), kube::Error> {
    let claims: Api<DynamicObject> =
        Api::all_with(host.clone(), &ApiResource::erase::<PersistentVolumeClaim>(&()));
    for _ in 0..ATTEMPTS {
        let waiting = match list(&claims, |claim| waits_for(claim) == Some(node.as_str())).await {
            // Who may not see claims made volumes for none.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::warn!(%node, message = status.message, "claims that wait for the node cannot be looked for");
                return Ok(());
            }
            waiting => waiting?,
        };
        if waiting.is_empty() {
            return Ok(());
        }
        for claim in &waiting {
            let Some(name) = name(claim) else { continue };
            let namespace = text(&claim["metadata"], "namespace").unwrap_or_default();
            let api: Api<PersistentVolumeClaim> = Api::namespaced(host.clone(), namespace);
            match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(choose_again(claim))).await
            {
                // It went or changed meanwhile.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                answer => drop(answer?),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_volumes_of_the_member_that_keep_nothing_go() {
        let node = MemberName::new("m").unwrap();
        let volume = |driver: &str, node: &str, policy: &str| {
            json!({"metadata": {"name": "v"}, "spec": {
                "csi": {"driver": driver, "volumeHandle": "u", "volumeAttributes": {"node": node}},
                "persistentVolumeReclaimPolicy": policy,
            }})
        };
        let ours = "member.federlet.io";
        for (volume, of, goes) in [
            (volume(ours, "m", "Delete"), true, true),
            (volume(ours, "m", "Retain"), true, false),
            (volume(ours, "m2", "Delete"), false, true),
            (volume("ebs.csi.aws.com", "m", "Delete"), false, true),
            (json!({"metadata": {"name": "v"}, "spec": {"nfs": {}}}), false, true),
        ] {
            assert_eq!((is_of(&volume, &node), is_pointless(&volume)), (of, goes), "{volume}");
        }
        let mut going = volume(ours, "m", "Delete");
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(!is_pointless(&going));
    }
}
