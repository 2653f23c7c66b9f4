//! Whether a cluster is in a set of clusters.

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use crate::{
    api::{Cluster, ClusterAffinity},
    labels,
};

/// Why a cluster is not in a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It is excluded by name.
    #[error("the policy excludes it by name")]
    Excluded,
    /// Names are listed, and its own is not among them.
    #[error("the policy lists other clusters by name")]
    NotListed,
    /// Its labels are not as required.
    #[error("its labels do not match")]
    Labels,
    /// Its provider, region or zone is not as required.
    #[error("its {0} does not match")]
    Field(String),
    /// The policy asks something that no cluster can answer.
    #[error("the policy asks for a field or operator that does not exist: {0}")]
    Unsupported(String),
}

/// Whether a cluster is in the set; no set means all clusters.
#[must_use]
pub fn includes(affinity: Option<&ClusterAffinity>, cluster: &Cluster) -> bool {
    affinity.is_none_or(|affinity| check(affinity, cluster).is_ok())
}

/// Says why a cluster is not in the set. Exclusion is looked at first and wins over everything.
pub fn check(affinity: &ClusterAffinity, cluster: &Cluster) -> Result<(), Mismatch> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    if affinity.exclude.iter().any(|excluded| excluded == name) {
        return Err(Mismatch::Excluded);
    }
    if !affinity.cluster_names.is_empty() && !affinity.cluster_names.iter().any(|listed| listed == name) {
        return Err(Mismatch::NotListed);
    }
    if let Some(selector) = &affinity.label_selector {
        let none = std::collections::BTreeMap::new();
        if !labels::selects(selector, cluster.metadata.labels.as_ref().unwrap_or(&none)) {
            return Err(Mismatch::Labels);
        }
    }
    let fields = affinity.field_selector.iter().flat_map(|fields| &fields.match_expressions);
    fields.into_iter().try_for_each(|field| check_field(field, cluster))
}

/// A cluster spans a set of zones: `In` wants an overlap, `NotIn` wants none. A provider or region that is not
/// set is an empty set and behaves the same.
fn check_field(field: &NodeSelectorRequirement, cluster: &Cluster) -> Result<(), Mismatch> {
    let spec = &cluster.spec;
    let actual: Vec<&str> = match field.key.as_str() {
        "provider" => vec![spec.provider.as_str()],
        "region" => vec![spec.region.as_str()],
        "zone" => spec.zones().collect(),
        other => return Err(Mismatch::Unsupported(other.to_owned())),
    };
    let wanted = field.values.as_deref().unwrap_or_default();
    let overlap = actual.iter().any(|one| !one.is_empty() && wanted.iter().any(|value| value == one));
    match field.operator.as_str() {
        "In" if overlap => Ok(()),
        "NotIn" if !overlap => Ok(()),
        "In" | "NotIn" => Err(Mismatch::Field(field.key.clone())),
        other => Err(Mismatch::Unsupported(other.to_owned())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// A cluster from what a table needs of it.
    pub(crate) fn cluster(name: &str, labels: Value, spec: Value) -> Cluster {
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "labels": labels}, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn affinity(value: Value) -> ClusterAffinity {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn sets_of_clusters() {
        let m1 = cluster(
            "m1",
            json!({"env": "prod"}),
            json!({"provider": "p", "region": "r", "zones": ["a", "b"]}),
        );
        let bare = cluster("m1", json!({}), json!({}));
        let former = cluster("m1", json!({}), json!({"zone": "a"}));
        let field = |key: &str, operator: &str, values: &[&str]| json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
        for (cluster, set, expected) in [
            (&m1, json!({}), Ok(())),
            (&m1, json!({"labelSelector": {}}), Ok(())),
            (&m1, json!({"labelSelector": {"matchLabels": {"env": "prod"}}}), Ok(())),
            (&bare, json!({"labelSelector": {"matchLabels": {"env": "prod"}}}), Err(Mismatch::Labels)),
            (&m1, json!({"clusterNames": ["m1"]}), Ok(())),
            (&m1, json!({"clusterNames": ["m2"]}), Err(Mismatch::NotListed)),
            (&m1, json!({"clusterNames": ["m1"], "exclude": ["m1"]}), Err(Mismatch::Excluded)),
            (
                &m1,
                json!({"clusterNames": ["m1"], "labelSelector": {"matchLabels": {"env": "x"}}}),
                Err(Mismatch::Labels),
            ),
            (&m1, field("provider", "In", &["p"]), Ok(())),
            (&m1, field("region", "NotIn", &["r"]), Err(Mismatch::Field("region".into()))),
            (&m1, field("zone", "In", &["b", "c"]), Ok(())),
            (&m1, field("zone", "NotIn", &["b", "c"]), Err(Mismatch::Field("zone".into()))),
            (&m1, field("zone", "NotIn", &["c"]), Ok(())),
            (&bare, field("zone", "In", &["a"]), Err(Mismatch::Field("zone".into()))),
            (&bare, field("zone", "NotIn", &["a"]), Ok(())),
            (&bare, field("region", "In", &["", "r"]), Err(Mismatch::Field("region".into()))),
            (&former, field("zone", "In", &["a"]), Ok(())),
            (&m1, field("rack", "In", &["a"]), Err(Mismatch::Unsupported("rack".into()))),
            (&m1, field("zone", "Exists", &[]), Err(Mismatch::Unsupported("Exists".into()))),
        ] {
            assert_eq!(check(&affinity(set.clone()), cluster), expected, "{set}");
        }
        assert!(includes(None, &bare));
    }

    proptest! {
        /// Excluding wins over any other part, and adding a part never adds a cluster.
        #[test]
        fn every_part_only_narrows(
            names in prop::collection::vec("m[1-3]", 0..3),
            exclude in prop::collection::vec("m[1-3]", 0..3),
            env in prop::option::of("[ab]"),
        ) {
            let set = ClusterAffinity {
                label_selector: env.map(|env| serde_json::from_value(json!({"matchLabels": {"env": env}})).unwrap()),
                cluster_names: names,
                exclude: exclude.clone(),
                ..ClusterAffinity::default()
            };
            for name in ["m1", "m2", "m3"] {
                let cluster = cluster(name, json!({"env": "a"}), json!({}));
                let inside = check(&set, &cluster).is_ok();
                prop_assert!(!(inside && exclude.iter().any(|excluded| excluded == name)));
                let wider = [
                    ClusterAffinity { label_selector: None, ..set.clone() },
                    ClusterAffinity { cluster_names: vec![], ..set.clone() },
                    ClusterAffinity { exclude: vec![], ..set.clone() },
                ];
                for wider in wider {
                    prop_assert!(!inside || check(&wider, &cluster).is_ok());
                }
            }
        }
    }
}
