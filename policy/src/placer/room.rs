//! How many more replicas a cluster has room for, as far as its status says.

use federlet_provider::capacity::Resources;
use serde_json::json;

use crate::api::Cluster;

/// Annotation of a Cluster: so many, whatever its status says.
pub const AVAILABLE: &str = "federlet.io/available-replicas";

/// Whole replicas that fit into what is left, by the scarcest resource that one asks for.
pub(super) fn free(cluster: &Cluster, replica: &Resources) -> u32 {
    let annotations = cluster.metadata.annotations.as_ref();
    if let Some(said) = annotations.and_then(|all| all.get(AVAILABLE)?.parse().ok()) {
        return said;
    }
    let Some(summary) = cluster.status.as_ref().and_then(|status| status.resource_summary.as_ref()) else {
        return 0;
    };
    let read = |list: &_| Resources::read(Some(&json!(list)));
    let taken = {
        let mut taken = read(&summary.allocated);
        taken.add(&read(&summary.allocating));
        taken
    };
    let left = read(&summary.allocatable).minus(&taken);
    let fitting = replica
        .iter()
        .filter(|(_, amount)| !amount.is_zero())
        .map(|(name, amount)| left.get(name).steps_down(amount))
        .min();
    u32::try_from(fitting.unwrap_or(0).max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::tests::cluster;

    #[test]
    fn the_scarcest_resource_decides() {
        let mut roomy = cluster("m", json!({}), json!({}));
        roomy.status = serde_json::from_value(json!({"resourceSummary": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "allocated": {"cpu": "1", "memory": "1Gi", "pods": "10"}, "allocating": {"cpu": "500m"}}}))
        .unwrap();
        let replica = |list| Resources::read(Some(&list));
        assert_eq!(free(&roomy, &replica(json!({"cpu": "500m", "memory": "1Gi", "pods": "1"}))), 5);
        assert_eq!(free(&roomy, &replica(json!({"pods": "1"}))), 100);
        assert_eq!(free(&roomy, &replica(json!({"example.com/gpu": "1"}))), 0);
        roomy.metadata.annotations = Some([(AVAILABLE.to_owned(), "7".to_owned())].into());
        assert_eq!(free(&roomy, &replica(json!({"pods": "1"}))), 7);
        assert_eq!(free(&cluster("m", json!({}), json!({})), &replica(json!({"pods": "1"}))), 0);
    }
}
