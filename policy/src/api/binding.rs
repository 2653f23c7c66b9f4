//! ResourceBinding and ClusterResourceBinding: what was decided for an object, and what became of it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, Toleration},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ConflictResolution, Failover, Placement, Suspension};

/// What was decided for one object.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.karmada.io",
    version = "v1alpha2",
    kind = "ResourceBinding",
    plural = "resourcebindings",
    namespaced,
    status = "ResourceBindingStatus",
    shortname = "rb",
    category = "karmada-io",
    derive = "PartialEq",
    // Budgets ask whoever controls a pod how many there should be: the pods of this one are copies.
    scale(spec_replicas_path = ".spec.copies", status_replicas_path = ".status.copies"),
    doc = "Records for one object which clusters it goes to, and how it is there.",
    printcolumn(
        name = "SCHEDULED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Scheduled\")].status"
    ),
    printcolumn(
        name = "FULLYAPPLIED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"FullyApplied\")].status"
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingSpec {
    /// The object.
    pub resource: ObjectReference,
    /// Whether what the object refers to goes with it.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub propagate_deps: bool,
    /// What one replica needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ReplicaRequirements>,
    /// How many replicas the object asks for.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub replicas: i32,
    /// The clusters that were chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
    /// How many copies of pods there should be in all these clusters, where each pod has one in several.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub copies: i32,
    /// The number in the name of the first of these pods, where names are numbered and do not begin with zero.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub first_ordinal: i32,
    /// Whether an autoscaler counts the pods: then copies do not have their labels, or it would count them, too.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub autoscaled: bool,
    /// The placement that the choice follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Clusters that the object is leaving.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
    /// Clusters that the object left because it was not healthy there. It goes back when its pods are made from another
    /// template, or when a person asks for a fresh decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_clusters: Vec<LeftCluster>,
    /// Bindings whose objects refer to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_by: Vec<BindingSnapshot>,
    /// The scheduler of the pods.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// What happens on failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// What happens when a cluster already has an object of that name that is not ours.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// When a person last asked for a fresh decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule_triggered_at: Option<Time>,
    /// What is held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<BindingSuspension>,
    /// Whether the copies stay when the object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// The priority that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriorityValue>,
}

impl ResourceBindingSpec {
    /// Clusters that the object is leaving or has left.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        let leaving = self.graceful_eviction_tasks.iter().map(|task| task.from_cluster.as_str());
        leaving.chain(self.left_clusters.iter().map(|left| left.name.as_str()))
    }
}

/// The same words for objects without a namespace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.karmada.io",
    version = "v1alpha2",
    kind = "ClusterResourceBinding",
    plural = "clusterresourcebindings",
    status = "ResourceBindingStatus",
    shortname = "crb",
    category = "karmada-io",
    derive = "PartialEq",
    doc = "Records for one object without a namespace which clusters it goes to, and how it is there.",
    printcolumn(
        name = "SCHEDULED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Scheduled\")].status"
    ),
    printcolumn(
        name = "FULLYAPPLIED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"FullyApplied\")].status"
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(transparent)]
pub struct ClusterResourceBindingSpec(pub ResourceBindingSpec);

/// Points at one object of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for objects that have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Resource version that was looked at.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// What one replica needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRequirements {
    /// The nodes it may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaim>,
    /// The resources it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its priority class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
}

impl ReplicaRequirements {
    /// Its priority class, if it has one.
    #[must_use]
    pub fn class(&self) -> Option<String> {
        Some(self.priority_class_name.clone()).filter(|class| !class.is_empty())
    }
}

/// The nodes that a replica may run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaim {
    /// Required node affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_node_affinity: Option<NodeSelector>,
    /// Required node labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerated node taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// A chosen cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetCluster {
    /// Its name.
    pub name: String,
    /// Its replicas; zero for objects that have none.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub replicas: i32,
}

/// A cluster that the object is leaving.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GracefulEvictionTask {
    /// Name of the cluster.
    pub from_cluster: String,
    /// What becomes of the old copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<super::PurgeMode>,
    /// How many replicas leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Why, in one word.
    #[schemars(length(min = 1, max = 32))]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Who decided it.
    pub producer: String,
    /// How long the old copy may wait for the new one, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// Whether the old copy stays until a person removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_deletion: Option<bool>,
    /// State that the new copy is told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preserved_label_state: BTreeMap<String, String>,
    /// When it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// The clusters the object was in when it was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters_before_failover: Vec<String>,
}

impl GracefulEvictionTask {
    /// Whether what is in the old cluster stays while the task is there.
    #[must_use]
    pub fn keeps_old(&self) -> bool {
        match self.suppress_deletion {
            Some(suppressed) => suppressed,
            None => self.purge_mode.unwrap_or_default().is_graceful(),
        }
    }
}

/// A cluster that the object left because it was not healthy there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftCluster {
    /// Name of the cluster.
    pub name: String,
    /// The templates that its pods had then, by their hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
    /// When.
    pub since: Time,
}

/// A binding whose object refers to this one, with its clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingSnapshot {
    /// Namespace of the binding.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the binding.
    pub name: String,
    /// Its clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
}

/// What is held back for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingSuspension {
    /// Nothing is decided anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<bool>,
    /// Nothing is sent.
    #[serde(flatten)]
    pub dispatching: Suspension,
}

/// A priority as a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriorityValue {
    /// The number.
    #[serde(default)]
    pub priority: i32,
}

/// What became of the decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingStatus {
    /// The generation that was decided on.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub scheduler_observed_generation: i64,
    /// The affinity group that was used.
    #[serde(default, rename = "schedulerObservingAffinityName", skip_serializing_if = "String::is_empty")]
    pub scheduler_observed_affinity_name: String,
    /// When it was last decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled_time: Option<Time>,
    /// `Scheduled` and `FullyApplied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How the object is in each cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

/// How the object is in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    /// The cluster.
    pub cluster_name: String,
    /// The status there, as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::any_object")]
    pub status: Option<Value>,
    /// Whether the object was applied there.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub applied: bool,
    /// Why not, if not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_message: String,
    /// Whether it works there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ResourceHealth>,
}

/// Whether an object works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResourceHealth {
    /// It does.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Nobody can tell.
    #[default]
    Unknown,
}
