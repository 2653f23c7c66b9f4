//! Where the objects of a policy go.

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which clusters, and how many replicas in each. Empty means every cluster that serves the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.clusterAffinity) && has(self.clusterAffinities) && size(self.clusterAffinities) > 0)").message("clusterAffinities cannot co-exist with clusterAffinity"))]
pub struct Placement {
    /// The clusters that may be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Groups of clusters in order of preference: the first group that can take the whole workload gets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    /// Taints of clusters that do not keep the workload away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<Toleration>,
    /// How many clusters, regions, zones, providers or labelled groups to use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread_constraints: Vec<SpreadConstraint>,
    /// How the replicas are shared. Absent means that each cluster runs all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
    /// Workloads to be together with, or apart from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

/// A set of clusters. All parts must agree; an absent part agrees with every cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Labels the cluster must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Provider, region or zone the cluster must be in, or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// The only clusters considered. Empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Clusters that are never chosen, whatever the other parts say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// Requirements on the fields `provider`, `region` and `zone` of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// The requirements, all of which must hold. Operators are `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// One group of clusters in an ordered list of groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    /// Name of the group, unique in the policy.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,
    /// The clusters of the group.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
    /// Further clusters, tier by tier, for the replicas that the group has no room for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overflow_affinities: Vec<OverflowAffinity>,
}

/// One tier of clusters that take what the tiers before had no room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverflowAffinity {
    /// Name of the tier, unique in the policy.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,
    /// The clusters of the tier.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
}

/// How many groups of clusters to use, and what makes a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// The field that makes a group. `cluster` when neither this nor a label is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<SpreadField>,
    /// The label of clusters whose value makes a group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub spread_by_label: String,
    /// Most groups to use. Zero means no limit.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub max_groups: i64,
    /// Fewest groups to use. Zero means one.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub min_groups: i64,
}

/// A field of a cluster that makes groups of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpreadField {
    /// Each cluster is a group.
    Cluster,
    /// Clusters of one region.
    Region,
    /// Clusters of one zone; a cluster with several zones is in several groups.
    Zone,
    /// Clusters of one provider.
    Provider,
}

/// How the replicas of a workload are shared among its clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaScheduling {
    /// All replicas in each cluster, or a part in each.
    #[serde(default)]
    pub replica_scheduling_type: ReplicaSchedulingType,
    /// How parts are made. `Weighted` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// Weights of the clusters. Absent means that all weigh the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<ClusterPreferences>,
}

/// All replicas in each cluster, or a part in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaSchedulingType {
    /// Each cluster runs all replicas.
    Duplicated,
    /// Each cluster runs a part of the replicas.
    #[default]
    Divided,
}

/// How parts of the replicas are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaDivisionPreference {
    /// As few clusters as have room.
    Aggregated,
    /// In proportion to weights.
    #[default]
    Weighted,
}

/// Weights of clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPreferences {
    /// Weights by rule. A cluster weighs as much as its heaviest matching rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_weight_list: Vec<StaticClusterWeight>,
    /// A weight that is measured. Wins over the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeightFactor>,
}

/// The weight of some clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// The clusters.
    pub target_cluster: ClusterAffinity,
    /// Their weight.
    #[schemars(range(min = 1))]
    pub weight: i64,
}

/// What a dynamic weight measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DynamicWeightFactor {
    /// How many more replicas a cluster has room for.
    AvailableReplicas,
}

/// Workloads to be together with, or apart from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.affinity) && has(self.antiAffinity) && self.affinity.groupByLabelKey == self.antiAffinity.groupByLabelKey)").message("affinity and antiAffinity must not use the same groupByLabelKey"))]
pub struct WorkloadAffinity {
    /// Only clusters that all scheduled workloads of the group use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<WorkloadAffinityTerm>,
    /// Only clusters that no scheduled workload of the group uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<WorkloadAffinityTerm>,
}

/// A group of workloads in one namespace: those with the same value of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinityTerm {
    /// The label of the workload whose value names the group.
    #[schemars(length(min = 1))]
    pub group_by_label_key: String,
}
