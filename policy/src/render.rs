//! An object as one cluster gets it.

use federlet_provider::names::{MappingError, NamespaceMap};
use serde_json::{Value, json};

use crate::{
    api::Cluster,
    overrides::{self, Failure, Policy},
    prune, workload,
};

/// What one cluster gets of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its replicas; `None` for an object that has no such number.
    pub replicas: Option<u32>,
    /// Its part of the completions of a Job, if they are divided.
    pub completions: Option<u32>,
}

/// Why an object cannot be made for a cluster. Other clusters are not affected.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// An override failed.
    #[error(transparent)]
    Override(#[from] Failure),
    /// The namespace has no place in the member.
    #[error(transparent)]
    Namespace(#[from] MappingError),
}

/// Makes the object for one cluster: its part of the replicas, then what overrides say, without what belongs to the
/// host alone, in the namespace where the member has it.
pub fn render<'a>(
    template: &Value,
    part: Part,
    cluster: &Cluster,
    namespaces: &NamespaceMap,
    policies: impl IntoIterator<Item = Policy<'a>>,
) -> Result<overrides::Rendered, RenderError> {
    let mut object = template.clone();
    if let Some(replicas) = part.replicas {
        workload::set_replicas(&mut object, replicas);
    }
    if let Some(completions) = part.completions {
        workload::set_completions(&mut object, completions);
    }
    // Overrides have the last word, also on replicas.
    let mut rendered = overrides::render(&object, cluster, policies)?;
    prune::prune(&mut rendered.object);
    move_namespace(&mut rendered.object, namespaces)?;
    move_accounts(&mut rendered.object, namespaces)?;
    Ok(rendered)
}

fn move_namespace(object: &mut Value, namespaces: &NamespaceMap) -> Result<(), MappingError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let itself = text("apiVersion") == Some("v1") && text("kind") == Some("Namespace");
    let field = if itself { "name" } else { "namespace" };
    let Some(value) = object.pointer_mut(&format!("/metadata/{field}")) else { return Ok(()) };
    let Some(host) = value.as_str().filter(|name| !name.is_empty()) else { return Ok(()) };
    *value = json!(namespaces.map(host)?.as_str());
    Ok(())
}

/// A binding is about the account in the namespace that the member has for it, not about one of the same name next to it.
fn move_accounts(object: &mut Value, namespaces: &NamespaceMap) -> Result<(), MappingError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let binds = text("apiVersion").starts_with("rbac.authorization.k8s.io/")
        && matches!(text("kind"), "RoleBinding" | "ClusterRoleBinding");
    // Where namespaces have the same names, all accounts do, also those in namespaces that nothing is copied to.
    let moves = *namespaces != NamespaceMap::same();
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut).filter(|_| binds && moves);
    for subject in subjects.into_iter().flatten().filter(|one| one["kind"] == "ServiceAccount") {
        let Some(value) = subject.get_mut("namespace") else { continue };
        let Some(host) = value.as_str().filter(|name| !name.is_empty()) else { continue };
        *value = json!(namespaces.map(host)?.as_str());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{affinity::tests::cluster, api::OverrideSpec};

    fn override_with(plaintext: Value) -> OverrideSpec {
        serde_json::from_value(json!({"overrideRules": [{"overriders": {"plaintext": plaintext}}]})).unwrap()
    }

    fn rendered(
        object: Value,
        part: Part,
        spec: &OverrideSpec,
        map: &NamespaceMap,
    ) -> Result<Value, RenderError> {
        let m1 = cluster("m1", json!({}), json!({}));
        let policy = Policy { namespace: None, name: "p", spec };
        Ok(render(&object, part, &m1, map, [policy])?.object)
    }

    #[test]
    fn overrides_come_after_replicas_and_before_pruning() {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "shop", "uid": "u"}, "spec": {}});
        let part = Part { replicas: Some(3), completions: None };
        let same = NamespaceMap::same();
        let found = rendered(deployment.clone(), part, &override_with(json!([])), &same).unwrap();
        assert_eq!(found["spec"]["replicas"], 3);
        assert_eq!(found.pointer("/metadata/uid"), None);
        let change = json!([
            {"path": "/spec/replicas", "operator": "replace", "value": 9},
            {"path": "/metadata/finalizers", "operator": "add", "value": ["mine"]},
        ]);
        let found = rendered(deployment, part, &override_with(change), &same).unwrap();
        assert_eq!(found["spec"]["replicas"], 9);
        assert_eq!(found.pointer("/metadata/finalizers"), None);
    }

    #[test]
    fn a_jobs_completions_are_divided_only_if_it_has_some() {
        let part = Part { replicas: Some(2), completions: Some(5) };
        for (spec, expected) in [
            (json!({"completions": 9, "parallelism": 4}), json!({"completions": 5, "parallelism": 2})),
            (json!({}), json!({"parallelism": 2})),
        ] {
            let job =
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec});
            let found = rendered(job, part, &override_with(json!([])), &NamespaceMap::same()).unwrap();
            assert_eq!(found["spec"], expected);
        }
    }

    #[test]
    fn a_region_has_namespaces_of_its_own() {
        let map = NamespaceMap::suffix("-ke-beijing-cluster").unwrap();
        let none = override_with(json!([]));
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "edge"}});
        let found = rendered(service, Part::default(), &none, &map).unwrap();
        assert_eq!(found["metadata"]["namespace"], "edge-ke-beijing-cluster");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "edge"}});
        let found = rendered(namespace, Part::default(), &none, &map).unwrap();
        assert_eq!(found["metadata"]["name"], "edge-ke-beijing-cluster");
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"}});
        assert_eq!(rendered(role.clone(), Part::default(), &none, &map).unwrap(), role);
    }

    #[test]
    fn a_binding_is_about_the_accounts_of_the_region() {
        let map = NamespaceMap::suffix("-ke-beijing-cluster").unwrap();
        let none = override_with(json!([]));
        let binding = |kind: &str, namespace: &str| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}, "subjects": [
                {"kind": "ServiceAccount", "name": "app", "namespace": namespace}, {"kind": "Group", "name": "edge"}]})
        };
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            let found = rendered(binding(kind, "edge"), Part::default(), &none, &map).unwrap();
            assert_eq!(found, binding(kind, "edge-ke-beijing-cluster"));
            let system = binding(kind, "kube-system");
            assert_eq!(
                rendered(system.clone(), Part::default(), &none, &NamespaceMap::same()).unwrap(),
                system
            );
        }
    }

    #[test]
    fn failures_name_the_rule() {
        let broken =
            override_with(json!([{"path": "/spec/nowhere/else", "operator": "replace", "value": 1}]));
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let error = rendered(object, Part::default(), &broken, &NamespaceMap::same()).unwrap_err();
        assert_eq!(error.to_string(), "rule 0 of override policy p failed");
        let reserved = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "kube-public"}});
        assert!(
            rendered(reserved, Part::default(), &override_with(json!([])), &NamespaceMap::same()).is_err()
        );
    }
}
