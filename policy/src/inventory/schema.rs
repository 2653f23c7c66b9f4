//! What an API server refuses before it asks anybody: fields that the definition of a kind does not know, and values
//! out of bounds. Types and words are told by reading the object.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use crate::{api::crds, validate::Violation};

/// The schemas of what policies say, by their kind.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let all = crds::all().into_iter().filter_map(|definition| {
        let kind = definition.spec.names.kind.clone();
        let definition = serde_json::to_value(definition).ok()?;
        let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")?;
        Some((kind, schema.clone()))
    });
    all.collect()
});

/// What is wrong with the `spec` of an object of this kind.
pub(super) fn violations(kind: &str, object: &Value) -> Vec<Violation> {
    let mut found = vec![];
    if let (Some(schema), Some(spec)) = (SCHEMAS.get(kind), object.get("spec")) {
        check(schema, spec, "spec", &mut found);
    }
    found
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<Violation>) {
    let mut wrong = |path: &str, message: String| found.push(Violation { path: path.to_owned(), message });
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
    match value {
        Value::Object(fields) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let others = schema.get("additionalProperties").filter(|others| others.is_object());
            let any = schema.get("x-kubernetes-preserve-unknown-fields").is_some();
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                match properties.and_then(|all| all.get(name)).or(others) {
                    Some(schema) => check(schema, value, &path, found),
                    None if any || properties.is_none() => {}
                    None => found.push(Violation { path, message: "unknown field".to_owned() }),
                }
            }
        }
        Value::Array(items) => {
            if bound("minItems").is_some_and(|least| (items.len() as u64) < least) {
                wrong(path, format!("should have at least {} items", bound("minItems").unwrap_or(0)));
            }
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                check(schema, item, &format!("{path}[{index}]"), found);
            }
        }
        Value::Number(number) => {
            let least = schema.get("minimum").and_then(Value::as_f64);
            if let Some(least) = least.filter(|least| number.as_f64().is_some_and(|number| number < *least)) {
                wrong(path, format!("{number} should be greater than or equal to {least}"));
            }
        }
        Value::String(text) => {
            let length = text.chars().count() as u64;
            if let Some(most) = bound("maxLength").filter(|most| length > *most) {
                wrong(path, format!("should be at most {most} characters long"));
            }
            if let Some(least) = bound("minLength").filter(|least| length < *least) {
                wrong(path, format!("should be at least {least} characters long"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(kind: &str, spec: Value) -> Vec<String> {
        violations(kind, &json!({ "spec": spec })).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fields_that_nobody_knows_and_values_out_of_bounds() {
        let selectors = json!([{"apiVersion": "v1", "kind": "Service", "names": ["a"]}]);
        let weights = json!({"weightPreference": {"staticWeightList": [{"targetCluster": {}, "weight": 0}]}});
        let spec = json!({"resourceSelectors": selectors, "placements": {}, "placement": {
            "clusterAffinity": {"clusterName": ["m1"], "labelSelector": {"matchLabels": {"any": "thing"}}},
            "clusterAffinities": [{"affinityName": ""}, {"affinityName": "a".repeat(33)}],
            "replicaScheduling": weights}});
        let expected = [
            "spec.placement.clusterAffinities[0].affinityName: should be at least 1 characters long",
            "spec.placement.clusterAffinities[1].affinityName: should be at most 32 characters long",
            "spec.placement.clusterAffinity.clusterName: unknown field",
            "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight: 0 should be greater than or equal to 1",
            "spec.placements: unknown field",
            "spec.resourceSelectors[0].names: unknown field",
        ];
        for kind in ["PropagationPolicy", "ClusterPropagationPolicy"] {
            let mut found = said(kind, spec.clone());
            found.sort();
            assert_eq!(found, expected, "{kind}");
        }
        assert_eq!(said("PropagationPolicy", json!({"resourceSelectors": []})).len(), 1);
    }

    #[test]
    fn what_may_be_anything_is_not_looked_into() {
        let patch = json!({"path": "/spec/x", "operator": "add", "value": {"any": [{"thing": 0}]}});
        let spec = json!({"overrideRules": [{"overriders": {"plaintext": [patch],
            "labelsOverrider": [{"operator": "add", "value": {"any": "label"}}]}}]});
        assert_eq!(said("OverridePolicy", spec), Vec::<String>::new());
        let misspelt = json!({"overrideRules": [{"overriders": {"plainText": []}}]});
        assert_eq!(
            said("ClusterOverridePolicy", misspelt),
            ["spec.overrideRules[0].overriders.plainText: unknown field"]
        );
    }

    /// Every field of a policy.
    #[test]
    fn what_is_known_is_taken() {
        let full = crate::yaml::read(include_str!("../validate/full.yaml")).unwrap();
        assert_eq!(said("PropagationPolicy", full["spec"].clone()), Vec::<String>::new());
    }
}
