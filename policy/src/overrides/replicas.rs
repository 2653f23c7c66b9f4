use super::{Policy, applicable};
use crate::{
    affinity,
    api::{Cluster, PatchOperator},
    object::Identity,
};

/// Where a workload says how many replicas it has.
pub const PATH: &str = "/spec/replicas";

/// How many replicas of a workload overrides want in a cluster; none if they do not say. The last one wins.
pub fn replicas<'a>(
    object: &Identity,
    cluster: &Cluster,
    policies: impl IntoIterator<Item = Policy<'a>>,
) -> Option<u32> {
    let policies = applicable(object, policies);
    let rules = policies.iter().flat_map(Policy::rules).filter(|(on, _)| affinity::includes(*on, cluster));
    let changes =
        rules.flat_map(|(_, overriders)| &overriders.plaintext).filter(|change| change.path == PATH);
    changes.last().filter(|change| change.operator != PatchOperator::Remove).and_then(|change| {
        let wanted = change.value.as_ref()?.as_u64()?;
        Some(u32::try_from(wanted).unwrap_or(u32::MAX))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{affinity::tests::cluster, api::OverridePolicy};

    fn policy(name: &str, selector: Value, changes: Value) -> OverridePolicy {
        serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": name, "namespace": "n"},
            "spec": {"resourceSelectors": [selector],
                "overrideRules": [{"targetCluster": {"clusterNames": ["a"]}, "overriders": {"plaintext": changes}}]},
        }))
        .unwrap()
    }

    #[test]
    fn the_closest_policy_that_says_a_number_wins() {
        let (by_kind, by_name) = (
            json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}),
        );
        let said = |count: u32| json!([{"path": PATH, "operator": "replace", "value": count}]);
        let policies = [
            policy("z", by_kind, said(7)),
            policy("a", by_name.clone(), said(1)),
            policy("b", by_name, json!([{"path": "/spec/paused", "operator": "add", "value": true}])),
        ];
        let web = Identity {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "n".into(),
            name: "web".into(),
            ..Identity::default()
        };
        let wanted = |object: &Identity, name: &str| {
            replicas(object, &cluster(name, json!({}), json!({})), policies.iter().map(Policy::from))
        };
        assert_eq!((wanted(&web, "a"), wanted(&web, "b")), (Some(1), None));
        let other = Identity { name: "other".into(), ..web };
        assert_eq!(wanted(&other, "a"), Some(7));
    }
}
