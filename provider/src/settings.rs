//! What somebody decided about a member when it joined.

mod labels;
mod read;

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::api::core::v1::Taint;

use crate::{
    capacity::Limits,
    copy::StorageClasses,
    names::{HostId, MemberName, NamespaceMap},
    selector::Selector,
    status::PodAddresses,
    target::{ApiAccess, Policy, Region, Target},
    version::Version,
};

pub use self::{
    labels::{REGION_LABEL, ROLE_CLUSTER, ROLE_REGION, ZONE_LABEL, node_labels},
    read::SettingsError,
};

/// A member as its owner and the host's people want it. Read from a Cluster or from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberSettings {
    /// Its name, and that of its virtual node.
    pub name: MemberName,
    /// Only the nodes that it selects; all if unset.
    pub region: Option<Selector>,
    /// Where namespaces of the host are in the member.
    pub namespaces: NamespaceMap,
    /// What becomes of the node while the member cannot be reached.
    pub offline: Offline,
    /// The most that pods of this host may have.
    pub limits: Limits,
    /// What may run there.
    pub policy: Policy,
    /// Which API server pods talk to.
    pub api: ApiChoice,
    /// Where storage classes of the host are in the member.
    pub storage_classes: StorageClasses,
    /// Whether the host shows the addresses that pods have in the member.
    pub pod_addresses: PodAddresses,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node beside its own.
    pub taints: Vec<Taint>,
}

impl MemberSettings {
    /// A whole cluster, with nothing special.
    pub fn new(name: MemberName) -> Self {
        Self {
            name,
            region: None,
            namespaces: NamespaceMap::same(),
            offline: Offline::Evict,
            limits: Limits::default(),
            policy: Policy::default(),
            api: ApiChoice::Host,
            storage_classes: StorageClasses::default(),
            pod_addresses: PodAddresses::default(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }
}

impl MemberSettings {
    /// What pods sent there depend on. `host_api` is where pods find the host's API server, if they are to talk to it.
    pub fn target(
        &self,
        host: HostId,
        version: Version,
        host_api: Option<ApiAccess>,
        addresses: Vec<IpAddr>,
    ) -> Target {
        let api = match self.api {
            ApiChoice::Host => host_api.unwrap_or(ApiAccess::None),
            ApiChoice::Member => ApiAccess::Member,
            ApiChoice::None => ApiAccess::None,
        };
        let mut target = Target::new(host, self.name.clone(), version, api);
        self.retarget(&mut target);
        target.addresses = addresses;
        target
    }

    /// Carries new settings into what pods sent there depend on.
    pub fn retarget(&self, target: &mut Target) {
        target.namespaces = self.namespaces.clone();
        target.policy = self.policy.clone();
        target.region = self.region.clone().map(|selector| {
            let tolerations = target.region.take().and_then(|region| region.tolerations);
            Region { selector, tolerations }
        });
    }
}

/// What becomes of a node while its member cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offline {
    /// It is NotReady, and the host moves its pods as it does for any node.
    #[default]
    Evict,
    /// It stays Ready, takes no new pods, and keeps those it has: they most likely run.
    Keep,
}

/// Which API server pods talk to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiChoice {
    /// The host's, as on any node of the host.
    #[default]
    Host,
    /// The member's own.
    Member,
    /// None.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_of_a_cluster_may_be_those_of_its_machines_and_are_tolerated_there_too() {
        let taint = |key: &str| Taint { key: key.into(), effect: "NoSchedule".into(), ..Taint::default() };
        let settings = MemberSettings {
            taints: vec![taint("nvidia.com/gpu")],
            ..MemberSettings::new(MemberName::new("gpu").unwrap())
        };
        let mut target = settings.target(HostId::new("host").unwrap(), Version::v1(35), None, vec![]);
        let own = |target: &Target| target.taints.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(own(&target), "virtual-kubelet.io/provider");
        target.keep_on_host(&[taint("example.com/virtual")]);
        settings.retarget(&mut target);
        assert_eq!(own(&target), "example.com/virtual virtual-kubelet.io/provider");
    }
}
