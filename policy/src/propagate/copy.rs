//! An object as it is to be in one member, and what to do about what is there. No I/O.

use federlet_node::decide::digest;
use federlet_provider::{
    join::leave::release,
    marks,
    names::{HostId, MemberName},
    target::Anchor,
};
use serde_json::{Map, Value, json};

use crate::{api::ConflictResolution, retain};

/// Annotations of a copy with the overrides that made it: OverridePolicies, and ClusterOverridePolicies.
const APPLIED: [&str; 2] =
    ["policy.karmada.io/applied-overrides", "policy.karmada.io/applied-cluster-overrides"];

/// Whose copy it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ours<'a> {
    pub(super) host: &'a HostId,
    pub(super) node: &'a MemberName,
}

/// What a copy says beside what its template does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marking<'a> {
    pub(super) ours: Ours<'a>,
    /// The UID of the template.
    pub(super) uid: &'a str,
    /// The namespace on the host; empty for an object that has none. That of a Namespace is its name.
    pub(super) namespace: &'a str,
    /// The owner of all that we make in that namespace of the member. None where there is no namespace, and none for a
    /// copy that stays when we leave.
    pub(super) anchor: Option<&'a Anchor>,
    /// Whether it stays when the template goes.
    pub(super) preserve: bool,
    /// The OverridePolicies that changed it, and the ClusterOverridePolicies.
    pub(super) applied: [&'a [String]; 2],
}

/// What to do about a copy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// It is as it should be.
    Nothing,
    /// Somebody of ours looks after it: what is there serves.
    Leave,
    /// Send this.
    Apply(Value),
    /// Something else has the name.
    Conflict(String),
}

/// Puts our marks on an object that was made for a member.
pub(super) fn marked(mut object: Value, marking: &Marking<'_>) -> Value {
    let Marking { ours, uid, namespace, anchor, preserve, applied } = *marking;
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return object };
    let labels = entries(meta, "labels");
    for (label, value) in [
        (marks::HOST, ours.host.as_str()),
        (marks::NODE, ours.node.as_str()),
        (marks::HOST_UID, uid),
        (marks::PROPAGATED, "true"),
    ] {
        labels.insert(label.to_owned(), json!(value));
    }
    let annotations = entries(meta, "annotations");
    // It is about who runs the template.
    annotations.remove(marks::RUN_BY);
    if !namespace.is_empty() {
        annotations.insert(marks::HOST_NAMESPACE.to_owned(), json!(namespace));
    }
    if preserve {
        annotations.insert(marks::PRESERVED.to_owned(), json!("true"));
    }
    for (key, policies) in APPLIED.into_iter().zip(applied) {
        // What the template says about itself is not true of the copy.
        annotations.remove(key);
        if !policies.is_empty() {
            let list: Vec<Value> = policies.iter().map(|name| json!({ "policyName": name })).collect();
            annotations.insert(key.to_owned(), json!(Value::Array(list).to_string()));
        }
    }
    if let Some(anchor) = anchor {
        meta.insert("ownerReferences".into(), json!([anchor.owner_reference()]));
    }
    let sent = format!("{:016x}", digest(&object));
    object["metadata"]["annotations"][marks::SENT] = json!(sent);
    object
}

fn entries<'a>(meta: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let value = meta.entry(field).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("it was just made one"))
}

/// Decides what to do so that the member has `desired`, given what has its name there.
///
/// `settled` is the digest of what was there after `desired` was last sent: an API server or a webhook may have made
/// something of it that never equals it. `others` are the other virtual nodes that the object is for and that are in the
/// same cluster: an object without a namespace is there once for all of them.
pub(super) fn plan(
    desired: &Value,
    there: Option<&Value>,
    ours: Ours<'_>,
    settled: Option<u64>,
    others: &[&str],
    resolution: ConflictResolution,
) -> Plan {
    let Some(there) = there else { return Plan::Apply(desired.clone()) };
    let same_host = marks::label(there, marks::HOST) == Some(ours.host.as_str());
    let propagated = marks::is_propagated(there);
    if !marks::is_ours(there, ours.host, ours.node) {
        let node = marks::label(there, marks::NODE).unwrap_or_default();
        let shared = same_host && propagated && others.contains(&node);
        if shared {
            return shared_with(desired, there, node);
        }
        // Whoever had it in this cluster is not wanted there any more, or is us under a former name.
        let left_behind = same_host
            && propagated
            && marks::label(there, marks::HOST_UID) == marks::label(desired, marks::HOST_UID)
            && namespace(there).is_none();
        if !left_behind && resolution == ConflictResolution::Abort {
            return Plan::Conflict(conflict(there));
        }
    } else if !propagated && kind(desired) == "PersistentVolumeClaim" {
        // Pods use it, and their data is in it.
        return Plan::Leave;
    }
    let mut wanted = desired.clone();
    retain::retain_by_kind(&mut wanted, there);
    let sent = |object: &Value| marks::annotation(object, marks::SENT).map(str::to_owned);
    let same = sent(&wanted) == sent(there) && (settled == Some(content(there)) || holds(&wanted, there));
    if same { Plan::Nothing } else { Plan::Apply(wanted) }
}

/// What another virtual node of the same cluster has sent serves us as well, if it is the same.
fn shared_with(desired: &Value, there: &Value, node: &str) -> Plan {
    let plain = |object: &Value| {
        let mut object = object.clone();
        for (field, key) in
            [("labels", marks::NODE), ("annotations", marks::SENT), ("annotations", marks::PRESERVED)]
                .into_iter()
                .chain(APPLIED.map(|key| ("annotations", key)))
        {
            if let Some(map) =
                object.pointer_mut(&format!("/metadata/{field}")).and_then(Value::as_object_mut)
            {
                map.remove(key);
            }
        }
        object
    };
    if holds(&plain(desired), there) {
        return Plan::Leave;
    }
    Plan::Conflict(format!(
        "it has no namespace, and {node}, which is the same cluster, gets another form of it: no override may tell the two apart"
    ))
}

fn conflict(there: &Value) -> String {
    let whose = match marks::label(there, marks::HOST) {
        Some(_) => "was made for another host or virtual node",
        None => "was not made by federlet",
    };
    format!(
        "{} {} is there already and {whose}; it is left as it is: remove one of the two, or set conflictResolution: Overwrite",
        kind(there),
        there.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    )
}

fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

fn namespace(object: &Value) -> Option<&str> {
    object.pointer("/metadata/namespace").and_then(Value::as_str).filter(|name| !name.is_empty())
}

/// A digest of what somebody could have changed: without status, and without what each write changes.
pub(super) fn content(object: &Value) -> u64 {
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "managedFields", "generation", "creationTimestamp"] {
            meta.remove(field);
        }
    }
    digest(&object)
}

/// Whether all that is wanted is there. What others added is not looked at.
fn holds(wanted: &Value, there: &Value) -> bool {
    match (wanted, there) {
        (Value::Null, _) => true,
        (Value::Object(wanted), Value::Object(there)) => wanted.iter().all(|(key, value)| {
            let empty = match value {
                Value::Null => true,
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            };
            // API servers leave out what is empty.
            there.get(key).map_or(empty, |found| holds(value, found))
        }),
        (Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len() && wanted.iter().zip(there).all(|(a, b)| holds(a, b))
        }
        _ => wanted == there,
    }
}

/// A patch that makes exactly this copy nobody's: it stays as it is, and we do not know it any more.
pub(super) fn released(copy: &Value) -> Value {
    let mut patch = release();
    for field in ["uid", "resourceVersion"] {
        patch["metadata"][field] = copy.pointer(&format!("/metadata/{field}")).cloned().unwrap_or_default();
    }
    patch
}

/// A version that no object ever has: etcd counts writes from two.
const OF_NOTHING: &str = "1";

/// What is sent so that it changes exactly what was seen, or makes what was not there. Whatever has the name by now
/// without that anybody looked at it is left alone: an API server compares a version with that of what it has, and makes
/// what it does not have.
pub(super) fn only_onto(desired: &Value, there: Option<&Value>) -> Value {
    let mut sent = desired.clone();
    match there.and_then(|there| there.pointer("/metadata/uid")) {
        Some(uid) => sent["metadata"]["uid"] = uid.clone(),
        None => sent["metadata"]["resourceVersion"] = json!(OF_NOTHING),
    }
    sent
}

/// Whether an API server said that something else has the name, or nothing any more.
pub(super) fn is_another(code: u16, said: &str) -> bool {
    code == 409 || (code == 422 && said.contains("metadata.uid"))
}

/// Whether an API server will never change this object into what it should be, so that it must be made anew. Only for
/// kinds that lose nothing by it: a Service would lose its addresses.
pub(super) fn can_be_remade(kind: &str) -> bool {
    matches!(kind, "ConfigMap" | "Secret" | "RoleBinding" | "ClusterRoleBinding")
}

#[cfg(test)]
mod tests;
