//! What happens when an application or a cluster fails, and what is held back.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Failover of a workload. An absent part is switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// When the application is unhealthy in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
    /// When a cluster fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
}

impl Failover {
    /// Whether pods in a cluster that fails wait for those that come elsewhere, instead of going first.
    #[must_use]
    pub fn waits_in_failed_clusters(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.purge_mode.is_graceful())
    }
}

/// Failover of an application that is unhealthy in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailover {
    /// When to give the cluster up.
    pub decision_conditions: DecisionConditions,
    /// What becomes of the old copy.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// How long the old copy may wait for the new one, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// State that the new copy is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// When to give a cluster up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// How long the application may be unhealthy, in seconds.
    #[serde(default = "DecisionConditions::default_toleration_seconds")]
    #[schemars(range(min = 0))]
    pub toleration_seconds: i32,
}

impl DecisionConditions {
    fn default_toleration_seconds() -> i32 {
        300
    }
}

impl Default for DecisionConditions {
    fn default() -> Self {
        Self { toleration_seconds: Self::default_toleration_seconds() }
    }
}

/// Failover from a cluster that fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailover {
    /// What becomes of the old copy.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self != 'Never'").message("purgeMode Never is for application failover only"))]
    pub purge_mode: PurgeMode,
    /// State that the new copy is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// What becomes of the old copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PurgeMode {
    /// It is removed before there is a new one.
    Directly,
    /// It is removed when the new one is healthy, or after the grace period.
    #[default]
    Gracefully,
    /// It stays until a person removes it.
    Never,
    /// The former name of `Directly`.
    Immediately,
    /// The former name of `Gracefully`.
    Graciously,
}

impl PurgeMode {
    /// Whether the old copy waits for the new one, under the present name or the former.
    #[must_use]
    pub fn is_graceful(self) -> bool {
        matches!(self, Self::Gracefully | Self::Graciously)
    }
}

/// State that the new copy is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservation {
    /// What is read from the old copy, and where it is written on the new one.
    pub rules: Vec<StatePreservationRule>,
}

/// One value read from the old copy's status and written to a label of the new copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservationRule {
    /// The label.
    pub alias_label_name: String,
    /// The path, from `.status` on.
    pub json_path: String,
}

/// What is held back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.dispatching) && self.dispatching && has(self.dispatchingOnClusters) && has(self.dispatchingOnClusters.clusterNames) && size(self.dispatchingOnClusters.clusterNames) > 0)").message("suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames"))]
pub struct Suspension {
    /// Nothing is sent to any cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    /// Nothing is sent to some clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

impl Suspension {
    /// Whether nothing may be sent to this cluster.
    #[must_use]
    pub fn holds_back(&self, cluster: &str) -> bool {
        self.dispatching == Some(true)
            || self
                .dispatching_on_clusters
                .as_ref()
                .is_some_and(|held| held.cluster_names.iter().any(|name| name == cluster))
    }
}

/// Clusters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendClusters {
    /// The names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}
