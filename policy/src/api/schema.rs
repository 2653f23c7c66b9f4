//! Schemas that a derive cannot say.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Any JSON value, kept as it is by the API server.
pub(super) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// Any JSON object, kept as it is by the API server.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}
