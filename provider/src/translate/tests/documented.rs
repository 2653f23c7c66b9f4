//! That `docs/pods.md` says of each field what becomes of it.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, Volume},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use schemars::{JsonSchema, schema_for};

fn fields<T: JsonSchema>() -> BTreeSet<String> {
    let schema = schema_for!(T);
    let properties = schema.get("properties").and_then(|all| all.as_object()).unwrap();
    properties.keys().cloned().collect()
}

#[test]
fn every_field_of_a_pod_is_documented() {
    let page = include_str!("../../../../docs/pods.md");
    for (what, fields) in [
        ("metadata", fields::<ObjectMeta>()),
        ("spec", fields::<PodSpec>()),
        ("spec.containers[]", fields::<Container>()),
        ("spec.volumes[]", fields::<Volume>()),
    ] {
        assert!(fields.len() > 10, "{what} has only {fields:?}");
        let missing: Vec<&String> =
            fields.iter().filter(|field| !page.contains(&format!("`{field}`"))).collect();
        assert!(missing.is_empty(), "docs/pods.md does not name {missing:?} of {what}");
    }
}
