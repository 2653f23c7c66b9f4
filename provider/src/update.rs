//! What of a changed host pod can still change in the member.
//!
//! A pod is mostly fixed once it is created. The rest is planned here as the smallest patch: nothing when nothing
//! changed on the host, whatever the member's own webhooks and controllers did to the pod since.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    json::{Object, items, members, text},
    marks,
    translate::{Applied, MemberPod, Notice, WHOLE, resources},
    version::Version,
};

/// The first version whose API servers resize pods by default.
const RESIZES_SINCE: Version = Version::v1(33);
/// The first whose API servers resize pods as a whole.
const RESIZES_WHOLE_SINCE: Version = Version::v1(36);

/// Writes that make a member pod what it should be. Each names the pod's UID, so it can only land on that pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpdatePlan {
    /// A strategic merge patch of the pod.
    pub patch: Option<Value>,
    /// A strategic merge patch of its `ephemeralcontainers`.
    pub ephemeral: Option<Value>,
    /// A strategic merge patch of its `resize`. When it has landed, the next plan notes that in the pod.
    pub resize: Option<Value>,
    /// What cannot follow, for the user to hear about.
    pub notices: Vec<Notice>,
}

impl UpdatePlan {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.patch.is_none() && self.ephemeral.is_none() && self.resize.is_none()
    }
}

/// Plans how the pod that is in the member becomes the one that should be.
pub fn plan(desired: &MemberPod, current: &Value, version: Version) -> UpdatePlan {
    let mut plan = UpdatePlan::default();
    let over =
        matches!(current.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    let going = current.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if over || going {
        return plan;
    }
    let applied = Applied::read(current).unwrap_or_default();
    let mut want = Applied::of(&desired.json);

    let mut resize = resize(&desired.json, current, &applied);
    for (what, of, since) in [
        ("resources of the pod as a whole", &["resources"][..], RESIZES_WHOLE_SINCE),
        ("resources", &["initContainers", "containers"][..], RESIZES_SINCE),
    ] {
        if version < since && of.iter().filter(|field| resize.remove(**field).is_some()).count() > 0 {
            let message = format!(
                "{what} stay as they are: to change them needs Kubernetes {since}, the member has {version}"
            );
            plan.notices.push(Notice { reason: "MemberTooOld", message });
        }
    }
    if !resize.is_empty() {
        // Until they are seen in the member, the pod does not say that any resources were applied to these
        // containers: a write that gets lost is planned again, and so is one back to what there was before.
        for name in resize.values().flat_map(|list| items(Some(list))).filter_map(|c| text(c, "name")) {
            want.resources.remove(name);
        }
        if resize.contains_key("resources") {
            want.resources.remove(WHOLE);
        }
        plan.resize = Some(patch(current, Object::new(), resize));
    }

    let mut metadata = Object::new();
    let wanted =
        |field: &str| desired.json.pointer(field).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut annotations = wanted("/metadata/annotations");
    annotations.insert(marks::APPLIED.to_owned(), want.to_string().into());
    for (field, wanted, ours) in [
        ("labels", wanted("/metadata/labels"), &applied.labels),
        ("annotations", annotations, &applied.annotations),
    ] {
        let changes = map_changes(&wanted, current.pointer(&format!("/metadata/{field}")), ours);
        if !changes.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(changes));
        }
    }
    let mut spec = images(&desired.json, current, &applied);
    spec.extend(tolerations(&desired.json, current).map(|list| ("tolerations".to_owned(), list)));
    spec.extend(
        deadline(&desired.json, current).map(|seconds| ("activeDeadlineSeconds".to_owned(), seconds)),
    );
    if !metadata.is_empty() || !spec.is_empty() {
        plan.patch = Some(patch(current, metadata, spec));
    }

    let known = |container: &Value| {
        items(current.pointer("/spec/ephemeralContainers"))
            .any(|there| text(there, "name") == text(container, "name"))
    };
    let new: Vec<Value> = desired.ephemeral.iter().filter(|container| !known(container)).cloned().collect();
    if !new.is_empty() {
        let spec = Object::from_iter([("ephemeralContainers".to_owned(), Value::Array(new))]);
        plan.ephemeral = Some(patch(current, Object::new(), spec));
    }
    plan
}

fn patch(current: &Value, mut metadata: Object, spec: Object) -> Value {
    metadata.extend(current.pointer("/metadata/uid").map(|uid| ("uid".to_owned(), uid.clone())));
    let mut patch = json!({ "metadata": metadata });
    if !spec.is_empty() {
        patch["spec"] = Value::Object(spec);
    }
    patch
}

/// What to set, and what to take away: only what we once set ourselves.
fn map_changes(wanted: &Object, current: Option<&Value>, ours: &[String]) -> Object {
    let there = |key: &str| current.and_then(|map| map.get(key));
    let set =
        wanted.iter().filter(|(key, value)| there(key) != Some(value)).map(|(k, v)| (k.clone(), v.clone()));
    let gone = ours.iter().filter(|key| !wanted.contains_key(*key) && there(key).is_some());
    set.chain(gone.map(|key| (key.clone(), Value::Null))).collect()
}

/// The containers of a list by name.
fn by_name<'a>(pod: &'a Value, list: &str) -> BTreeMap<&'a str, &'a Value> {
    items(pod.pointer(&format!("/spec/{list}"))).filter_map(|c| Some((text(c, "name")?, c))).collect()
}

/// Images that changed since we last wrote them. One that only differs from ours was changed in the member, by a
/// webhook that mirrors registries for instance, and stays.
fn images(desired: &Value, current: &Value, applied: &Applied) -> Object {
    let mut changes = Object::new();
    for list in ["initContainers", "containers"] {
        let there = by_name(current, list);
        let changed: Vec<Value> = items(desired.pointer(&format!("/spec/{list}")))
            .filter_map(|container| {
                let (name, image) = (text(container, "name")?, text(container, "image")?);
                let ours = applied.images.get(name).map(String::as_str);
                let differs = ours != Some(image) && text(there.get(name)?, "image") != Some(image);
                differs.then(|| json!({ "name": name, "image": image }))
            })
            .collect();
        if !changed.is_empty() {
            changes.insert(list.to_owned(), Value::Array(changed));
        }
    }
    changes
}

/// CPU and memory that changed since we last wrote them.
fn resize(desired: &Value, current: &Value, applied: &Applied) -> Object {
    let mut changes = Object::new();
    for list in ["initContainers", "containers"] {
        let there = by_name(current, list);
        let mut changed = vec![];
        for (name, container) in by_name(desired, list) {
            let Some(there) = there.get(name) else { continue };
            if let Some(amounts) = resized(container, there, applied.resources.get(name)) {
                changed.push(json!({ "name": name, "resources": amounts }));
            }
        }
        if !changed.is_empty() {
            changes.insert(list.to_owned(), Value::Array(changed));
        }
    }
    let spec = |pod: &Value| pod.get("spec").cloned().unwrap_or_default();
    let whole = resized(&spec(desired), &spec(current), applied.resources.get(WHOLE));
    changes.extend(whole.map(|amounts| ("resources".to_owned(), amounts)));
    changes
}

/// What changed of the resources of one container, or of a whole pod.
fn resized(wanted: &Value, there: &Value, ours: Option<&Value>) -> Option<Value> {
    let there = resources(there);
    let mut amounts = json!({});
    for (kind, wanted) in members(Some(&resources(wanted))) {
        for (resource, amount) in members(Some(wanted)) {
            let at = |all: Option<&Value>| all.and_then(|all| all.get(kind)?.get(resource)).cloned();
            if at(Some(&there)).as_ref() != Some(amount) && at(ours).as_ref() != Some(amount) {
                amounts[kind][resource] = amount.clone();
            }
        }
    }
    (amounts != json!({})).then_some(amounts)
}

/// The list with what is missing in it. Tolerations can only be added, so those of the member stay; of one that is
/// there, the seconds may change. Two that differ in nothing else are one.
fn tolerations(desired: &Value, current: &Value) -> Option<Value> {
    let before: Vec<Value> = items(current.pointer("/spec/tolerations")).cloned().collect();
    let mut after = before.clone();
    for wanted in items(desired.pointer("/spec/tolerations")) {
        if after.contains(wanted) {
            continue;
        }
        match after.iter_mut().find(|there| same_but_seconds(there, wanted)) {
            Some(there) => {
                let seconds = |toleration: &Value| toleration.get("tolerationSeconds").cloned();
                if seconds(there) != seconds(wanted) {
                    *there = wanted.clone();
                }
            }
            None => after.push(wanted.clone()),
        }
    }
    (after != before).then_some(Value::Array(after))
}

fn same_but_seconds(a: &Value, b: &Value) -> bool {
    // The API server does not fill in the operator's default.
    let operator = |toleration: &Value| text(toleration, "operator").unwrap_or("Equal").to_owned();
    ["key", "value", "effect"].iter().all(|field| text(a, field) == text(b, field))
        && operator(a) == operator(b)
}

/// A deadline can be set or brought forward, not put off.
fn deadline(desired: &Value, current: &Value) -> Option<Value> {
    let seconds = |pod: &Value| pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    let wanted = seconds(desired)?;
    seconds(current).is_none_or(|there| wanted < there).then(|| wanted.into())
}

#[cfg(test)]
mod tests;
