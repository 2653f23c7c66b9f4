//! The API types, in Karmada's groups, so that the manifests people have work as they are.

#![expect(unreachable_pub, reason = "kube's schema derive repeats each struct, as `pub`, inside a function")]
#![allow(clippy::duplicated_attributes, reason = "each printer column has a type")]

mod binding;
pub mod crds;
mod failover;
mod overrides;
mod placement;
mod propagation;
mod schema;
mod selector;

pub use binding::{
    AggregatedStatusItem, BindingSnapshot, BindingSuspension, ClusterResourceBinding,
    ClusterResourceBindingSpec, GracefulEvictionTask, LeftCluster, NodeClaim, ObjectReference,
    ReplicaRequirements, ResourceBinding, ResourceBindingSpec, ResourceBindingStatus, ResourceHealth,
    SchedulePriorityValue, TargetCluster,
};
pub use failover::{
    ApplicationFailover, ClusterFailover, DecisionConditions, Failover, PurgeMode, StatePreservation,
    StatePreservationRule, SuspendClusters, Suspension,
};
pub use federlet_provider::api::{
    AllocatableModeling, ApiEnablement, ApiResourceEnablement, Cluster, ClusterSpec, ClusterStatus,
    LocalSecretReference, NodeSummary, ResourceModel, ResourceModelRange, ResourceSummary, SyncMode,
};
pub use overrides::{
    ClusterOverridePolicy, ClusterOverrideSpec, CommandArgsOverrider, FieldOverrider, FieldPatch,
    ImageComponent, ImageOverrider, ImagePredicate, LabelAnnotationOverrider, ListOperator, OverridePolicy,
    OverrideSpec, OverrideStatus, Overriders, PatchOperator, PlaintextOverrider, RuleWithCluster,
};
pub use placement::{
    ClusterAffinity, ClusterAffinityTerm, ClusterPreferences, DynamicWeightFactor, FieldSelector,
    OverflowAffinity, Placement, ReplicaDivisionPreference, ReplicaScheduling, ReplicaSchedulingType,
    SpreadConstraint, SpreadField, StaticClusterWeight, WorkloadAffinity, WorkloadAffinityTerm,
};
pub use propagation::{
    ActivationPreference, ClusterPropagationPolicy, ClusterPropagationSpec, ConflictResolution, Preemption,
    PriorityClassSource, PropagationPolicy, PropagationSpec, PropagationStatus, SchedulePriority,
};
pub use selector::ResourceSelector;

/// `false` is what an absent flag means, so it is not written out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Zero is what an absent number means, so it is not written out.
fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}
