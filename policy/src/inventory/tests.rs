use serde_json::json;

use super::*;

fn object(api_version: &str, kind: &str, metadata: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

#[test]
fn what_is_no_object_says_so() {
    for (given, missing) in [
        (json!("text"), "apiVersion"),
        (json!({"apiVersion": "v1"}), "kind"),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "metadata/name"),
        (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}}), "metadata/name"),
        (json!({"apiVersion": "v1", "kind": 7, "metadata": {"name": "a"}}), "kind"),
    ] {
        assert_eq!(Inventory::default().add(given), Err(Refusal::NoObject(missing)));
    }
}

#[test]
fn what_an_api_server_would_refuse_is_refused() {
    let policy = |spec: Value| json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "p"}, "spec": spec});
    let selectors = json!([{"apiVersion": "v1", "kind": "Service"}]);
    for (given, text) in [
        (
            policy(json!({})),
            "PropagationPolicy default/p is not understood: missing field `resourceSelectors`",
        ),
        (
            policy(
                json!({"resourceSelectors": selectors, "placement": {"clusterAffinity": {}, "clusterAffinities": [{"affinityName": "a"}]}}),
            ),
            "PropagationPolicy default/p is refused: spec.placement: clusterAffinities cannot co-exist with clusterAffinity",
        ),
        (
            policy(
                json!({"resourceSelectors": selectors, "placement": {"clusterAffinity": {"clusterName": ["m1"]}}}),
            ),
            "PropagationPolicy default/p is refused: spec.placement.clusterAffinity.clusterName: unknown field",
        ),
        (
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "spec": {}, "metadata": {"name": "m1", "annotations": {"federlet.io/available-replicas": "many"}}}),
            "Cluster m1 is refused: annotation federlet.io/available-replicas is \"many\": give a whole number of replicas",
        ),
        (
            object("policy.karmada.io/v9", "OverridePolicy", json!({"name": "a"})),
            "OverridePolicy default/a is not understood: version policy.karmada.io/v9 is not known",
        ),
        (
            object("v1", "Secret", json!({"name": "a", "labels": {"x": 1}})),
            "Secret default/a is not understood: invalid type: integer `1`, expected a string",
        ),
    ] {
        assert_eq!(Inventory::default().add(given).unwrap_err().to_string(), text);
    }
}

#[test]
fn what_an_api_server_took_is_not_refused_for_its_fields() {
    let newer = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy", "metadata": {"name": "p"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Service"}], "newer": true}});
    assert!(Inventory::default().add(newer.clone()).is_err());
    assert_eq!(Inventory::stored().add(newer), Ok(()));
}

#[test]
fn lists_are_their_items() {
    let inner = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod"}]});
    let outer = json!({"apiVersion": "v1", "kind": "ServiceList", "items": [inner, {"kind": "Service"}]});
    assert_eq!(flatten(outer), [json!({"kind": "Pod"}), json!({"kind": "Service"})]);
    // A kind may be called so.
    assert_eq!(flatten(json!({"kind": "AccessList"})), [json!({"kind": "AccessList"})]);
}

#[test]
fn twice_is_an_error_unless_it_is_the_same() {
    let mut inventory = Inventory::default();
    let one = object("v1", "Service", json!({"name": "a"}));
    assert_eq!(inventory.add(one.clone()), Ok(()));
    assert_eq!(inventory.add(one), Ok(()));
    let other = object("v1", "Service", json!({"name": "a", "namespace": "default", "labels": {"x": "y"}}));
    assert_eq!(inventory.add(other).unwrap_err().to_string(), "Service default/a is given twice");
    assert_eq!(inventory.templates().len(), 1);
}

#[test]
fn a_binding_is_about_an_object_of_its_own_namespace() {
    let mut inventory = Inventory::default();
    let binding = |name: &str, resource: Value| {
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"resource": resource, "clusters": [{"name": "m1", "replicas": 2}]}})
    };
    for given in [
        object("apps/v1", "Deployment", json!({"name": "web", "namespace": "shop"})),
        binding("web-deployment", json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})),
        binding("db-deployment", json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "db"})),
    ] {
        inventory.add(given).unwrap();
    }
    let previous = inventory.previous(&Key::of(&inventory.templates()[0]));
    assert_eq!(previous.shares.get("m1"), Some(&2));
    let idle: Vec<String> =
        inventory.idle_bindings().iter().map(|(binding, of)| format!("{binding}: {of}")).collect();
    assert_eq!(idle, ["ResourceBinding shop/db-deployment: Deployment shop/db"]);
}

#[test]
fn where_objects_without_a_namespace_are() {
    let mut inventory = Inventory::default();
    let definition = |kind: &str, scope: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": kind},
            "spec": {"group": "example.com", "scope": scope, "names": {"kind": kind}}})
    };
    for given in [
        object("apps/v1", "Deployment", json!({"name": "a"})),
        object("rbac.authorization.k8s.io/v1", "ClusterRole", json!({"name": "b", "namespace": "x"})),
        object("example.com/v1", "Car", json!({"name": "c"})),
        object("example.com/v1", "Road", json!({"name": "d"})),
        object("example.com/v1", "Unknown", json!({"name": "e"})),
        object("gateway.networking.k8s.io/v1", "Gateway", json!({"name": "f", "namespace": "x"})),
        definition("Car", "Namespaced"),
        definition("Road", "Cluster"),
    ] {
        inventory.add(given).unwrap();
    }
    let namespaces: Vec<String> =
        inventory.templates().iter().map(|object| Key::of(object).namespace).collect();
    assert_eq!(namespaces, ["default", "", "default", "", "", "x", "", ""]);
}
