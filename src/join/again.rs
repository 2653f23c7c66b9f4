//! A member that joins again: what is not said this time stays as it was.

use std::collections::BTreeMap;

use federlet_provider::{
    api::{Cluster, ClusterSpec},
    join::FIELD_MANAGER,
};
use kube::ResourceExt;
use serde_json::{Map, Value};

/// Follows from the kubeconfig, which is given each time.
const SAID_EACH_TIME: &str = "insecureSkipTLSVerification";

/// A Cluster as it is to be.
pub(super) struct Wanted {
    /// The labels that joining writes.
    pub(super) labels: BTreeMap<String, String>,
    /// The part of the spec that joining writes. What others wrote is theirs and not in it.
    pub(super) written: Value,
    /// The spec that comes of it.
    pub(super) spec: ClusterSpec,
}

/// What joining writes, given what is said now and the Cluster that was there before.
pub(super) fn wanted(
    before: Option<&Cluster>,
    labels: BTreeMap<String, String>,
    spec: &ClusterSpec,
) -> serde_json::Result<Wanted> {
    let said = serde_json::to_value(spec)?;
    let Some(before) = before else {
        return Ok(Wanted { labels, written: said, spec: spec.clone() });
    };
    let object = |part: Value| match part {
        Value::Object(part) => part,
        _ => Map::new(),
    };
    let mut there = object(serde_json::to_value(&before.spec)?);
    there.remove(SAID_EACH_TIME);
    let ours = joined(before);
    let mut written = Value::Object(owned(&there, ours.get("f:spec")));
    let mut whole = Value::Object(there);
    lay_over(&mut written, &said);
    lay_over(&mut whole, &said);
    let labels = if labels.is_empty() {
        let names = ours.get("f:metadata").and_then(|metadata| metadata.get("f:labels"));
        let has = |key: &String| names.and_then(|names| names.get(format!("f:{key}"))).is_some();
        before
            .labels()
            .iter()
            .filter(|(key, _)| has(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    } else {
        labels
    };
    Ok(Wanted { labels, written, spec: serde_json::from_value(whole)? })
}

/// The fields of a Cluster that joining wrote and nobody has changed since, as API servers remember them.
fn joined(cluster: &Cluster) -> Value {
    let managed = cluster.metadata.managed_fields.iter().flatten();
    let ours = |entry: &&_| is_joining(entry);
    managed.filter(ours).find_map(|entry| entry.fields_v1.clone()).map(|fields| fields.0).unwrap_or_default()
}

fn is_joining(entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_ref().is_none_or(String::is_empty)
}

/// The part of an object with these fields.
fn owned(there: &Map<String, Value>, fields: Option<&Value>) -> Map<String, Value> {
    let field = |key: &String| fields.and_then(|fields| fields.get(format!("f:{key}")));
    let part = |(key, value): (&String, &Value)| {
        let below = field(key)?;
        let whole = below.as_object().is_none_or(|below| below.keys().all(|key| !key.starts_with("f:")));
        let part = match value {
            Value::Object(value) if !whole => Value::Object(owned(value, Some(below))),
            value => value.clone(),
        };
        Some((key.clone(), part))
    };
    there.iter().filter_map(part).collect()
}

/// What is said replaces what was there, field by field.
fn lay_over(there: &mut Value, said: &Value) {
    match (there, said) {
        (Value::Object(there), Value::Object(said)) => {
            for (key, value) in said {
                lay_over(there.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (there, said) => *there = said.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A region that joined with labels and a taint, and to which somebody else added a label and limits.
    fn before() -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {
                "name": "m", "labels": {"env": "prod", "theirs": "yes"},
                "managedFields": [
                    {"manager": "kubectl", "operation": "Update", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:theirs": {}}},
                        "f:spec": {"f:federlet": {"f:limits": {".": {}, "f:cpu": {}}}, "f:region": {}},
                    }},
                    {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:env": {}}, "f:finalizers": {"v:\"federlet.io/member\"": {}}},
                        "f:spec": {
                            "f:apiEndpoint": {}, "f:taints": {}, "f:zones": {}, "f:insecureSkipTLSVerification": {},
                            "f:secretRef": {"f:name": {}, "f:namespace": {}},
                            "f:federlet": {"f:regionSelector": {}, "f:namespaces": {"f:mapping": {}, "f:value": {}}},
                        },
                    }},
                ],
            },
            "spec": {
                "syncMode": "Push", "apiEndpoint": "https://a", "region": "theirs", "zones": ["a", "b"],
                "secretRef": {"name": "s", "namespace": "federlet-system"},
                "insecureSkipTLSVerification": true,
                "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
                "federlet": {
                    "regionSelector": "location=beijing", "limits": {"cpu": "50%"},
                    "namespaces": {"mapping": "Suffix", "value": "-x"},
                },
            },
        }))
        .unwrap()
    }

    fn of(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_not_said_again_stays_and_what_others_wrote_stays_theirs() {
        let again = wanted(Some(&before()), BTreeMap::new(), &ClusterSpec::default()).unwrap();
        assert_eq!(again.labels, of(&[("env", "prod")]));
        assert_eq!(
            again.written,
            json!({
                "syncMode": "Push", "apiEndpoint": "https://a", "zones": ["a", "b"],
                "secretRef": {"name": "s", "namespace": "federlet-system"},
                "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
                "federlet": {"regionSelector": "location=beijing", "namespaces": {"mapping": "Suffix", "value": "-x"}},
            })
        );
        assert_eq!(again.spec.region, "theirs");
        assert!(!again.spec.insecure_skip_tls_verification, "the kubeconfig says it each time");
        assert_eq!(again.spec.federlet.unwrap().limits.len(), 1);
    }

    #[test]
    fn what_is_said_again_replaces_what_was_there() {
        let said = ClusterSpec { region: "eu".into(), zones: vec!["c".into()], ..ClusterSpec::default() };
        let again = wanted(Some(&before()), of(&[("tier", "gold")]), &said).unwrap();
        assert_eq!(again.labels, of(&[("tier", "gold")]));
        assert_eq!(again.written["region"], "eu");
        assert_eq!(again.written["zones"], json!(["c"]));
        assert_eq!(again.spec.taints.len(), 1);
    }

    #[test]
    fn whoever_joins_first_gets_what_is_said() {
        let said = ClusterSpec { region: "eu".into(), ..ClusterSpec::default() };
        let first = wanted(None, of(&[("tier", "gold")]), &said).unwrap();
        assert_eq!(first.written, json!({"syncMode": "Push", "region": "eu"}));
        assert_eq!((first.labels, first.spec), (of(&[("tier", "gold")]), said));
    }
}
