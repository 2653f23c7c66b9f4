//! An override of a workload, carried over to a pod that the workload made.
//!
//! The pod is more than the workload's template: the API server filled in defaults, others added sidecars,
//! volumes and labels. So the override is made on the workload, and what it changed in the template is merged
//! into the pod, list items found by their name where they have one.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::workload;

/// What an override of a workload means for its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    before: Value,
    after: Value,
    /// Paths that the override changed outside the pod template; they mean nothing for a pod.
    pub not_applicable: Vec<String>,
}

impl Projection {
    /// Compares a workload before and after its override. `None` if its kind is not known to make pods.
    #[must_use]
    pub fn between(before: &Value, after: &Value) -> Option<Self> {
        let path = workload::pod_path_of(before)?;
        let template = |object: &Value| pod_of(object.pointer(path).unwrap_or(&Value::Null));
        let changes = json_patch::diff(&outside(before, path), &outside(after, path));
        let paths: BTreeSet<String> =
            changes.0.iter().map(|operation| operation.path().to_string()).collect();
        Some(Self {
            before: template(before),
            after: template(after),
            not_applicable: paths.into_iter().collect(),
        })
    }

    /// Whether the override means nothing for pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before == self.after
    }

    /// Makes the change on a pod.
    #[must_use]
    pub fn apply(&self, pod: &Value) -> Value {
        merge(&self.before, &self.after, pod)
    }
}

/// What a template says about a pod: labels, annotations and spec. Names and owners are the pod's own.
fn pod_of(template: &Value) -> Value {
    let mut pod = Map::new();
    let mut meta = Map::new();
    for key in ["labels", "annotations"] {
        if let Some(value) = template.get("metadata").and_then(|meta| meta.get(key)) {
            meta.insert(key.to_owned(), value.clone());
        }
    }
    pod.insert("metadata".into(), Value::Object(meta));
    if let Some(spec) = template.get("spec") {
        pod.insert("spec".into(), spec.clone());
    }
    Value::Object(pod)
}

/// The workload without what [`pod_of`] takes from its template.
fn outside(workload: &Value, path: &str) -> Value {
    let mut rest = workload.clone();
    if let Some(template) = rest.pointer_mut(path).and_then(Value::as_object_mut) {
        template.remove("spec");
        if let Some(meta) = template.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.retain(|key, _| key != "labels" && key != "annotations");
            if meta.is_empty() {
                template.remove("metadata");
            }
        }
    }
    rest
}

/// Carries the change from `before` to `after` over to `live`. What did not change is left as it is in `live`.
fn merge(before: &Value, after: &Value, live: &Value) -> Value {
    match (before, after, live) {
        _ if before == after => live.clone(),
        _ if before == live => after.clone(),
        (Value::Object(before), Value::Object(after), Value::Object(live)) => merge_maps(before, after, live),
        (Value::Array(before), Value::Array(after), Value::Array(live)) => {
            Value::Array(merge_keyed(before, after, live).unwrap_or_else(|| merge_items(before, after, live)))
        }
        _ => after.clone(),
    }
}

fn merge_maps(before: &Map<String, Value>, after: &Map<String, Value>, live: &Map<String, Value>) -> Value {
    let mut merged = live.clone();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        merged.remove(key);
    }
    for (key, new) in after {
        let old = before.get(key);
        let value = match (old, live.get(key)) {
            (Some(old), _) if old == new => continue,
            (old, Some(there)) => merge(old.unwrap_or(&Value::Null), new, there),
            (_, None) => new.clone(),
        };
        merged.insert(key.clone(), value);
    }
    Value::Object(merged)
}

/// What names an item in the lists of a pod, the more telling first: several mounts may be of one volume.
const KEYS: [&str; 5] = ["mountPath", "devicePath", "name", "containerPort", "ip"];

/// What names the items of several lists, each in a way of its own.
pub(crate) fn name_key(lists: &[&[Value]]) -> Option<&'static str> {
    KEYS.into_iter().find(|key| lists.iter().all(|list| is_unique(list, key)))
}

/// Merges lists whose items have a name that is unique in each of them.
fn merge_keyed(before: &[Value], after: &[Value], live: &[Value]) -> Option<Vec<Value>> {
    let key = name_key(&[before, after, live])?;
    let find = |list: &[Value], name: &Value| list.iter().find(|item| item.get(key) == Some(name)).cloned();
    let mut merged = Vec::new();
    for item in after {
        let name = item.get(key)?;
        match (find(before, name), find(live, name)) {
            (old, Some(there)) => merged.push(merge(&old.unwrap_or(Value::Null), item, &there)),
            (None, None) => merged.push(item.clone()),
            // Somebody took it away from the pod, and the override did not ask for it.
            (Some(_), None) => {}
        }
    }
    // What only the pod has stays behind what it came after.
    for (index, item) in live.iter().enumerate() {
        let name = item.get(key)?;
        if find(before, name).is_some() || find(after, name).is_some() {
            continue;
        }
        let previous = live[..index]
            .iter()
            .rev()
            .find_map(|previous| merged.iter().position(|there: &Value| there.get(key) == previous.get(key)));
        merged.insert(previous.map_or(0, |at| at + 1), item.clone());
    }
    Some(merged)
}

fn is_unique(list: &[Value], key: &str) -> bool {
    let mut seen = BTreeSet::new();
    list.iter().all(|item| match item.get(key) {
        Some(Value::String(name)) => seen.insert(name.clone()),
        Some(Value::Number(number)) => seen.insert(number.to_string()),
        _ => false,
    })
}

/// Merges lists whose items have no name: takes away what the override took away, adds what it added.
fn merge_items(before: &[Value], after: &[Value], live: &[Value]) -> Vec<Value> {
    let minus = |left: &[Value], right: &[Value]| {
        let mut left = left.to_vec();
        for item in right {
            if let Some(at) = left.iter().position(|one| one == item) {
                left.remove(at);
            }
        }
        left
    };
    let mut merged = minus(live, &minus(before, after));
    merged.extend(minus(after, before));
    merged
}

#[cfg(test)]
mod tests;
