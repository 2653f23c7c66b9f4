use serde_json::{Value, json};

use super::Context;
use crate::{
    json::{Object, object_mut},
    marks,
    names::MemberPodKey,
    target::Anchor,
    version::Version,
};

/// What API servers write themselves, and what ties an object to others of its own cluster. A finalizer that came
/// along would wait for a controller that is not there.
const HOSTS_OWN: [&str; 11] = [
    "uid",
    "resourceVersion",
    "generation",
    "generateName",
    "selfLink",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "ownerReferences",
    "finalizers",
];

/// Labels that clusters write onto pods when they are bound, from the node: since 1.35 the member has its own.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Annotations by which a kubelet takes a pod for the picture of a static one.
const STATIC_POD: &str = "kubernetes.io/config.";

pub(super) fn member(context: &Context<'_>, key: &MemberPodKey, anchor: &Anchor) -> Object {
    let (host, target) = (context.host, context.target);
    let mut metadata = host.metadata.clone();
    for field in HOSTS_OWN {
        metadata.remove(field);
    }
    metadata.insert("namespace".into(), key.namespace().into());
    metadata.insert("name".into(), key.name().into());
    // With a controller, no ReplicaSet of the member takes the pod for its own, and unjoining is one delete.
    metadata.insert("ownerReferences".into(), json!([anchor.owner_reference()]));
    let labels = object_mut(&mut metadata, "labels");
    labels.remove(marks::WORKLOAD);
    labels.remove(marks::COPY_OF);
    if target.version >= Version::v1(35) {
        TOPOLOGY.iter().for_each(|label| drop(labels.remove(*label)));
    }
    for (label, value) in [
        (marks::HOST, target.host.as_str()),
        (marks::NODE, target.node.as_str()),
        (marks::HOST_UID, host.uid.as_str()),
    ] {
        labels.insert(label.to_owned(), value.into());
    }
    let annotations = object_mut(&mut metadata, "annotations");
    let ours = [
        marks::CONSTRAINTS,
        marks::WORKLOAD,
        marks::POLICY,
        marks::MEMBER_NAME,
        marks::MADE_BY,
        marks::LABELS,
        marks::TOLERATIONS,
    ];
    annotations.retain(|key, _| !ours.contains(&key.as_str()) && !key.starts_with(STATIC_POD));
    annotations.insert(marks::HOST_NAMESPACE.to_owned(), host.key.namespace().into());
    if key.name() == host.key.name() {
        annotations.remove(marks::HOST_NAME);
    } else {
        annotations.insert(marks::HOST_NAME.to_owned(), host.key.name().into());
    }
    annotations.extend(context.annotations.iter().map(|(k, v): (&String, &Value)| (k.clone(), v.clone())));
    metadata
}
