use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{api::Overriders, overrides};

fn workload(kind: &str) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "initContainers": [{"name": "init", "image": "init:1"}],
            "containers": [
                {"name": "web", "image": "nginx:1.25", "args": ["-v"], "env": [{"name": "A", "value": "1"}]},
                {"name": "log", "image": "r.io/log:2", "volumeMounts": [
                    {"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"},
                ]},
            ],
            "tolerations": [{"key": "edge", "operator": "Exists"}],
        },
    });
    match kind {
        "Pod" => {
            json!({"apiVersion": "v1", "kind": kind, "metadata": template["metadata"], "spec": template["spec"]})
        }
        "CronJob" => json!({"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "web"},
            "spec": {"jobTemplate": {"spec": {"template": template}}}}),
        "Job" => {
            json!({"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "web"}, "spec": {"template": template}})
        }
        _ => json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
            "spec": {"replicas": 2, "template": template}}),
    }
}

/// The pod that a controller makes from the template.
fn made(workload: &Value) -> Value {
    let path = workload::pod_path_of(workload).unwrap();
    let template = workload.pointer(path).unwrap();
    json!({"metadata": template["metadata"], "spec": template["spec"]})
}

/// What the API server and others add to a pod.
fn admitted(mut pod: Value) -> Value {
    pod["metadata"]["name"] = json!("web-abc");
    pod["metadata"]["labels"]["pod-template-hash"] = json!("abc");
    pod["spec"]["dnsPolicy"] = json!("ClusterFirst");
    pod["spec"]["containers"].as_array_mut().unwrap().insert(0, json!({"name": "proxy", "image": "proxy:1"}));
    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
        container["imagePullPolicy"] = json!("Always");
    }
    if let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut() {
        tolerations.push(json!({"key": "not-ready", "operator": "Exists"}));
    }
    pod
}

fn overridden(workload: &Value, overriders: Value) -> Value {
    let overriders: Overriders = serde_json::from_value(overriders).unwrap();
    let mut after = workload.clone();
    overrides::apply(&mut after, &overriders).unwrap();
    after
}

#[test]
fn a_pod_with_more_than_its_template() {
    let before = workload("Deployment");
    let after = overridden(
        &before,
        json!({
            "imageOverrider": [{"component": "Registry", "operator": "replace", "value": "eu.io"}],
            "argsOverrider": [{"containerName": "web", "operator": "add", "value": ["-x"]}],
            "plaintext": [
                {"path": "/spec/template/spec/containers/0/env/-", "operator": "add", "value": {"name": "B", "value": "2"}},
                {"path": "/spec/template/spec/containers/1/volumeMounts/0", "operator": "remove"},
                {"path": "/spec/template/spec/tolerations/0", "operator": "replace", "value": {"operator": "Exists"}},
                {"path": "/spec/template/metadata/annotations", "operator": "add", "value": {"note": "x"}},
                {"path": "/spec/replicas", "operator": "replace", "value": 5},
                {"path": "/metadata/labels", "operator": "add", "value": {"tier": "1"}},
            ],
        }),
    );
    let projection = Projection::between(&before, &after).unwrap();
    assert_eq!(projection.not_applicable, ["/metadata/labels", "/spec/replicas"]);
    let pod = projection.apply(&admitted(made(&before)));
    let containers = &pod["spec"]["containers"];
    assert_eq!(containers[0], json!({"name": "proxy", "image": "proxy:1", "imagePullPolicy": "Always"}));
    assert_eq!(containers[1]["image"], "eu.io/nginx:1.25");
    assert_eq!(containers[1]["args"], json!(["-v", "-x"]));
    assert_eq!(containers[1]["env"][1]["name"], "B");
    assert_eq!(containers[2]["image"], "eu.io/log:2");
    assert_eq!(containers[2]["volumeMounts"], json!([{"name": "data", "mountPath": "/b"}]));
    assert_eq!(pod["spec"]["initContainers"][0]["image"], "eu.io/init:1");
    assert_eq!(
        pod["spec"]["tolerations"],
        json!([{"key": "not-ready", "operator": "Exists"}, {"operator": "Exists"}])
    );
    assert_eq!(pod["metadata"]["annotations"], json!({"note": "x"}));
    assert_eq!(pod["metadata"]["labels"], json!({"app": "web", "pod-template-hash": "abc"}));
    assert_eq!(pod["metadata"]["name"], "web-abc");
}

#[test]
fn only_what_means_nothing_for_a_pod_is_reported() {
    let before = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {"template": {"spec": {}}}});
    let patch =
        |path: &str, value: Value| json!({"plaintext": [{"path": path, "operator": "add", "value": value}]});
    for (change, expected) in [
        (patch("/spec/template/metadata", json!({"labels": {"a": "b"}})), vec![]),
        (
            patch("/spec/template/metadata", json!({"labels": {"a": "b"}, "name": "x"})),
            vec!["/spec/template/metadata"],
        ),
        (patch("/spec/template/spec", json!({"hostNetwork": true})), vec![]),
        (patch("/spec/paused", json!(true)), vec!["/spec/paused"]),
    ] {
        let projection = Projection::between(&before, &overridden(&before, change.clone())).unwrap();
        assert_eq!(projection.not_applicable, expected, "{change}");
    }
}

#[test]
fn no_pod_no_projection() {
    assert_eq!(Projection::between(&json!({"apiVersion": "v1", "kind": "Service"}), &json!({})), None);
    let same = workload("Deployment");
    assert!(Projection::between(&same, &same).unwrap().is_empty());
}

/// Overrides of every kind below the template.
fn change() -> impl Strategy<Value = Value> {
    let operator = prop::sample::select(vec!["add", "replace", "remove"]);
    let image = (prop::sample::select(vec!["Registry", "Tag"]), operator, "[a-z]{1,4}\\.io")
        .prop_map(|(component, operator, value)| json!({"imageOverrider": [{"component": component, "operator": operator, "value": value}]}));
    let words = (prop::sample::select(vec!["commandOverrider", "argsOverrider"]), prop::sample::select(vec!["add", "remove"]), "[a-z-]{1,2}|-v")
        .prop_map(|(field, operator, word)| json!({field: [{"containerName": "web", "operator": operator, "value": [word]}]}));
    let patch = prop::sample::select(vec![
        json!({"path": "/spec/nodeSelector", "operator": "add", "value": {"a": "b"}}),
        json!({"path": "/spec/containers/0/env/0/value", "operator": "replace", "value": "9"}),
        json!({"path": "/spec/containers/0/env/0", "operator": "remove"}),
        json!({"path": "/spec/containers/1", "operator": "remove"}),
        json!({"path": "/spec/containers/0", "operator": "add", "value": {"name": "new", "image": "new:1"}}),
        json!({"path": "/spec/containers/-", "operator": "add", "value": {"name": "new", "image": "new:1"}}),
        json!({"path": "/spec/tolerations", "operator": "remove"}),
        json!({"path": "/spec/tolerations/0", "operator": "add", "value": {"operator": "Exists"}}),
        json!({"path": "/spec/initContainers", "operator": "remove"}),
        json!({"path": "/metadata/labels/app", "operator": "replace", "value": "other"}),
        json!({"path": "/metadata/annotations", "operator": "add", "value": {"a": "b"}}),
    ]);
    prop_oneof![image, words, patch.prop_map(|patch| json!({"plaintext": [patch]}))]
}

fn kinds() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod"])
}

/// The same override, said of the workload's template.
fn on_template(kind: &str, change: &Value) -> Overriders {
    let prefix = workload::pod_path_of(&workload(kind)).unwrap();
    let mut change = change.clone();
    for patch in change.get_mut("plaintext").and_then(Value::as_array_mut).into_iter().flatten() {
        patch["path"] = json!(format!("{prefix}{}", patch["path"].as_str().unwrap()));
    }
    serde_json::from_value(change).unwrap()
}

proptest! {
    /// The projection on the pod is the pod of the overridden workload.
    #[test]
    fn projecting_commutes_with_making_the_pod(kind in kinds(), changes in prop::collection::vec(change(), 0..5)) {
        let before = workload(kind);
        let mut after = before.clone();
        for change in &changes {
            // A change that does not apply leaves the workload as it is, as it does for a cluster.
            let mut next = after.clone();
            if overrides::apply(&mut next, &on_template(kind, change)).is_ok() {
                after = next;
            }
        }
        let projection = Projection::between(&before, &after).unwrap();
        prop_assert_eq!(projection.apply(&made(&before)), made(&after));
        prop_assert_eq!(projection.not_applicable, Vec::<String>::new());
    }

    /// What others added to the pod is there afterwards, and applying twice is applying once.
    #[test]
    fn what_others_added_stays(change in change()) {
        let before = workload("Deployment");
        let mut after = before.clone();
        prop_assume!(overrides::apply(&mut after, &on_template("Deployment", &change)).is_ok());
        let projection = Projection::between(&before, &after).unwrap();
        let pod = projection.apply(&admitted(made(&before)));
        prop_assert_eq!(&pod["metadata"]["name"], "web-abc");
        prop_assert_eq!(&pod["metadata"]["labels"]["pod-template-hash"], "abc");
        prop_assert_eq!(&pod["spec"]["dnsPolicy"], "ClusterFirst");
        let proxies = pod["spec"]["containers"].as_array().unwrap().iter().filter(|one| one["name"] == "proxy").count();
        prop_assert_eq!(proxies, 1);
    }
}
