//! The CustomResourceDefinitions, from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::{
    Cluster, ClusterOverridePolicy, ClusterPropagationPolicy, ClusterResourceBinding, OverridePolicy,
    PropagationPolicy, ResourceBinding,
};

/// Every definition that the host needs.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        PropagationPolicy::crd(),
        ClusterPropagationPolicy::crd(),
        OverridePolicy::crd(),
        ClusterOverridePolicy::crd(),
        ResourceBinding::crd(),
        ClusterResourceBinding::crd(),
        Cluster::crd(),
    ]
}

#[cfg(test)]
mod tests;
