//! `spec.federlet`: what Federlet knows about a member beyond what Karmada does.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a member becomes a node. Nothing needs to be said: then it is a whole cluster, with the same namespaces, where
/// pods may do nothing special.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FederletSpec {
    /// Makes it a region: only the nodes with these labels count, written as for `kubectl get nodes -l`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub region_selector: Option<String>,
    /// Where namespaces of the host are in the member: under the same name, or, in a region, with `-` and the name of
    /// the cluster at their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespaceMapping>,
    /// What becomes of the node while the member cannot be reached: a cluster's pods are evicted, a region's are kept,
    /// unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<OfflineMode>,
    /// The most that pods of this host may have, by resource: a share such as `50%`, or a quantity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, IntOrString>,
    /// What pods may do there beyond running. Nothing, unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Allow>,
    /// Where images may come from, such as `registry.example.com` or `quay.io/team`; anywhere if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub registries: Option<Vec<String>>,
    /// Which API server pods talk to: the host's, unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_api: Option<PodApi>,
    /// Which storage class of the member stands for which of the host. One that is not listed keeps its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storage_classes: BTreeMap<String, String>,
    /// Whether the host shows the addresses that pods have in the member. They are hidden, unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_addresses: Option<PodAddressMode>,
}

/// Where namespaces of the host are in the member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.mapping == 'Same' ? !has(self.value) : has(self.value)").message("Suffix and Prefix need a value, and Same has none"))]
pub struct NamespaceMapping {
    /// How.
    pub mapping: MappingKind,
    /// What is added to the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z0-9-]+$"))]
    pub value: Option<String>,
}

/// How a namespace of the member is named after one of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MappingKind {
    /// By the same name.
    #[default]
    Same,
    /// By that name, and something after it.
    Suffix,
    /// By that name, and something before it.
    Prefix,
}

/// What becomes of a node while its member cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OfflineMode {
    /// It is NotReady, and the host moves its pods as it does for any node.
    Evict,
    /// It stays Ready, takes no new pods, and keeps those it has.
    Keep,
}

/// What pods may do in a member beyond running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allow {
    /// Privileged containers.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub privileged: bool,
    /// The machine's network.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub host_network: bool,
    /// The machine's processes.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub host_processes: bool,
    /// The machine's files.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub host_path: bool,
    /// Priority classes that begin with `system-`.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub system_priority: bool,
}

/// Which API server pods talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodApi {
    /// The host's, as on any node of the host.
    Host,
    /// The member's own.
    Member,
    /// None.
    None,
}

/// Whether the host shows the addresses that pods have in the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodAddressMode {
    /// They cannot be reached from the host.
    Hide,
    /// They can.
    Keep,
}
