//! Names of the objects that we make in a member beside the pods.

use super::{
    ids::{HostId, HostUid, MemberName},
    text::{digest, shortened},
};

/// The key under which a token lies in its Secret.
pub const TOKEN_KEY: &str = "token";

/// Room for names of Secrets and the like: the API server takes 253 characters.
const LIMIT: usize = 253;

/// The member's ConfigMap that holds the host's `kube-root-ca.crt`.
///
/// Every namespace of the member has one of that name already, with the member's own certificate. The host is part
/// of the name, since two hosts may share a namespace.
pub fn root_ca(host: &HostId) -> String {
    format!("federlet-root-ca-{}", digest(&[host.as_str()]))
}

/// The member's Secret that holds one token of one pod.
///
/// A pod created again under its old name gets another Secret: a token is bound to the pod it was made for.
pub fn token_secret(pod: &str, uid: &HostUid, audience: Option<&str>, expiration: Option<i64>) -> String {
    let expiration = expiration.map(|seconds| seconds.to_string()).unwrap_or_default();
    // Without an audience it is the API server's own, which is not the same as an audience called "".
    let audience = audience.map(|audience| format!("={audience}")).unwrap_or_default();
    let id = digest(&[uid.as_str(), &audience, &expiration]);
    // Both parts of the name are told apart by their fixed length, whatever the pod is called.
    shortened(&format!("{}-token-{id}", shortened(pod, 200)), LIMIT)
}

/// The claim that Kubernetes makes for a generic ephemeral volume of a pod.
pub fn ephemeral_claim(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// The ConfigMap that owns all that a host makes in a namespace of the member for one virtual node.
///
/// Hosts and regions that share a namespace each have their own: deleting it takes along what is theirs, and no more.
pub fn anchor(host: &HostId, node: &MemberName) -> String {
    shortened(&format!("federlet-{}-{node}", digest(&[host.as_str()])), LIMIT)
}

/// How our account in a member is called, and all that belongs to it. Hosts that share a member each have their own.
pub fn account(host: &HostId) -> String {
    format!("federlet-host-{}", digest(&[host.as_str()]))
}
