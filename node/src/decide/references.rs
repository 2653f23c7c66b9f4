use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use crate::contract::Pod;

/// The kinds of object without which a container cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReferenceKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl fmt::Display for ReferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

/// An object that a pod names, in the pod's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// What it is.
    pub kind: ReferenceKind,
    /// Its name.
    pub name: String,
    /// Whether the pod can do without: only if every place that names it says so.
    pub optional: bool,
}

impl Reference {
    /// The reason of the Event that says it is missing, in the words virtual-kubelet's users know.
    pub const fn missing_reason(&self) -> &'static str {
        match (self.kind, self.optional) {
            (ReferenceKind::Secret, false) => "MandatorySecretNotFound",
            (ReferenceKind::ConfigMap, false) => "MandatoryConfigMapNotFound",
            (ReferenceKind::Secret, true) => "OptionalSecretNotFound",
            (ReferenceKind::ConfigMap, true) => "OptionalConfigMapNotFound",
        }
    }
}

/// Every ConfigMap and Secret that the containers of a pod need, each once.
pub fn references(pod: &Pod) -> Vec<Reference> {
    let mut found = Found::default();
    for container in pod.containers() {
        for env in items(container.get("env")) {
            found.note(ReferenceKind::ConfigMap, env.pointer("/valueFrom/configMapKeyRef"), "name");
            found.note(ReferenceKind::Secret, env.pointer("/valueFrom/secretKeyRef"), "name");
        }
        for source in items(container.get("envFrom")) {
            found.note(ReferenceKind::ConfigMap, source.get("configMapRef"), "name");
            found.note(ReferenceKind::Secret, source.get("secretRef"), "name");
        }
    }
    for volume in items(pod.spec().get("volumes")) {
        found.note(ReferenceKind::ConfigMap, volume.get("configMap"), "name");
        found.note(ReferenceKind::Secret, volume.get("secret"), "secretName");
        for source in items(volume.pointer("/projected/sources")) {
            found.note(ReferenceKind::ConfigMap, source.get("configMap"), "name");
            found.note(ReferenceKind::Secret, source.get("secret"), "name");
        }
    }
    found.0.into_iter().map(|((kind, name), optional)| Reference { kind, name, optional }).collect()
}

#[derive(Default)]
struct Found(BTreeMap<(ReferenceKind, String), bool>);

impl Found {
    fn note(&mut self, kind: ReferenceKind, source: Option<&Value>, name: &str) {
        let Some(source) = source else { return };
        let Some(name) = source.get(name).and_then(Value::as_str).filter(|n| !n.is_empty()) else {
            return;
        };
        let optional = source.get("optional").and_then(Value::as_bool).unwrap_or(false);
        self.0.entry((kind, name.to_owned())).and_modify(|all| *all &= optional).or_insert(optional);
    }
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "JSON literals read better without a reference")]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: Value) -> Vec<(ReferenceKind, String, bool)> {
        let metadata = json!({"namespace": "n", "name": "p", "uid": "u"});
        let pod = Pod::try_from(json!({"metadata": metadata, "spec": spec})).unwrap();
        references(&pod).into_iter().map(|r| (r.kind, r.name, r.optional)).collect()
    }

    #[test]
    fn every_place_that_can_name_one() {
        use ReferenceKind::{ConfigMap, Secret};
        let spec = json!({
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "c1"}}, {"secretRef": {"name": "s1"}}]}],
            "containers": [{"env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k", "optional": true}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                {"name": "C", "value": "plain"}]}],
            "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "s5", "optional": true}}]}],
            "volumes": [
                {"configMap": {"name": "c3"}}, {"secret": {"secretName": "s3", "optional": true}}, {"emptyDir": {}},
                {"projected": {"sources": [{"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}},
                                           {"serviceAccountToken": {"path": "token"}}]}}],
        });
        let expected = [
            (ConfigMap, "c1", false),
            (ConfigMap, "c2", true),
            (ConfigMap, "c3", false),
            (ConfigMap, "c4", false),
            (Secret, "s1", false),
            (Secret, "s2", false),
            (Secret, "s3", true),
            (Secret, "s4", false),
            (Secret, "s5", true),
        ];
        assert_eq!(of(spec), expected.map(|(kind, name, optional)| (kind, name.to_owned(), optional)));
    }

    #[test]
    fn one_mandatory_use_makes_it_mandatory() {
        let spec = json!({"containers": [{"envFrom": [{"secretRef": {"name": "s", "optional": true}}]},
                                         {"envFrom": [{"secretRef": {"name": "s"}}]}]});
        assert_eq!(of(spec), [(ReferenceKind::Secret, "s".to_owned(), false)]);
    }

    #[test]
    fn nonsense_is_no_reference() {
        assert_eq!(
            of(
                json!({"volumes": "x", "containers": [{"env": {"a": 1}}, 7, {"envFrom": [{"secretRef": {}}]}]})
            ),
            []
        );
    }
}
