use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::contract::Pod;

/// A digest of all that a provider may have to change when its user changes it: labels, annotations and spec.
///
/// The rest of the metadata moves with every status write and must not look like an update.
pub fn desired_digest(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in [&pod.metadata()["labels"], &pod.metadata()["annotations"], pod.spec()] {
        feed(part, &mut hasher);
    }
    hasher.finish()
}

/// A digest of any JSON, the same whatever the order of its keys. For comparing within one process only.
pub fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}

fn feed(value: &Value, hasher: &mut DefaultHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(b) => b.hash(hasher),
        Value::Number(n) => n.hash(hasher),
        Value::String(s) => s.hash(hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| feed(item, hasher));
        }
        Value::Object(fields) => {
            fields.len().hash(hasher);
            let mut keys: Vec<_> = fields.keys().collect();
            keys.sort_unstable();
            for key in keys {
                key.hash(hasher);
                feed(&fields[key], hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(json: Value) -> Pod {
        Pod::try_from(json).unwrap()
    }

    #[test]
    fn only_what_a_user_can_change_counts() {
        let meta = json!({"namespace": "n", "name": "p", "uid": "u", "labels": {"a": "1"}});
        let before = pod(json!({"metadata": meta, "spec": {"containers": [{"image": "x:1"}]}}));

        let mut touched = before.json().clone();
        touched["metadata"]["resourceVersion"] = json!("9");
        touched["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        touched["status"] = json!({"phase": "Running"});
        assert_eq!(desired_digest(&before), desired_digest(&pod(touched)));

        let paths = ["/metadata/labels/a", "/spec/containers/0/image"];
        for path in paths {
            let mut changed = before.json().clone();
            *changed.pointer_mut(path).unwrap() = json!("other");
            assert_ne!(desired_digest(&before), desired_digest(&pod(changed)), "{path}");
        }
    }

    #[test]
    fn neighbours_do_not_run_into_one_another() {
        assert_ne!(digest(&json!(["ab", "c"])), digest(&json!(["a", "bc"])));
        assert_ne!(digest(&json!([[], 1])), digest(&json!([[1]])));
        assert_ne!(digest(&json!(null)), digest(&json!({})));
    }
}
