//! Changes of an object's own labels and annotations.

use serde_json::{Value, json};

use crate::api::{LabelAnnotationOverrider, PatchOperator};

/// Changes `metadata.<field>`. Only `add` makes a key that is not there; values are not compared.
pub(super) fn apply(object: &mut Value, field: &str, change: &LabelAnnotationOverrider) {
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if change.operator == PatchOperator::Add && !meta.get(field).is_some_and(Value::is_object) {
        meta.insert(field.to_owned(), json!({}));
    }
    let Some(map) = meta.get_mut(field).and_then(Value::as_object_mut) else { return };
    for (key, value) in &change.value {
        match change.operator {
            PatchOperator::Add => drop(map.insert(key.clone(), json!(value))),
            PatchOperator::Replace if map.contains_key(key) => drop(map.insert(key.clone(), json!(value))),
            PatchOperator::Replace => {}
            PatchOperator::Remove => drop(map.remove(key)),
        }
    }
}
