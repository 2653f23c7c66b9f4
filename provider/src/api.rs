//! The API types of members, in Karmada's group.

#![expect(unreachable_pub, reason = "kube's schema derive repeats each struct, as `pub`, inside a function")]
#![allow(clippy::duplicated_attributes, reason = "each printer column has a type")]

mod cluster;
mod federlet;

pub use cluster::{
    AllocatableModeling, ApiEnablement, ApiResourceEnablement, Cluster, ClusterSpec, ClusterStatus,
    LocalSecretReference, NodeSummary, ResourceModel, ResourceModelRange, ResourceSummary, SyncMode,
};
pub use federlet::{Allow, FederletSpec, MappingKind, NamespaceMapping, OfflineMode, PodAddressMode, PodApi};

/// `false` is what an absent flag means, so it is not written out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}
