use std::sync::Arc;

use federlet_node::{PackedJson, contract::PodKey};
use serde_json::{Map, Value, json};

use crate::{
    json::{Object, items, text},
    marks,
    names::{HostId, NamespaceMap},
};

/// Where a pod is in the member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Slot {
    /// A place by its names.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// A pod of this host in the member, as far as a decision about it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OurPod {
    slot: Slot,
    node: Arc<str>,
    uid: Box<str>,
    host_uid: Box<str>,
    host_namespace: Option<Box<str>>,
    host_name: Option<Box<str>>,
    version: u64,
    json: PackedJson,
}

/// Parts of the spec that a later decision looks at.
const SPEC: [&str; 6] = [
    "nodeName",
    "tolerations",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "restartPolicy",
    "resources",
];

/// Parts of the metadata.
const METADATA: [&str; 9] = [
    "namespace",
    "name",
    "uid",
    "labels",
    "annotations",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

impl OurPod {
    /// Reads a pod of the member. None if this host did not send it.
    pub fn read(pod: &Value, host: &HostId) -> Option<Self> {
        if marks::label(pod, marks::HOST) != Some(host.as_str()) {
            return None;
        }
        let metadata = pod.get("metadata")?;
        let version = text(metadata, "resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        Some(Self {
            slot: Slot::new(text(metadata, "namespace")?, text(metadata, "name")?),
            node: marks::label(pod, marks::NODE)?.into(),
            uid: text(metadata, "uid").unwrap_or_default().into(),
            host_uid: marks::label(pod, marks::HOST_UID)?.into(),
            host_namespace: marks::annotation(pod, marks::HOST_NAMESPACE).map(Into::into),
            host_name: marks::annotation(pod, marks::HOST_NAME).map(Into::into),
            version,
            json: PackedJson::new(&reduced(pod)),
        })
    }

    /// Where it is.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The virtual node that it came through.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The UID that it has in the member.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The UID that its pod has on the host.
    pub fn host_uid(&self) -> &str {
        &self.host_uid
    }

    /// The namespace that it says it has on the host.
    pub fn host_namespace(&self) -> Option<&str> {
        self.host_namespace.as_deref()
    }

    /// The name that it has on the host.
    pub fn host_name(&self) -> &str {
        self.host_name.as_deref().unwrap_or(&self.slot.name)
    }

    /// Its key on the host. What its annotations say is believed only if the mapping leads back to it.
    pub fn host_key(&self, namespaces: &NamespaceMap) -> Option<PodKey> {
        let annotations = match self.host_namespace() {
            Some(namespace) => json!({ marks::HOST_NAMESPACE: namespace }),
            None => json!({}),
        };
        let namespace = namespaces.host_namespace(&self.slot.namespace, &annotations)?;
        Some(PodKey::new(namespace, self.host_name()))
    }

    /// Whether this was seen later than the other. Versions of one API server grow, though nobody promised; one that
    /// is not a number counts as newer.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        self.version == 0 || self.version >= other.version
    }

    /// What is known of it, as JSON.
    pub fn json(&self) -> Value {
        self.json.open()
    }
}

/// The pod without what nobody will ask for.
fn reduced(pod: &Value) -> Value {
    let part = |parent: &str, fields: &[&str]| -> Object {
        let parent = pod.get(parent).and_then(Value::as_object);
        let take = |field: &&str| Some(((*field).to_owned(), parent?.get(*field)?.clone()));
        fields.iter().filter_map(take).collect()
    };
    let mut spec = part("spec", &SPEC);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers: Vec<Value> =
            items(pod.pointer(&format!("/spec/{list}"))).map(|container| pick(container, list)).collect();
        if !containers.is_empty() {
            spec.insert(list.to_owned(), containers.into());
        }
    }
    json!({
        "metadata": part("metadata", &METADATA),
        "spec": spec,
        "status": pod.get("status").cloned().unwrap_or_default(),
    })
}

fn pick(container: &Value, list: &str) -> Value {
    let fields: &[&str] = if list == "ephemeralContainers" {
        &["name"]
    } else {
        &["name", "image", "resources", "restartPolicy"]
    };
    let kept: Map<String, Value> = fields
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), container.get(*field)?.clone())))
        .collect();
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_not_kept() {
        let host = HostId::new("h").unwrap();
        let pod = |labels: Value| {
            json!({"metadata": {"namespace": "n", "name": "p", "uid": "u", "labels": labels, "resourceVersion": "7"},
                   "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "secret"}]}]}})
        };
        for foreign in [json!({}), json!({"federlet.io/host": "other"}), json!({"federlet.io/host": "h"})] {
            assert_eq!(OurPod::read(&pod(foreign), &host), None);
        }
        let labels = json!({"federlet.io/host": "h", "federlet.io/node": "m", "federlet.io/host-uid": "1"});
        let ours = OurPod::read(&pod(labels), &host).unwrap();
        assert_eq!((ours.node(), ours.host_uid(), ours.slot()), ("m", "1", &Slot::new("n", "p")));
        assert_eq!(ours.json()["spec"]["containers"], json!([{"name": "c", "image": "i"}]));
    }
}
