//! Whether an object works in the cluster it is in.

use serde_json::Value;

use crate::api::ResourceHealth;

/// The health of a member's object, from its spec and status. `Unknown` for kinds that nobody can tell it of.
#[must_use]
pub fn health(object: &Value) -> ResourceHealth {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let wanted = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let observed = number("/status/observedGeneration") >= number("/metadata/generation");
    let has_ingress = || {
        let ingress = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
        ingress.is_some_and(|ingress| !ingress.is_empty())
    };
    let healthy = match (text("/apiVersion"), text("/kind")) {
        ("apps/v1", "Deployment" | "StatefulSet") => {
            let updated = number("/status/updatedReplicas");
            observed && updated >= wanted && number("/status/availableReplicas") >= updated
        }
        ("apps/v1", "ReplicaSet") => observed && number("/status/availableReplicas") >= wanted,
        ("apps/v1", "DaemonSet") => {
            let updated = number("/status/updatedNumberScheduled");
            observed
                && updated >= number("/status/desiredNumberScheduled")
                && number("/status/numberAvailable") >= updated
        }
        ("v1", "Service") => text("/spec/type") != "LoadBalancer" || has_ingress(),
        ("networking.k8s.io/v1", "Ingress") => has_ingress(),
        ("v1", "PersistentVolumeClaim") => text("/status/phase") == "Bound",
        ("v1", "Pod") => match text("/status/phase") {
            "Succeeded" => true,
            "Running" => {
                let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
                let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
                conditions.is_some_and(|conditions| conditions.iter().any(ready))
            }
            _ => false,
        },
        ("policy/v1", "PodDisruptionBudget") => {
            number("/status/currentHealthy") >= number("/status/desiredHealthy")
        }
        _ => return ResourceHealth::Unknown,
    };
    if healthy { ResourceHealth::Healthy } else { ResourceHealth::Unhealthy }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables() {
        use ResourceHealth::{Healthy, Unhealthy, Unknown};
        let apps = "apps/v1";
        for (api_version, kind, spec, status, expected) in [
            (
                apps,
                "Deployment",
                json!({"replicas": 2}),
                json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                Healthy,
            ),
            (
                apps,
                "Deployment",
                json!({"replicas": 2}),
                json!({"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}),
                Unhealthy,
            ),
            (
                apps,
                "Deployment",
                json!({"replicas": 2}),
                json!({"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 2}),
                Unhealthy,
            ),
            (
                apps,
                "StatefulSet",
                json!({}),
                json!({"observedGeneration": 2, "updatedReplicas": 1}),
                Unhealthy,
            ),
            (apps, "Deployment", json!({"replicas": 0}), json!({"observedGeneration": 2}), Healthy),
            (
                apps,
                "ReplicaSet",
                json!({"replicas": 1}),
                json!({"observedGeneration": 2, "availableReplicas": 1}),
                Healthy,
            ),
            (
                apps,
                "DaemonSet",
                json!({}),
                json!({"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}),
                Unhealthy,
            ),
            (
                apps,
                "DaemonSet",
                json!({}),
                json!({"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}),
                Healthy,
            ),
            ("v1", "Service", json!({"type": "ClusterIP"}), json!({}), Healthy),
            (
                "v1",
                "Service",
                json!({"type": "LoadBalancer"}),
                json!({"loadBalancer": {"ingress": []}}),
                Unhealthy,
            ),
            (
                "v1",
                "Service",
                json!({"type": "LoadBalancer"}),
                json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
                Healthy,
            ),
            ("networking.k8s.io/v1", "Ingress", json!({}), json!({}), Unhealthy),
            ("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Bound"}), Healthy),
            ("v1", "Pod", json!({}), json!({"phase": "Succeeded"}), Healthy),
            (
                "v1",
                "Pod",
                json!({}),
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
                Unhealthy,
            ),
            (
                "v1",
                "Pod",
                json!({}),
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
                Healthy,
            ),
            (
                "policy/v1",
                "PodDisruptionBudget",
                json!({}),
                json!({"currentHealthy": 1, "desiredHealthy": 2}),
                Unhealthy,
            ),
            ("v1", "ConfigMap", json!({}), json!({}), Unknown),
            ("batch/v1", "Job", json!({}), json!({"succeeded": 1}), Unknown),
        ] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"generation": 2}, "spec": spec, "status": status});
            assert_eq!(health(&object), expected, "{object}");
        }
        assert_eq!(health(&json!(null)), Unknown);
    }
}
