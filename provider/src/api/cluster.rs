//! Cluster: a member, where it is and how it is.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition, util::intstr::IntOrString},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FederletSpec;

/// How a member is reached, and where it is.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "cluster.karmada.io",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    status = "ClusterStatus",
    category = "karmada-io",
    derive = "PartialEq",
    doc = "A member cluster.",
    validation = Rule::new("self.metadata.name.size() <= 48").message("the name of a cluster has at most 48 characters"),
    printcolumn(name = "VERSION", type_ = "string", json_path = ".status.kubernetesVersion"),
    printcolumn(name = "MODE", type_ = "string", json_path = ".spec.syncMode"),
    printcolumn(
        name = "READY",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "REGION", type_ = "string", json_path = ".spec.region", priority = 1),
    printcolumn(name = "ZONES", type_ = "string", json_path = ".spec.zones", priority = 1),
    printcolumn(name = "PROVIDER", type_ = "string", json_path = ".spec.provider", priority = 1),
    printcolumn(name = "ENDPOINT", type_ = "string", json_path = ".spec.apiEndpoint", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(oldSelf.id) || oldSelf.id == '' || (has(self.id) && self.id == oldSelf.id)").message("a Cluster stays the cluster that it is: unjoin it, and join the other one"),
    validation = Rule::new("(has(self.federlet) && has(self.federlet.namespaces) ? self.federlet.namespaces.mapping + (has(self.federlet.namespaces.value) ? self.federlet.namespaces.value : '') : (has(self.federlet) && has(self.federlet.regionSelector) ? 'Region' : 'Same')) == (has(oldSelf.federlet) && has(oldSelf.federlet.namespaces) ? oldSelf.federlet.namespaces.mapping + (has(oldSelf.federlet.namespaces.value) ? oldSelf.federlet.namespaces.value : '') : (has(oldSelf.federlet) && has(oldSelf.federlet.regionSelector) ? 'Region' : 'Same'))").message("where namespaces are cannot change while pods may be there: unjoin the Cluster, and join it again")
)]
pub struct ClusterSpec {
    /// What tells this cluster from every other: the UID of its `kube-system` namespace. Filled in when the member is
    /// first reached; a member with another one is refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Who calls whom.
    #[serde(default)]
    pub sync_mode: SyncMode,
    /// Where its API server is: `https://` and a name or an address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = r"^(https://.+)?$"))]
    pub api_endpoint: String,
    /// Where the credentials are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalSecretReference>,
    /// Where the credentials for acting as somebody else are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonator_secret_ref: Option<LocalSecretReference>,
    /// Whether the certificate of the API server is not checked.
    #[serde(default, rename = "insecureSkipTLSVerification", skip_serializing_if = "super::is_false")]
    pub insecure_skip_tls_verification: bool,
    /// The proxy on the way: `http://`, `https://` or `socks5://`.
    #[serde(default, rename = "proxyURL", skip_serializing_if = "String::is_empty")]
    pub proxy_url: String,
    /// Headers for the proxy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_header: BTreeMap<String, String>,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The region it is in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The former way to name its one zone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// The zones it spans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// What keeps workloads away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Sizes of its nodes, in grades.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_models: Vec<ResourceModel>,
    /// How it becomes a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub federlet: Option<FederletSpec>,
}

/// Who calls whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SyncMode {
    /// The host calls the member.
    #[default]
    Push,
    /// The member calls the host.
    Pull,
}

/// A Secret by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalSecretReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// One grade of node sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModel {
    /// Number of the grade.
    pub grade: u32,
    /// The sizes of the grade.
    pub ranges: Vec<ResourceModelRange>,
}

/// The size of one resource: from `min`, below `max`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceModelRange {
    /// The resource.
    pub name: String,
    /// The smallest amount of the grade.
    pub min: IntOrString,
    /// The amount where the next grade begins.
    pub max: IntOrString,
}

/// How a member is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Version of its API server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubernetes_version: String,
    /// The APIs it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_enablements: Vec<ApiEnablement>,
    /// `Ready` and `MemberReachable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How many nodes it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    /// How much room it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// What is being done about its troubles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedy_actions: Vec<String>,
}

/// One API group and version that a member serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiEnablement {
    /// Group and version, such as `apps/v1`.
    pub group_version: String,
    /// Its kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ApiResourceEnablement>,
}

/// One kind that a member serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceEnablement {
    /// Plural name.
    pub name: String,
    /// Kind.
    pub kind: String,
}

/// How many nodes a member has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    /// All of them.
    #[serde(default)]
    pub total_num: i32,
    /// Those that are ready.
    #[serde(default)]
    pub ready_num: i32,
}

/// How much room a member has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    /// What its nodes offer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// What pods that wait for a node ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocating: BTreeMap<String, Quantity>,
    /// What pods that have a node ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
    /// The most that is free on any one node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub largest_free: BTreeMap<String, Quantity>,
    /// How many nodes of each grade there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

/// How many nodes of one grade there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocatableModeling {
    /// Number of the grade.
    pub grade: u32,
    /// Number of nodes.
    pub count: i32,
}

impl ClusterSpec {
    /// The zones the cluster spans: the list, or the one zone of the former field.
    pub fn zones(&self) -> impl Iterator<Item = &str> {
        let former = Some(self.zone.as_str()).filter(|zone| self.zones.is_empty() && !zone.is_empty());
        self.zones.iter().map(String::as_str).chain(former)
    }
}
