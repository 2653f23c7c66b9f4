//! Labels and annotations by which we know our own.

use serde_json::Value;

use crate::names::{HostId, MemberName};

/// Label: the host that a member object belongs to.
pub const HOST: &str = "federlet.io/host";
/// Label: the virtual node that a member object belongs to.
pub const NODE: &str = "federlet.io/node";
/// Label: the UID of the host object that a member object stands for.
pub const HOST_UID: &str = "federlet.io/host-uid";

/// Annotation: the namespace on the host. On pods and on the namespaces that we make.
pub const HOST_NAMESPACE: &str = "federlet.io/host-namespace";
/// Annotation: the name of the pod on the host, where it is another one.
pub const HOST_NAME: &str = "federlet.io/host-name";
/// Annotation: the service account that the pod has on the host.
pub const SERVICE_ACCOUNT: &str = "federlet.io/service-account";
/// Annotation: the address of the virtual node, for pods that ask for it through the downward API.
pub const NODE_ADDRESS: &str = "federlet.io/node-address";
/// Annotation: all addresses of the virtual node, separated by commas.
pub const NODE_ADDRESSES: &str = "federlet.io/node-addresses";
/// Annotation: the host's labels as the downward API prints them.
pub const DOWNWARD_LABELS: &str = "federlet.io/downward-labels";
/// Annotation: the host's annotations as the downward API prints them.
pub const DOWNWARD_ANNOTATIONS: &str = "federlet.io/downward-annotations";
/// Annotation: what was last asked of the member for this pod. Tells our changes from those of the member's webhooks.
pub const APPLIED: &str = "federlet.io/applied";

/// Annotation: a digest of what was made of this pod for its cluster and cannot change while it runs.
pub const OVERRIDDEN: &str = "federlet.io/overridden";

/// Label and annotation on host pods: the workload that a policy selected. It says nothing in the member.
pub const WORKLOAD: &str = "federlet.io/workload";
/// Annotation on host pods: the policy that steered them. Likewise.
pub const POLICY: &str = "federlet.io/policy";

/// Annotation on host pods: constraints below the cluster, taken off at admission and put back in the member.
pub const CONSTRAINTS: &str = "federlet.io/constraints";

/// Annotation on host pods: what they tolerate, where the placer and not the host drives them out of clusters. In the member
/// it is that again.
pub const TOLERATIONS: &str = "federlet.io/tolerations";

/// Label on host pods: the UID of the pod that this one is a copy of, for one cluster. It says nothing in the member.
pub const COPY_OF: &str = "federlet.io/copy-of";
/// Annotation on copies: the labels that they have in the member only, as JSON.
pub const LABELS: &str = "federlet.io/labels";
/// Annotation on host pods: the name in the member, where it is another one. Copies have that of their pod.
pub const MEMBER_NAME: &str = "federlet.io/member-name";
/// Annotation on copies: who made the pod that they are copies of, as an owner reference.
pub const MADE_BY: &str = "federlet.io/made-by";

/// Annotation on a DaemonSet's pod template: run its pods in the member, though they are meant for machines.
pub const RUN_DAEMONSET: &str = "federlet.io/run-daemonset";

/// Annotation on host Services: `"false"` keeps one on the host.
pub const FOLLOW: &str = "federlet.io/follow";
/// Annotation on host Services: `LoadBalancer` asks for a load balancer in the member, too.
pub const SERVICE_TYPE: &str = "federlet.io/service-type";

/// Label of member objects: a policy sent the copy; it does not go along with pods.
pub const PROPAGATED: &str = "federlet.io/propagated";
/// Annotation of such copies: a digest of what was last sent.
pub const SENT: &str = "federlet.io/sent";
/// Annotation of such copies: they stay when what they were made from goes.
pub const PRESERVED: &str = "federlet.io/preserved";
/// Annotation of a Cluster: the kinds of which copies may be in its member.
pub const COPIED_KINDS: &str = "federlet.io/copied-kinds";
/// Annotation of host workloads: `member` has each member run them by its own controllers.
pub const RUN_BY: &str = "federlet.io/run-by";
/// Label of ClusterRoles, on either side: what they allow, Federlet may do with objects that policies select.
pub const OBJECTS_ROLE: &str = "federlet.io/objects";

/// Whether a policy sent this member object.
pub fn is_propagated(object: &Value) -> bool {
    label(object, PROPAGATED).is_some()
}

/// Whether this member object was made by this host for this virtual node.
pub fn is_ours(object: &Value, host: &HostId, node: &MemberName) -> bool {
    label(object, HOST) == Some(host.as_str()) && label(object, NODE) == Some(node.as_str())
}

/// The value of a label.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// The value of an annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}
