//! What was last asked of the member, written on the pod itself.
//!
//! Webhooks of the member change pods: another registry, other resources, more labels. Compared with the pod as it
//! is, every such change would look like ours to undo, again and again. Compared with what we asked, it does not.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use crate::{
    json::{items, members, text},
    marks,
    quantity::Quantity,
};

/// Resources that can change while a container runs.
pub(crate) const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// The parts of a pod that may change later, in short.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Applied {
    /// Keys of labels.
    pub(crate) labels: Vec<String>,
    /// Keys of annotations.
    pub(crate) annotations: Vec<String>,
    /// Images by container.
    pub(crate) images: BTreeMap<String, String>,
    /// Resources by container, and those of the pod as a whole by [`WHOLE`].
    pub(crate) resources: BTreeMap<String, Value>,
    /// Ephemeral containers that the member did not allow, so that their user hears of each once.
    pub(crate) refused: Vec<String>,
}

/// Stands for the pod where a container's name would: no container has this one.
pub(crate) const WHOLE: &str = "";

impl Applied {
    /// Of a pod as we send it. What of it was refused is not in it, but written on it.
    pub(crate) fn of(pod: &Value) -> Self {
        let keys = |field| members(pod.pointer(field)).map(|(key, _)| key.clone()).collect();
        let mut applied = Self {
            labels: keys("/metadata/labels"),
            annotations: keys("/metadata/annotations"),
            refused: Self::read(pod).map(|written| written.refused).unwrap_or_default(),
            ..Self::default()
        };
        applied.annotations.retain(|key| key != marks::APPLIED);
        let whole = pod.get("spec").map(resources).filter(|whole| *whole != json!({}));
        applied.resources.extend(whole.map(|whole| (WHOLE.to_owned(), whole)));
        for list in ["/spec/initContainers", "/spec/containers"] {
            for container in items(pod.pointer(list)) {
                let Some(name) = text(container, "name") else { continue };
                if let Some(image) = text(container, "image") {
                    applied.images.insert(name.to_owned(), image.to_owned());
                }
                let resources = resources(container);
                if resources != json!({}) {
                    applied.resources.insert(name.to_owned(), resources);
                }
            }
        }
        applied
    }

    /// As it was written on the pod. Whoever changed it there only makes us write once more.
    pub(crate) fn read(pod: &Value) -> Option<Self> {
        let json: Value = serde_json::from_str(marks::annotation(pod, marks::APPLIED)?).ok()?;
        let keys =
            |field: &str| items(json.get(field)).filter_map(|k| k.as_str().map(str::to_owned)).collect();
        Some(Self {
            labels: keys("labels"),
            annotations: keys("annotations"),
            images: members(json.get("images"))
                .filter_map(|(name, image)| Some((name.clone(), image.as_str()?.to_owned())))
                .collect(),
            resources: members(json.get("resources")).map(|(name, r)| (name.clone(), r.clone())).collect(),
            refused: keys("refused"),
        })
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut json =
            json!({ "labels": self.labels, "annotations": self.annotations, "images": self.images });
        if !self.resources.is_empty() {
            json["resources"] = json!(self.resources);
        }
        if !self.refused.is_empty() {
            json["refused"] = json!(self.refused);
        }
        json.fmt(f)
    }
}

/// CPU and memory of a container, or of a pod's spec, printed canonically: `1` and `1000m` are the same.
pub(crate) fn resources(container: &Value) -> Value {
    let mut found = json!({});
    for kind in ["requests", "limits"] {
        for resource in RESIZABLE {
            let amount = container.pointer(&format!("/resources/{kind}/{resource}")).and_then(amount);
            if let Some(amount) = amount {
                found[kind][resource] = amount.to_string().into();
            }
        }
    }
    found
}

/// A quantity, which JSON may also hold as a number.
pub(crate) fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}
