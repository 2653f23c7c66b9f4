//! Any Kubernetes object, as far as policies look at it.

use std::collections::BTreeMap;

use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

/// What a policy can select an object by, and what marks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// API version, such as `apps/v1`.
    pub api_version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Namespace; empty for an object that has none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Identity {
    /// Reads it from an object in JSON. What is missing or of another type is empty.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            labels: strings(object.pointer("/metadata/labels")),
            annotations: strings(object.pointer("/metadata/annotations")),
        }
    }

    /// The API group, empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// An object as an API server gave it, with the kind that answers leave out, and without the bookkeeping of server-side
/// apply.
#[must_use]
pub fn whole(resource: &ApiResource, mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    let mut json = serde_json::to_value(object).unwrap_or_default();
    json["apiVersion"] = resource.api_version.as_str().into();
    json["kind"] = resource.kind.as_str().into();
    json
}

impl From<&DynamicObject> for Identity {
    fn from(object: &DynamicObject) -> Self {
        let types = object.types.clone().unwrap_or_default();
        let meta = object.metadata.clone();
        Self {
            api_version: types.api_version,
            kind: types.kind,
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
        }
    }
}

/// A map of strings, without the entries that are none.
fn strings(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
