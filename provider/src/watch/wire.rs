//! Objects as a watch brings them: read once into what we keep, so that the rest is never held.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{ClusterResourceScope, NamespaceResourceScope},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    capacity::{MemberNode, requests},
    json::text,
    marks,
};

/// A pod of the member: whole if some host of ours sent it, else only its name and what it holds.
#[derive(Clone, Debug)]
pub(super) struct WirePod {
    metadata: ObjectMeta,
    /// The pod, if it carries our mark.
    pub(super) marked: Option<Box<Value>>,
    /// The machine it is on, and what it holds there.
    pub(super) load: Option<(Box<str>, crate::capacity::Resources)>,
}

/// A node of the member.
#[derive(Clone, Debug)]
pub(super) struct WireNode {
    metadata: ObjectMeta,
    pub(super) node: Option<MemberNode>,
}

/// What the watcher itself needs.
fn bare(json: &Value) -> ObjectMeta {
    let field = |field: &str| json.get("metadata").and_then(|m| text(m, field)).map(str::to_owned);
    ObjectMeta {
        name: field("name"),
        namespace: field("namespace"),
        resource_version: field("resourceVersion"),
        ..ObjectMeta::default()
    }
}

impl<'de> Deserialize<'de> for WirePod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        let over =
            matches!(json.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
        let machine = json.get("spec").and_then(|spec| text(spec, "nodeName")).filter(|_| !over);
        let load = machine.map(|machine| (machine.into(), requests(&json)));
        let metadata = bare(&json);
        let marked = marks::label(&json, marks::HOST).is_some().then(|| Box::new(json));
        Ok(Self { metadata, marked, load })
    }
}

impl<'de> Deserialize<'de> for WireNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        Ok(Self { metadata: bare(&json), node: MemberNode::read(&json) })
    }
}

macro_rules! core_resource {
    ($name:ident, $scope:ident, $kind:literal, $plural:literal) => {
        impl Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                "".into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

core_resource!(WirePod, NamespaceResourceScope, "Pod", "pods");
core_resource!(WireNode, ClusterResourceScope, "Node", "nodes");
