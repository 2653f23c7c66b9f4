//! What an object refers to and cannot do without.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::workload;

/// An object that another refers to. It is in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependency {
    /// Kind, of `v1`.
    pub kind: &'static str,
    /// Name.
    pub name: String,
}

/// Collects references, skipping names that are missing or empty.
#[derive(Default)]
struct Found(BTreeSet<Dependency>);

impl Found {
    fn add(&mut self, kind: &'static str, name: Option<&Value>) {
        if let Some(name) = name.and_then(Value::as_str).filter(|name| !name.is_empty()) {
            self.0.insert(Dependency { kind, name: name.to_owned() });
        }
    }
}

/// The ConfigMaps, Secrets, ServiceAccounts and claims that an object refers to.
#[must_use]
pub fn dependencies(object: &Value) -> BTreeSet<Dependency> {
    let mut found = Found::default();
    if let Some(path) = workload::pod_path_of(object) {
        if let Some(spec) = object.pointer(&format!("{path}/spec")) {
            pod(spec, &claim_templates(object), &mut found);
        }
    } else if object.get("kind").and_then(Value::as_str) == Some("Ingress") {
        for tls in list(object.pointer("/spec/tls")) {
            found.add("Secret", tls.get("secretName"));
        }
    }
    found.0
}

fn pod(spec: &Value, made: &BTreeSet<&str>, found: &mut Found) {
    for volume in list(spec.get("volumes")) {
        // A StatefulSet makes the claim of such a volume itself.
        let own = volume.get("name").and_then(Value::as_str).is_some_and(|name| made.contains(name));
        if !own {
            self::volume(volume, found);
        }
    }
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list(spec.get(containers)) {
            for variable in list(container.get("env")) {
                found.add("ConfigMap", variable.pointer("/valueFrom/configMapKeyRef/name"));
                found.add("Secret", variable.pointer("/valueFrom/secretKeyRef/name"));
            }
            for source in list(container.get("envFrom")) {
                found.add("ConfigMap", source.pointer("/configMapRef/name"));
                found.add("Secret", source.pointer("/secretRef/name"));
            }
        }
    }
    for secret in list(spec.get("imagePullSecrets")) {
        found.add("Secret", secret.get("name"));
    }
    let account = spec.get("serviceAccountName").filter(|name| name.as_str() != Some("default"));
    found.add("ServiceAccount", account);
}

fn volume(volume: &Value, found: &mut Found) {
    found.add("ConfigMap", volume.pointer("/configMap/name"));
    found.add("Secret", volume.pointer("/secret/secretName"));
    found.add("Secret", volume.pointer("/azureFile/secretName"));
    found.add("Secret", volume.pointer("/csi/nodePublishSecretRef/name"));
    found.add("PersistentVolumeClaim", volume.pointer("/persistentVolumeClaim/claimName"));
    for driver in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
        found.add("Secret", volume.pointer(&format!("/{driver}/secretRef/name")));
    }
    for source in list(volume.pointer("/projected/sources")) {
        found.add("ConfigMap", source.pointer("/configMap/name"));
        found.add("Secret", source.pointer("/secret/name"));
    }
}

/// Names of the claims that a StatefulSet makes for its pods.
fn claim_templates(object: &Value) -> BTreeSet<&str> {
    let templates = list(object.pointer("/spec/volumeClaimTemplates"));
    templates.filter_map(|template| template.pointer("/metadata/name")?.as_str()).collect()
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(object: &Value) -> Vec<String> {
        dependencies(object).into_iter().map(|one| format!("{}/{}", one.kind, one.name)).collect()
    }

    #[test]
    fn everything_a_pod_refers_to() {
        let spec = json!({
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}, {}],
            "volumes": [
                {"name": "a", "configMap": {"name": "cm"}},
                {"name": "b", "secret": {"secretName": "s"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "pvc"}},
                {"name": "d", "projected": {"sources": [{"configMap": {"name": "cm2"}}, {"secret": {"name": "s2"}}, {"serviceAccountToken": {}}]}},
                {"name": "e", "csi": {"nodePublishSecretRef": {"name": "s3"}}},
                {"name": "f", "rbd": {"secretRef": {"name": "s4"}}},
                {"name": "g", "azureFile": {"secretName": "s5"}},
                {"name": "h", "emptyDir": {}},
            ],
            "containers": [{"name": "x", "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm3"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s6"}}},
                {"name": "C", "value": "1"},
            ]}],
            "initContainers": [{"name": "y", "envFrom": [{"configMapRef": {"name": "cm4"}}, {"secretRef": {"name": "s7"}}]}],
        });
        let expected = [
            "ConfigMap/cm",
            "ConfigMap/cm2",
            "ConfigMap/cm3",
            "ConfigMap/cm4",
            "PersistentVolumeClaim/pvc",
            "Secret/pull",
            "Secret/s",
            "Secret/s2",
            "Secret/s3",
            "Secret/s4",
            "Secret/s5",
            "Secret/s6",
            "Secret/s7",
            "ServiceAccount/robot",
        ];
        for object in [
            json!({"apiVersion": "v1", "kind": "Pod", "spec": spec}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": spec}}}),
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
        ] {
            assert_eq!(names(&object), expected);
        }
    }

    #[test]
    fn what_needs_no_following() {
        let own = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "template": {"spec": {"serviceAccountName": "default", "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "other", "persistentVolumeClaim": {"claimName": "other"}},
            ]}},
        }});
        assert_eq!(names(&own), ["PersistentVolumeClaim/other"]);
        let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {"tls": [{"secretName": "tls"}, {}]}});
        assert_eq!(names(&ingress), ["Secret/tls"]);
        assert_eq!(
            names(&json!({"apiVersion": "v1", "kind": "Pod", "spec": {"volumes": "odd"}})),
            Vec::<String>::new()
        );
        assert_eq!(names(&json!(null)), Vec::<String>::new());
    }
}
