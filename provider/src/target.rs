//! What must be known of a member to send a pod there.

mod policy;

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::api::core::v1::Taint;
pub use policy::{Policy, Registries};
use serde_json::{Value, json};

use crate::{
    marks,
    names::{HostId, MemberName, MemberNamespace, NamespaceMap, anchor},
    selector::Selector,
    version::Version,
};

/// The key of the taint that every virtual node carries.
pub const TAINT: &str = "virtual-kubelet.io/provider";

/// A member, as far as the pods sent there depend on it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The host that sends them.
    pub host: HostId,
    /// The virtual node, named like the member.
    pub node: MemberName,
    /// The version of the member's API server.
    pub version: Version,
    /// Where namespaces are.
    pub namespaces: NamespaceMap,
    /// Set if only some nodes of the member count.
    pub region: Option<Region>,
    /// What may run there.
    pub policy: Policy,
    /// Which API server the pods talk to.
    pub api: ApiAccess,
    /// Keys of the taints that keep other pods off virtual nodes. Their tolerations stay on the host, or a member
    /// with virtual nodes of its own would pass the pod on. Those of the Cluster are not among them: its machines may
    /// have the same.
    pub taints: BTreeSet<String>,
    /// Addresses of the virtual node. If there are any, they are what pods see as the address of their node; else
    /// they see that of the machine.
    pub addresses: Vec<IpAddr>,
    /// What the member has to offer by name.
    pub offers: Offers,
}

impl Target {
    /// A whole cluster with the same namespaces and nothing special allowed.
    pub fn new(host: HostId, node: MemberName, version: Version, api: ApiAccess) -> Self {
        Self {
            host,
            node,
            version,
            namespaces: NamespaceMap::same(),
            region: None,
            policy: Policy::default(),
            api,
            taints: BTreeSet::from([TAINT.to_owned()]),
            addresses: vec![],
            offers: Offers::default(),
        }
    }

    /// Tolerations for these taints, with which virtual nodes are registered, stay on the host.
    pub fn keep_on_host(&mut self, taints: &[Taint]) {
        self.taints.extend(taints.iter().map(|taint| taint.key.clone()));
    }
}

/// Some nodes of a member.
#[derive(Clone, Debug)]
pub struct Region {
    /// Which nodes.
    pub selector: Selector,
    /// Tolerations for taints that some of these nodes have and others not, as
    /// [`Taints`](crate::capacity::Taints) says. None until the nodes were listed.
    pub tolerations: Option<Vec<Value>>,
}

/// Which API server `KUBERNETES_SERVICE_HOST` and the token in a pod are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAccess {
    /// The host's.
    Host {
        /// A name in its serving certificate, or an address.
        name: String,
        /// The port.
        port: u16,
        /// The address of `name`, if the member's DNS does not know it.
        address: Option<IpAddr>,
    },
    /// The member's own, as its default service account.
    Member,
    /// None: the variables are empty, and clients find that they are not in a cluster.
    None,
}

/// Cluster-scoped things of the member that pods name. Of what was not listed to the end, nothing is known: that is not
/// the same as that there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Names of its priority classes.
    pub priority_classes: Option<BTreeSet<String>>,
    /// Names of its runtime classes.
    pub runtime_classes: Option<BTreeSet<String>>,
}

/// The ConfigMap that owns all that we make in a namespace of the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its name.
    pub name: String,
    /// The UID that the member gave it.
    pub uid: String,
}

impl Anchor {
    /// As the owner of an object. With a controller, nothing in the member takes the object for its own.
    pub fn owner_reference(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": self.name, "uid": self.uid,
            "controller": true, "blockOwnerDeletion": false,
        })
    }

    /// The object to make.
    pub fn manifest(namespace: &MemberNamespace, host: &HostId, node: &MemberName) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "namespace": namespace.as_str(),
                "name": anchor(host, node),
                "labels": { marks::HOST: host.as_str(), marks::NODE: node.as_str() },
            },
        })
    }

    /// The anchor, once the member has made it. None if this is not ours or was never made.
    pub fn read(object: &Value, host: &HostId, node: &MemberName) -> Option<Self> {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        let (name, uid) = (text("name")?, text("uid")?);
        (marks::is_ours(object, host, node) && name == anchor(host, node)).then_some(Self { name, uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_ours_or_none() {
        let ids = |host: &str, node: &str| (HostId::new(host).unwrap(), MemberName::new(node).unwrap());
        let (host, node) = ids("host-1", "member1");
        let namespace = NamespaceMap::same().map("shop").unwrap();
        let mut made = Anchor::manifest(&namespace, &host, &node);
        assert_eq!(Anchor::read(&made, &host, &node), None, "it has no UID yet");
        made["metadata"]["uid"] = "u".into();
        assert_eq!(Anchor::read(&made, &host, &node).unwrap().uid, "u");
        for (host, node) in [ids("host-2", "member1"), ids("host-1", "member2")] {
            assert_eq!(Anchor::read(&made, &host, &node), None);
            assert_ne!(
                Anchor::manifest(&namespace, &host, &node)["metadata"]["name"],
                made["metadata"]["name"]
            );
        }
    }
}
