//! Copies of what a pod refers to: ConfigMaps, Secrets and claims.
//!
//! By deny-list, like pods. A copy is ours by its marks and its anchor; whatever has its name and is not ours is never
//! touched.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    json::{Object, is_true, members, object_mut, text},
    marks,
    names::{HostUid, MemberNamespace, NameError},
    references::{Kind, Reference},
    target::{Anchor, Target},
};

/// The type of Secrets that hold the token of a service account.
const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Annotations that are about the host: what its binder and provisioner decided for a claim (`selected-node` would name
/// a node that the member does not have), and a second copy of everything by kubectl.
const HOSTS_ANNOTATIONS: [&str; 4] = [
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "kubectl.kubernetes.io/last-applied",
];

/// Fields of a claim that name volumes, snapshots and classes of the host.
const HOSTS_CLAIM_FIELDS: [&str; 5] =
    ["volumeName", "selector", "dataSource", "dataSourceRef", "volumeAttributesClassName"];

/// Where storage classes of the host are in the member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClasses(BTreeMap<String, String>);

impl StorageClasses {
    /// Pairs of a class on the host and one in the member. A class that is not listed keeps its name.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Whether somebody said where this class is.
    pub fn lists(&self, class: &str) -> bool {
        self.0.contains_key(class)
    }

    fn map<'a>(&'a self, class: &'a str) -> &'a str {
        self.0.get(class).map_or(class, String::as_str)
    }
}

/// Why an object is not copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// It holds the token of a service account, which opens the host to whoever reads it in the member.
    #[error("Secret {0:?} holds a service account's token and does not leave the host")]
    AccountToken(String),
    /// A claim for data that is on the host.
    #[error("claim {0:?} is made from a volume or snapshot of the host")]
    HostData(String),
    /// It has no UID.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// What to do about a copy.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyPlan {
    /// It is as it should be.
    Nothing,
    /// Make it.
    Create,
    /// Replace it, keeping the UID and version that it has.
    Replace(Value),
    /// It cannot be changed: delete it, by this UID, and make it again.
    Recreate {
        /// The UID of what is there.
        uid: String,
    },
    /// Something else has the name.
    Foreign,
}

/// The object that stands for one of the host's in the member.
pub fn copy(
    object: &Value,
    reference: &Reference,
    namespace: &MemberNamespace,
    target: &Target,
    anchor: &Anchor,
    classes: &StorageClasses,
) -> Result<Value, CopyError> {
    let mut copy: Object = members(Some(object))
        .filter(|(field, _)| !["metadata", "status"].contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let kind = match reference.kind {
        Kind::ConfigMap => "ConfigMap",
        Kind::Secret => "Secret",
        Kind::Claim | Kind::EphemeralClaim => "PersistentVolumeClaim",
    };
    if kind == "Secret" && text(object, "type") == Some(ACCOUNT_TOKEN) {
        return Err(CopyError::AccountToken(reference.host.clone()));
    }
    if kind == "PersistentVolumeClaim" {
        claim(object_mut(&mut copy, "spec"), reference, classes)?;
    }
    copy.insert("apiVersion".into(), "v1".into());
    copy.insert("kind".into(), kind.into());
    copy.insert("metadata".into(), metadata(object, &reference.member, namespace, target, anchor)?);
    Ok(Value::Object(copy))
}

fn claim(spec: &mut Object, reference: &Reference, classes: &StorageClasses) -> Result<(), CopyError> {
    let from = |field: &str| spec.get(field).is_some_and(|source| !source.is_null());
    // An empty volume in place of a clone would look like lost data.
    if from("dataSource") || from("dataSourceRef") {
        return Err(CopyError::HostData(reference.host.clone()));
    }
    for field in HOSTS_CLAIM_FIELDS {
        spec.remove(field);
    }
    if let Some(Value::String(class)) = spec.get_mut("storageClassName") {
        *class = classes.map(class).to_owned();
    }
    Ok(())
}

/// What a copy of an object is called, whose it is and who owns it.
pub(crate) fn metadata(
    object: &Value,
    name: &str,
    namespace: &MemberNamespace,
    target: &Target,
    anchor: &Anchor,
) -> Result<Value, CopyError> {
    let host = object.get("metadata").unwrap_or(&Value::Null);
    let uid = HostUid::new(text(host, "uid").unwrap_or_default())?;
    let map = |field: &str| host.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut labels, mut annotations) = (map("labels"), map("annotations"));
    for (label, value) in [
        (marks::HOST, target.host.as_str()),
        (marks::NODE, target.node.as_str()),
        (marks::HOST_UID, uid.as_str()),
    ] {
        labels.insert(label.to_owned(), value.into());
    }
    annotations.retain(|key, _| !HOSTS_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
    annotations.insert(marks::HOST_NAMESPACE.to_owned(), text(host, "namespace").unwrap_or_default().into());
    Ok(json!({
        "namespace": namespace.as_str(),
        "name": name,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [anchor.owner_reference()],
    }))
}

/// Plans how what is in the member becomes the copy that should be. A claim stays as it was made: its volume does.
pub fn plan_copy(desired: &Value, current: Option<&Value>, target: &Target) -> CopyPlan {
    let Some(current) = current else { return CopyPlan::Create };
    if !marks::is_ours(current, &target.host, &target.node) {
        return CopyPlan::Foreign;
    }
    // What a policy sent is the policy's to change; pods use it as it is.
    if text(desired, "kind") == Some("PersistentVolumeClaim") || marks::is_propagated(current) {
        return CopyPlan::Nothing;
    }
    let metadata = |object: &Value, field: &str| {
        object.pointer(&format!("/metadata/{field}")).cloned().unwrap_or_default()
    };
    // What others added in the member stays; what we want must be there.
    let holds = |field: &str| {
        let there = metadata(current, field);
        members(Some(&metadata(desired, field))).all(|(key, value)| there.get(key) == Some(value))
    };
    // The API server writes `Opaque` where a Secret has no type, and leaves empty maps out.
    let content = |object: &Value, field: &str| match object.get(field) {
        Some(Value::Object(map)) if map.is_empty() => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    };
    let kind = |object: &Value| text(object, "type").unwrap_or("Opaque").to_owned();
    let same_content =
        ["data", "binaryData", "stringData"].iter().all(|f| content(desired, f) == content(current, f));
    let frozen = is_true(current.get("immutable"));
    let same_freeze = frozen == is_true(desired.get("immutable"));
    if (frozen && !(same_content && same_freeze)) || kind(desired) != kind(current) {
        let uid = metadata(current, "uid");
        return CopyPlan::Recreate { uid: uid.as_str().unwrap_or_default().to_owned() };
    }
    if same_content && same_freeze && holds("labels") && holds("annotations") {
        return CopyPlan::Nothing;
    }
    let mut replacement = desired.clone();
    keep_theirs(&mut replacement, current);
    CopyPlan::Replace(replacement)
}

/// Keeps what the member and others in it have added to the metadata of a copy.
pub(crate) fn keep_theirs(replacement: &mut Value, current: &Value) {
    let there = |field: &str| current.pointer(&format!("/metadata/{field}")).filter(|value| !value.is_null());
    for field in ["uid", "resourceVersion", "finalizers"] {
        if let Some(value) = there(field) {
            replacement["metadata"][field] = value.clone();
        }
    }
    for field in ["labels", "annotations"] {
        for (key, value) in members(there(field)) {
            if replacement.pointer(&format!("/metadata/{field}")).is_none_or(|ours| ours.get(key).is_none()) {
                replacement["metadata"][field][key] = value.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests;
