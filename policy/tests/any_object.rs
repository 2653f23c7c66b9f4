//! Objects come from outside: whatever they hold, decisions answer, and errors change nothing.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use federlet_policy::{
    api::{AggregatedStatusItem, Cluster, OverrideSpec, Overriders, PropagationSpec},
    depend, health,
    object::Identity,
    overrides::{self, project::Projection},
    prune, retain, status, validate, workload,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const KINDS: [(&str, &str); 14] = [
    ("v1", "Pod"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "Secret"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "PersistentVolume"),
    ("networking.k8s.io/v1", "Ingress"),
    ("policy/v1", "PodDisruptionBudget"),
    ("example.com/v1", "Other"),
];

const KEYS: [&str; 24] = [
    "metadata",
    "spec",
    "status",
    "template",
    "containers",
    "initContainers",
    "name",
    "image",
    "labels",
    "annotations",
    "volumes",
    "env",
    "args",
    "conditions",
    "type",
    "phase",
    "replicas",
    "jobTemplate",
    "selector",
    "loadBalancer",
    "ingress",
    "startTime",
    "clusterIP",
    "data",
];

/// JSON that looks a little like Kubernetes.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z:/@.~]{0,6}".prop_map(Value::from),
        Just(json!("2026-01-01T00:00:00Z")),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(KEYS.to_vec()), inner), 0..5).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    (prop::sample::select(KINDS.to_vec()), prop::collection::vec(any_json(), 4)).prop_map(
        |((api_version, kind), parts)| {
            let mut object = Map::new();
            for (key, part) in ["metadata", "spec", "status", "data"].into_iter().zip(parts) {
                object.insert(key.to_owned(), part);
            }
            object.insert("apiVersion".into(), json!(api_version));
            object.insert("kind".into(), json!(kind));
            Value::Object(object)
        },
    )
}

fn any_overriders() -> impl Strategy<Value = Overriders> {
    let operator = || prop::sample::select(vec!["add", "remove", "replace"]);
    let key = prop::sample::select(vec![
        "spec",
        "metadata",
        "template",
        "containers",
        "0",
        "1",
        "-",
        "a~1b",
        "image",
        "~2",
        "",
    ]);
    let path = || {
        prop::collection::vec(key.clone(), 0..5)
            .prop_map(|parts| parts.iter().map(|part| format!("/{part}")).collect::<String>())
    };
    let plaintext =
        prop::collection::vec((path(), operator(), prop::option::of(any_json())), 0..4).prop_map(|list| {
            list.into_iter()
                .map(|(path, operator, value)| json!({"path": path, "operator": operator, "value": value}))
                .collect::<Vec<_>>()
        });
    let image = (
        prop::sample::select(vec!["Registry", "Repository", "Tag"]),
        operator(),
        "[a-z:/@.]{0,6}",
        prop::option::of(path()),
    )
        .prop_map(|(component, operator, value, path)| {
            let predicate = path.map(|path| json!({"path": path}));
            json!({"component": component, "operator": operator, "value": value, "predicate": predicate})
        });
    let labels = (operator(), prop::collection::btree_map("[a-z/ ]{0,4}", "[a-z]{0,2}", 0..3))
        .prop_map(|(operator, value)| json!({"operator": operator, "value": value}));
    let field = (path(), path(), operator(), any_json()).prop_map(|(path, sub, operator, value)| {
        json!({"fieldPath": path, "yaml": [{"subPath": sub, "operator": operator, "value": value}]})
    });
    (plaintext, prop::option::of(image), prop::option::of(labels), prop::option::of(field)).prop_map(|(plaintext, image, labels, field)| {
        let list = |one: Option<Value>| one.into_iter().collect::<Vec<_>>();
        let value = json!({
            "plaintext": plaintext, "imageOverrider": list(image), "labelsOverrider": list(labels), "fieldOverrider": list(field),
        });
        serde_json::from_value(value).unwrap()
    })
}

proptest! {
    #[test]
    fn every_decision_answers(object in any_object(), other in any_object()) {
        let _ = (health::health(&object), depend::dependencies(&object), workload::replicas(&object), Identity::of(&object));
        let item = AggregatedStatusItem { cluster_name: "a".into(), status: status::reflect(&other, 1), ..AggregatedStatusItem::default() };
        let _ = status::aggregate(&object, &[item]);
        let mut pruned = object.clone();
        prune::prune(&mut pruned);
        let once = pruned.clone();
        prune::prune(&mut pruned);
        prop_assert_eq!(&pruned, &once);
        retain::retain_by_kind(&mut pruned, &other);
        if let Some(projection) = Projection::between(&object, &other) {
            let _ = projection.apply(&pruned);
        }
    }

    #[test]
    fn a_change_that_fails_leaves_the_template(object in any_object(), overriders in any_overriders()) {
        let spec: OverrideSpec =
            serde_json::from_value(json!({"overrideRules": [{"overriders": overriders}]})).unwrap();
        let _ = validate::overrides(Some("shop"), &spec);
        let before = object.clone();
        let cluster: Cluster = serde_json::from_value(json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"}, "spec": {}})).unwrap();
        let policies = [overrides::Policy { namespace: None, name: "p", spec: &spec }];
        if let Ok(rendered) = overrides::render(&object, &cluster, policies) {
            // Rendering is a function: the same again.
            prop_assert_eq!(rendered, overrides::render(&object, &cluster, policies).unwrap());
        }
        prop_assert_eq!(object, before);
    }

    /// What the API server would refuse is an error of that object, and what is read is written the same.
    #[test]
    fn any_policy_is_read_or_refused(mut spec in any_json()) {
        if let Some(map) = spec.as_object_mut() {
            map.insert("resourceSelectors".into(), json!([{"apiVersion": "v1", "kind": "Pod"}]));
        }
        if let Ok(read) = serde_json::from_value::<PropagationSpec>(spec) {
            let written = serde_json::to_value(&read).unwrap();
            prop_assert_eq!(serde_json::from_value::<PropagationSpec>(written).unwrap(), read);
        }
    }
}
