use serde_json::json;

use super::*;
use crate::affinity::tests::cluster;

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"a/b": "1"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "web", "image": "nginx:1.25", "command": ["run"], "args": ["-a", "-b", "-a"]},
        ]}}},
    })
}

fn overriders(value: Value) -> Overriders {
    serde_json::from_value(value).unwrap()
}

fn changed(object: Value, change: Value) -> Result<Value, OverrideError> {
    let mut object = object;
    apply(&mut object, &overriders(change))?;
    Ok(object)
}

#[test]
fn changes_of_each_kind() {
    let container = "/spec/template/spec/containers/0";
    let plain = |path: &str, operator: &str, value: Value| {
        let mut patch = json!({"path": path, "operator": operator});
        if !value.is_null() {
            patch["value"] = value;
        }
        json!({"plaintext": [patch]})
    };
    for (change, path, expected) in [
        (
            json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "2"}]}),
            format!("{container}/image"),
            json!("nginx:2"),
        ),
        (
            json!({"imageOverrider": [{"component": "Registry", "operator": "add", "value": "r.io", "predicate": {"path": format!("{container}/image")}}]}),
            format!("{container}/image"),
            json!("r.io/nginx:1.25"),
        ),
        (
            json!({"commandOverrider": [{"containerName": "web", "operator": "add", "value": ["now"]}]}),
            format!("{container}/command"),
            json!(["run", "now"]),
        ),
        (
            json!({"argsOverrider": [{"containerName": "web", "operator": "remove", "value": ["-a"]}]}),
            format!("{container}/args"),
            json!(["-b"]),
        ),
        (
            json!({"argsOverrider": [{"containerName": "other", "operator": "remove", "value": ["-a"]}]}),
            format!("{container}/args"),
            json!(["-a", "-b", "-a"]),
        ),
        (
            json!({"labelsOverrider": [{"operator": "add", "value": {"x/y": "1"}}]}),
            "/metadata/labels".into(),
            json!({"app": "web", "x/y": "1"}),
        ),
        (
            json!({"labelsOverrider": [{"operator": "replace", "value": {"x": "1", "app": "db"}}]}),
            "/metadata/labels".into(),
            json!({"app": "db"}),
        ),
        (
            json!({"annotationsOverrider": [{"operator": "remove", "value": {"a/b": "another value", "z": ""}}]}),
            "/metadata/annotations".into(),
            json!({}),
        ),
        (plain("/spec/replicas", "replace", json!(5)), "/spec/replicas".into(), json!(5)),
        (plain("/spec/paused", "add", json!(true)), "/spec/paused".into(), json!(true)),
        (plain("/spec/replicas", "add", json!(1)), "/spec/replicas".into(), json!(1)),
        (
            plain(&format!("{container}/args/-"), "add", json!("-z")),
            format!("{container}/args/3"),
            json!("-z"),
        ),
        (
            plain("/metadata/annotations/a~1b", "remove", Value::Null),
            "/metadata/annotations".into(),
            json!({}),
        ),
    ] {
        let object = changed(deployment(), change.clone()).unwrap();
        assert_eq!(object.pointer(&path), Some(&expected), "{change}");
    }
}

#[test]
fn what_is_missing_is_made_only_by_add() {
    let bare =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "a"}]}});
    let add = json!({
        "commandOverrider": [{"containerName": "a", "operator": "add", "value": ["x"]}],
        "labelsOverrider": [{"operator": "add", "value": {"a": "b"}}],
    });
    let object = changed(bare.clone(), add).unwrap();
    assert_eq!(object["spec"]["containers"][0]["command"], json!(["x"]));
    assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
    let remove = json!({
        "argsOverrider": [{"containerName": "a", "operator": "remove", "value": ["x"]}],
        "annotationsOverrider": [{"operator": "replace", "value": {"a": "b"}}],
        "imageOverrider": [{"component": "Tag", "operator": "remove"}],
    });
    assert_eq!(changed(bare.clone(), remove).unwrap(), bare);
}

#[test]
fn errors() {
    let patch = |path: &str, operator: &str| json!({"plaintext": [{"path": "/spec/paused", "operator": "add", "value": 1}, {"path": path, "operator": operator, "value": 1}]});
    for change in [
        patch("/spec/none", "remove"),
        patch("/spec/none", "replace"),
        patch("/spec/none/deeper", "add"),
        patch("not a pointer", "add"),
        json!({"plaintext": [{"path": "/spec/x", "operator": "add"}]}),
        json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "1", "predicate": {"path": "/spec/replicas"}}]}),
        json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "not a tag"}]}),
        json!({"fieldOverrider": [{"fieldPath": "/spec/replicas", "json": [{"subPath": "/a", "operator": "remove"}]}]}),
    ] {
        assert!(changed(deployment(), change.clone()).is_err(), "{change}");
    }
    // One patch is all or nothing.
    let mut object = deployment();
    apply(&mut object, &overriders(patch("/spec/none", "remove"))).unwrap_err();
    assert_eq!(object, deployment());
}

#[test]
fn texts_in_fields() {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {
        "a.json": "{\"db\": {\"host\": \"x\"}}",
        "b.yaml": "# a comment\ndb:\n  host: x\n  ports: [1]\n",
        "c.txt": "no: [",
    }});
    let change = |path: &str, format: &str, sub: &str, value: Value| json!({"fieldOverrider": [{"fieldPath": path, format: [{"subPath": sub, "operator": "replace", "value": value}]}]});
    let object = changed(config.clone(), change("/data/a.json", "json", "/db/host", json!("y"))).unwrap();
    assert_eq!(object["data"]["a.json"], r#"{"db":{"host":"y"}}"#);
    let object = changed(config.clone(), change("/data/b.yaml", "yaml", "/db/ports/0", json!(2))).unwrap();
    let text: Value = serde_saphyr::from_str(object["data"]["b.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(text, json!({"db": {"host": "x", "ports": [2]}}));
    for (path, format) in
        [("/data/c.txt", "yaml"), ("/data/b.yaml", "json"), ("/data/none", "json"), ("/data/a.json", "json")]
    {
        assert!(changed(config.clone(), change(path, format, "/none", json!(1))).is_err(), "{path}");
    }
}

#[test]
fn what_a_change_of_a_text_does_not_name_stays_what_it_is() {
    let text = "mode: 0644\nhost: x\nversion: \"1.10\"\nid: \"0644\"\nanswer: \"yes\"\nratio: 1.5\nbig: 9007199254740993\nnothing: null\n";
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"c.yaml": text}});
    let change = json!({"fieldOverrider": [{"fieldPath": "/data/c.yaml",
        "yaml": [{"subPath": "/host", "operator": "replace", "value": "y"}]}]});
    let object = changed(config, change).unwrap();
    let written = object["data"]["c.yaml"].as_str().unwrap();
    let expected = json!({"mode": 420, "host": "y", "version": "1.10", "id": "0644", "answer": "yes", "ratio": 1.5,
        "big": 9_007_199_254_740_993_u64, "nothing": null});
    assert_eq!(crate::yaml::read(written).unwrap(), expected, "{written}");
    // Other readers take words like these for something else unless they are quoted.
    for line in ["mode: 420", "id: \"0644\"", "version: \"1.10\"", "answer: \"yes\""] {
        assert!(written.lines().any(|one| one.replace('\'', "\"") == line), "{line} in {written}");
    }
}

#[test]
fn the_order_of_policies_and_rules() {
    let spec = |selector: Value, value: &str| -> OverrideSpec {
        let label = |value: &str| json!({"labelsOverrider": [{"operator": "add", "value": {"who": value, value: "1"}}]});
        serde_json::from_value(json!({
            "resourceSelectors": if selector.is_null() { json!([]) } else { json!([selector]) },
            "overrideRules": [
                {"overriders": label(value)},
                {"targetCluster": {"clusterNames": ["other"]}, "overriders": label("never")},
            ],
        }))
        .unwrap()
    };
    let of = |extra: Value| {
        let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        json_patch::merge(&mut selector, &extra);
        selector
    };
    let (all, kind, labels, name) = (
        spec(Value::Null, "all"),
        spec(of(json!({})), "kind"),
        spec(of(json!({"labelSelector": {"matchLabels": {"app": "web"}}})), "labels"),
        spec(of(json!({"name": "web"})), "name"),
    );
    let elsewhere = spec(of(json!({"name": "db"})), "elsewhere");
    let shop = Some("shop");
    let policy = |namespace, name, spec| Policy { namespace, name, spec };
    let policies = [
        policy(shop, "d", &name),
        policy(shop, "c", &labels),
        policy(shop, "b", &kind),
        policy(shop, "a", &all),
        policy(None, "y", &name),
        policy(None, "z", &all),
        policy(Some("bank"), "x", &all),
        policy(shop, "w", &elsewhere),
    ];
    let order: Vec<_> =
        applicable(&Identity::of(&deployment()), policies).iter().map(|policy| policy.name).collect();
    assert_eq!(order, ["z", "y", "a", "b", "c", "d"]);
    let m1 = cluster("m1", json!({}), json!({}));
    let rendered = render(&deployment(), &m1, policies).unwrap();
    let labels = &rendered.object["metadata"]["labels"];
    assert_eq!(labels["who"], "name");
    assert_eq!(labels.get("never"), None);
    assert_eq!(rendered.applied, ["a", "b", "c", "d"]);
    assert_eq!(rendered.applied_cluster, ["y", "z"]);
    // An object without a namespace is out of the reach of namespaced policies.
    let mut role = deployment();
    role["metadata"]["namespace"] = Value::Null;
    assert_eq!(render(&role, &m1, policies).unwrap().applied, Vec::<String>::new());
}

#[test]
fn the_former_fields_and_the_failure_of_one_cluster() {
    let spec: OverrideSpec = serde_json::from_value(json!({
        "targetCluster": {"clusterNames": ["m1"]},
        "overriders": {"plaintext": [{"path": "/none/here", "operator": "add", "value": 1}]},
    }))
    .unwrap();
    let policies = [Policy { namespace: Some("shop"), name: "op", spec: &spec }];
    let failure = render(&deployment(), &cluster("m1", json!({}), json!({})), policies).unwrap_err();
    assert_eq!((failure.policy.as_str(), failure.rule), ("shop/op", 0));
    let rendered = render(&deployment(), &cluster("m2", json!({}), json!({})), policies).unwrap();
    assert_eq!((rendered.object, rendered.applied), (deployment(), vec![]));
}
