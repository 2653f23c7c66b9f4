use std::collections::BTreeMap;

use serde_json::Value;

use super::{Resources, Taint};
use crate::{
    json::{is_true, items, members, text},
    selector::Selector,
};

/// A node of the member, as far as it matters here.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberNode {
    /// Its name.
    pub name: Box<str>,
    /// Whether it says that it is Ready.
    pub ready: bool,
    /// Whether nobody cordoned it.
    pub schedulable: bool,
    /// Whether it is itself a cluster behind a virtual kubelet. Those are left to their own host.
    pub is_virtual: bool,
    /// Its labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What the machine has.
    pub capacity: Resources,
    /// What of it pods can have.
    pub allocatable: Resources,
    /// Features that its kubelet declares.
    pub features: Vec<Box<str>>,
}

impl MemberNode {
    /// Reads a node. None if it has no name.
    pub fn read(node: &Value) -> Option<Self> {
        let metadata = node.get("metadata")?;
        let status = node.get("status").unwrap_or(&Value::Null);
        let ready = items(status.get("conditions"))
            .any(|c| text(c, "type") == Some("Ready") && text(c, "status") == Some("True"));
        let labels: BTreeMap<Box<str>, Box<str>> = members(metadata.get("labels"))
            .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
            .collect();
        let is_virtual = labels.get("type").is_some_and(|kind| &**kind == "virtual-kubelet");
        Some(Self {
            name: text(metadata, "name")?.into(),
            ready: ready && metadata.get("deletionTimestamp").is_none_or(Value::is_null),
            schedulable: !is_true(node.pointer("/spec/unschedulable")),
            is_virtual,
            labels,
            taints: items(node.pointer("/spec/taints")).filter_map(Taint::read).collect(),
            capacity: Resources::read(status.get("capacity")),
            allocatable: Resources::read(status.get("allocatable")),
            features: items(status.get("declaredFeatures"))
                .filter_map(Value::as_str)
                .map(Into::into)
                .collect(),
        })
    }

    /// Whether it is of this region.
    pub fn is_in(&self, region: &Selector) -> bool {
        region.selects(|key| self.labels.get(key).map(|value| &**value))
    }
}
