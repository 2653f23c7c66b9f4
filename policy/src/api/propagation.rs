//! PropagationPolicy and ClusterPropagationPolicy: which objects go where.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Failover, Placement, ResourceSelector, Suspension};

/// Which objects go where, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "PropagationPolicy",
    plural = "propagationpolicies",
    namespaced,
    status = "PropagationStatus",
    shortname = "pp",
    category = "karmada-io",
    derive = "PartialEq",
    doc = "Sends objects of its namespace to clusters.",
    printcolumn(name = "CONFLICT-RESOLUTION", type_ = "string", json_path = ".spec.conflictResolution"),
    printcolumn(name = "PRIORITY", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.failover) || !has(self.failover.application) || (has(self.propagateDeps) && self.propagateDeps)").message("application failover is set, propagateDeps must be true"))]
pub struct PropagationSpec {
    /// The objects. At least one selector: a policy never means everything.
    #[schemars(length(min = 1))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Has no effect; kept because manifests have it. `propagateDeps` is the word for it.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub association: bool,
    /// Whether what an object refers to (ConfigMaps, Secrets, claims, accounts) goes with it.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub propagate_deps: bool,
    /// The clusters.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub placement: Placement,
    /// The higher one wins among policies that match the same object.
    #[serde(default)]
    pub priority: i32,
    /// Whether objects are taken over from policies of lower priority.
    #[serde(default)]
    pub preemption: Preemption,
    /// Override policies that must exist before this one takes effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependent_overrides: Vec<String>,
    /// The scheduler of the pods. It cannot be changed later.
    #[serde(default = "PropagationSpec::default_scheduler_name")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the schedulerName should not be updated"))]
    pub scheduler_name: String,
    /// What happens on failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// What happens when a cluster already has an object of that name that is not ours.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// When a change of the policy takes effect. Absent means at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_preference: Option<ActivationPreference>,
    /// What is held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Whether the copies stay when the object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Where the priority of the workload comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
}

impl PropagationSpec {
    /// The scheduler when a policy names none.
    pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

    fn default_scheduler_name() -> String {
        Self::DEFAULT_SCHEDULER.to_owned()
    }
}

/// The same words for objects of every namespace and of none.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "ClusterPropagationPolicy",
    plural = "clusterpropagationpolicies",
    status = "PropagationStatus",
    shortname = "cpp",
    category = "karmada-io",
    derive = "PartialEq",
    doc = "Sends objects of any namespace, or of none, to clusters.",
    printcolumn(name = "CONFLICT-RESOLUTION", type_ = "string", json_path = ".spec.conflictResolution"),
    printcolumn(name = "PRIORITY", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(transparent)]
pub struct ClusterPropagationSpec(pub PropagationSpec);

/// What hinders a policy. Karmada's policies have no status; nobody who writes policies has to know of this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationStatus {
    /// `ObjectsReadable`: `False` while the host does not let Federlet read a kind that the policy selects, with what to do.
    /// `FieldsEffective`: `False` while the policy says something that has no effect here, with what and why.
    /// Each is absent as long as nothing was wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Whether objects are taken over from other policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Preemption {
    /// They are, by priority.
    Always,
    /// An object stays with the policy that has it.
    #[default]
    Never,
}

/// What happens when a cluster already has an object of that name that is not ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConflictResolution {
    /// It is left alone, and the conflict is reported.
    #[default]
    Abort,
    /// It is taken over.
    Overwrite,
}

/// When a change of the policy takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ActivationPreference {
    /// For each object when the object itself changes.
    Lazy,
}

/// Where the priority of a workload comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// What kind of class it is.
    pub priority_class_source: PriorityClassSource,
    /// Name of the class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
}

/// What kind of priority class a workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassSource {
    /// A PriorityClass of the host.
    KubePriorityClass,
    /// The one its pods name.
    PodPriorityClass,
    /// One for all clusters; there is no such kind yet.
    FederatedPriorityClass,
}
