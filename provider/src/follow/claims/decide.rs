//! What a claim of the host means for the member, without asking anybody.

use serde_json::{Value, json};

use crate::{
    copy::{CopyPlan, StorageClasses},
    json::text,
    marks,
    names::MemberNamespace,
    quantity::Quantity,
    target::Target,
};

/// The provisioner of storage classes whose volumes are in members. Nodes are not asked to attach them.
pub const PROVISIONER: &str = "member.federlet.io";

/// The parameter of such a class that names the class to use in the member. Without it, the member's default is used.
const CLASS_PARAMETER: &str = "storageClassName";

/// Annotations that the host's scheduler and volume binder write.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const WANTED_PROVISIONERS: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

/// The node that the host's scheduler chose for a pod with the claim, if it now waits for us to make the volume.
pub(crate) fn waits_for(claim: &Value) -> Option<&str> {
    let wanted = WANTED_PROVISIONERS.iter().any(|key| marks::annotation(claim, key) == Some(PROVISIONER));
    let bound = claim.get("spec").and_then(|spec| text(spec, "volumeName")).is_some();
    if !wanted || bound || is_deleted(claim) { None } else { marks::annotation(claim, SELECTED_NODE) }
}

/// Whether it waits for this node.
pub(super) fn waits_for_us(claim: &Value, node: &str) -> bool {
    waits_for(claim) == Some(node)
}

/// A patch that asks the host's scheduler to choose again, for a claim whose volume the chosen node will not have. While
/// the choice stands, it looks at no other. The version makes it fall flat if somebody changed the claim meanwhile.
pub(crate) fn choose_again(claim: &Value) -> Value {
    let version = claim.get("metadata").and_then(|metadata| text(metadata, "resourceVersion"));
    json!({ "metadata": { "resourceVersion": version, "annotations": { SELECTED_NODE: null } } })
}

pub(crate) fn is_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// What a volume of the host stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Volume {
    /// There is none yet.
    None,
    /// A claim of this node's member.
    Ours(Claimed),
    /// A claim of another member.
    Elsewhere(String),
    /// Data on the host.
    OnHost,
}

/// The claim of a member that a volume of the host stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) node: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The UID that it has in the member.
    pub(super) uid: String,
}

impl Claimed {
    /// None if it is not a volume of our provisioner.
    pub(crate) fn by(volume: &Value) -> Option<Self> {
        let source = volume.pointer("/spec/csi").filter(|csi| text(csi, "driver") == Some(PROVISIONER))?;
        let attribute = |key: &str| {
            source.get("volumeAttributes").and_then(|all| text(all, key)).unwrap_or_default().to_owned()
        };
        Some(Self {
            node: attribute("node"),
            namespace: attribute("namespace"),
            name: attribute("claim"),
            uid: text(source, "volumeHandle").unwrap_or_default().to_owned(),
        })
    }
}

impl Volume {
    pub(super) fn of(volume: Option<&Value>, node: &str) -> Self {
        let Some(volume) = volume else { return Self::None };
        match Claimed::by(volume) {
            Some(there) if there.node == node => Self::Ours(there),
            Some(there) => Self::Elsewhere(there.node),
            None => Self::OnHost,
        }
    }
}

/// Whether a claim may be made in the member, given where its data is on the host. The error is a reason and a text.
pub(super) fn admit(
    claim: &Value,
    volume: &Volume,
    classes: &StorageClasses,
) -> Result<(), (&'static str, String)> {
    let name = claim.get("metadata").and_then(|metadata| text(metadata, "name")).unwrap_or_default();
    let bound_to = claim.get("spec").and_then(|spec| text(spec, "volumeName")).unwrap_or_default();
    match volume {
        Volume::None | Volume::Ours(_) => Ok(()),
        Volume::Elsewhere(node) => Err((
            "VolumeElsewhere",
            format!(
                "claim {name:?} is bound to volume {bound_to}, whose data is in the cluster of node {node}"
            ),
        )),
        // Whoever maps the class has said that a volume of its own in the member is what is wanted.
        Volume::OnHost if class(claim).is_some_and(|class| classes.lists(class)) => Ok(()),
        Volume::OnHost => Err((
            "VolumeOnHost",
            format!(
                "claim {name:?} is bound to volume {bound_to}, whose data is on the host; the pod would find an empty \
                 volume. Use a storage class of provisioner {PROVISIONER}, or map the claim's class to one of the member"
            ),
        )),
    }
}

/// The storage class that a claim names.
pub(super) fn class(claim: &Value) -> Option<&str> {
    claim.get("spec").and_then(|spec| text(spec, "storageClassName"))
}

/// Sets the member's storage class of a copy. `class` is the host's own, if it is of our provisioner.
pub(super) fn choose_class(copy: &mut Value, claim: &Value, ours: Option<&Value>, classes: &StorageClasses) {
    let Some(ours) = ours else { return };
    if class(claim).is_some_and(|class| classes.lists(class)) {
        return;
    }
    let Some(spec) = copy.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match ours.get("parameters").and_then(|all| text(all, CLASS_PARAMETER)) {
        Some(class) => spec.insert("storageClassName".into(), class.into()),
        None => spec.remove("storageClassName"),
    };
}

/// The volume that stands on the host for a claim of the member. The host's binder binds the claim to it, as it does
/// with those of any provisioner, and its scheduler sends every pod with the claim to where the data is.
pub(super) fn volume(
    claim: &Value,
    class: Option<&Value>,
    there: &Value,
    namespace: &MemberNamespace,
    target: &Target,
) -> Option<Value> {
    let metadata = claim.get("metadata")?;
    let (name, uid) = (text(metadata, "name")?, text(metadata, "uid")?);
    let spec = claim.get("spec")?;
    let node = target.node.as_str();
    let policy = class.and_then(|class| text(class, "reclaimPolicy")).unwrap_or("Delete");
    let mut volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(uid),
            "annotations": { PROVISIONED_BY: PROVISIONER },
        },
        "spec": {
            "capacity": { "storage": spec.pointer("/resources/requests/storage").cloned().unwrap_or_default() },
            "accessModes": spec.get("accessModes").cloned().unwrap_or_default(),
            "volumeMode": spec.get("volumeMode").cloned().unwrap_or_else(|| "Filesystem".into()),
            "persistentVolumeReclaimPolicy": policy,
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": text(metadata, "namespace")?, "name": name, "uid": uid,
            },
            "csi": {
                "driver": PROVISIONER,
                "volumeHandle": there.get("metadata").and_then(|metadata| text(metadata, "uid"))?,
                "volumeAttributes": { "node": node, "namespace": namespace.as_str(), "claim": name },
            },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
            ] }] } },
        },
    });
    // Both classes must be those of the claim, or the host does not bind it.
    for field in ["storageClassName", "volumeAttributesClassName"] {
        if let Some(class) = spec.get(field).filter(|class| class.is_string()) {
            volume["spec"][field] = class.clone();
        }
    }
    Some(volume)
}

/// The name of the volume for a claim, as every provisioner chooses it.
pub(crate) fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

/// Whether the claim of a volume is gone for good and its data is not to be kept.
pub(super) fn is_over(volume: &Value) -> bool {
    let phase = volume.get("status").and_then(|status| text(status, "phase"));
    let policy = volume.get("spec").and_then(|spec| text(spec, "persistentVolumeReclaimPolicy"));
    matches!(phase, Some("Released" | "Failed")) && policy == Some("Delete") && !is_deleted(volume)
}

/// Whether the data of a volume is to be kept when its claim goes.
pub(crate) fn is_retained(volume: &Value) -> bool {
    volume.get("spec").and_then(|spec| text(spec, "persistentVolumeReclaimPolicy")) == Some("Retain")
}

/// The claim of the member without all that makes it ours.
pub(super) fn let_go(there: &Value) -> Value {
    let mut free = there.clone();
    if let Some(metadata) = free.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("ownerReferences");
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|label, _| ![marks::HOST, marks::NODE, marks::HOST_UID].contains(&label.as_str()));
        }
    }
    free
}

/// Whether this is the claim that a volume of the host was made for, and that was let go since: whoever left a member and
/// joined it again finds the data that was to be kept. Only if the volume is known by the host's claim, since that decides
/// later what becomes of the data.
pub(super) fn was_let_go(there: &Value, made: &Claimed, claim: &Value) -> bool {
    let uid =
        |object: &Value| object.get("metadata").and_then(|m| text(m, "uid")).unwrap_or_default().to_owned();
    let bound_to = claim.get("spec").and_then(|spec| text(spec, "volumeName"));
    let marked =
        [marks::HOST, marks::NODE, marks::HOST_UID].iter().any(|mark| marks::label(there, mark).is_some());
    !marked
        && !is_deleted(there)
        && uid(there) == made.uid
        && bound_to == Some(volume_name(&uid(claim)).as_str())
}

/// Such a claim with our marks and our owner again. The rest stays as it is.
pub(super) fn take_again(there: &Value, desired: &Value) -> Value {
    let mut ours = there.clone();
    for (field, marks) in [
        ("labels", &[marks::HOST, marks::NODE, marks::HOST_UID][..]),
        ("annotations", &[marks::HOST_NAMESPACE]),
    ] {
        for mark in marks {
            ours["metadata"][field][*mark] = desired["metadata"][field][*mark].clone();
        }
    }
    ours["metadata"]["ownerReferences"] = desired["metadata"]["ownerReferences"].clone();
    ours
}

/// Plans how what is in the member becomes the claim that should be. It can only grow.
pub(super) fn plan(desired: &Value, current: Option<&Value>, target: &Target) -> CopyPlan {
    let Some(current) = current else { return CopyPlan::Create };
    if !marks::is_ours(current, &target.host, &target.node) {
        return CopyPlan::Foreign;
    }
    match (requested(desired), requested(current)) {
        (Some(more), Some(now)) if more > now => {
            let mut grown = current.clone();
            grown["spec"]["resources"]["requests"]["storage"] =
                desired["spec"]["resources"]["requests"]["storage"].clone();
            CopyPlan::Replace(grown)
        }
        _ => CopyPlan::Nothing,
    }
}

fn requested(claim: &Value) -> Option<Quantity> {
    claim.pointer("/spec/resources/requests/storage")?.as_str()?.parse().ok()
}

/// The size that the claim has in the member, if the host's volume shows less.
pub(super) fn grown(there: &Value, volume: &Value) -> Option<Value> {
    let size = |object: &Value, at: &str| object.pointer(at)?.as_str()?.parse::<Quantity>().ok();
    let now = size(there, "/status/capacity/storage")?;
    (now > size(volume, "/spec/capacity/storage")?).then(|| there["status"]["capacity"]["storage"].clone())
}

/// Whether an ephemeral claim belongs to a pod of this UID.
pub(super) fn is_of_pod(claim: &Value, uid: &str) -> bool {
    let owners = claim.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners
        .into_iter()
        .flatten()
        .any(|owner| text(owner, "kind") == Some("Pod") && text(owner, "uid") == Some(uid))
}

/// The storage class that an installation offers: volumes in whichever member its pods go to.
pub fn storage_class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": name },
        "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
        "reclaimPolicy": "Delete",
        // Nobody would make the volume for a pod on one of the host's own machines.
        "allowedTopologies": [{ "matchLabelExpressions": [{ "key": "type", "values": ["virtual-kubelet"] }] }],
    })
}

/// What tells the host that volumes of our provisioner need not be attached to a node.
pub fn csi_driver() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": PROVISIONER },
        "spec": { "attachRequired": false, "podInfoOnMount": false },
    })
}

#[cfg(test)]
mod tests;
