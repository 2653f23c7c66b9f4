//! Changes of a container's command and arguments.

use serde_json::{Value, json};

use crate::{
    api::{CommandArgsOverrider, ListOperator},
    workload,
};

/// Changes `field` of the named container of the object's pod. Without such a container nothing changes.
pub(super) fn apply(object: &mut Value, field: &str, change: &CommandArgsOverrider) {
    let Some(path) = workload::pod_path_of(object) else { return };
    let Some(containers) =
        object.pointer_mut(&format!("{path}/spec/containers")).and_then(Value::as_array_mut)
    else {
        return;
    };
    for container in containers.iter_mut().filter_map(Value::as_object_mut) {
        if container.get("name").and_then(Value::as_str) != Some(change.container_name.as_str()) {
            continue;
        }
        match change.operator {
            ListOperator::Add => {
                let words = container.entry(field).or_insert_with(|| json!([]));
                if words.is_null() {
                    *words = json!([]);
                }
                if let Some(words) = words.as_array_mut() {
                    words.extend(change.value.iter().map(|word| json!(word)));
                }
            }
            ListOperator::Remove => {
                if let Some(words) = container.get_mut(field).and_then(Value::as_array_mut) {
                    words.retain(|word| {
                        !change.value.iter().any(|removed| word.as_str() == Some(removed.as_str()))
                    });
                }
            }
        }
    }
}
