use serde_json::json;

use super::*;

fn cluster(name: &str, status: Value) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}, "status": status})
}

fn policy(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

fn to(kinds: &[(&str, &str)], clusters: &[&str], more: Value) -> Value {
    let selectors: Vec<Value> =
        kinds.iter().map(|(version, kind)| json!({"apiVersion": version, "kind": kind})).collect();
    let mut spec =
        json!({"resourceSelectors": selectors, "placement": {"clusterAffinity": {"clusterNames": clusters}}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

fn surveyed(objects: Vec<Value>) -> BTreeMap<String, Entry> {
    let mut inventory = Inventory::default();
    for object in objects {
        inventory.add(object).unwrap();
    }
    survey(&inventory).into_iter().map(|entry| (entry.key.to_string(), entry)).collect()
}

fn clusters(entry: &Entry) -> Vec<&str> {
    entry.clusters.keys().map(String::as_str).collect()
}

#[test]
fn what_is_needed_goes_along() {
    let pod = json!({"template": {"spec": {"containers": [{"name": "a", "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "absent"}}]}]}}});
    let base = |deps: bool| {
        vec![
            cluster("m1", json!(null)),
            cluster("m2", json!(null)),
            policy("web", to(&[("apps/v1", "Deployment")], &["m1"], json!({"propagateDeps": deps}))),
            object("apps/v1", "Deployment", "web", pod.clone()),
            object("v1", "ConfigMap", "settings", json!(null)),
        ]
    };
    let found = surveyed(base(true));
    let settings = &found["ConfigMap shop/settings"];
    assert_eq!((clusters(settings), &settings.decision.policy), (vec!["m1"], &None));
    assert_eq!(
        settings.reason().as_deref(),
        Some("no policy selects it; goes along with Deployment shop/web")
    );
    assert_eq!(settings.rendered.len(), 1);
    assert_eq!(surveyed(base(false))["ConfigMap shop/settings"].clusters, BTreeMap::new());
    // With a policy of its own it is where either says.
    let mut own = base(true);
    own.push(policy("settings", to(&[("v1", "ConfigMap")], &["m2"], json!({}))));
    let found = surveyed(own);
    let settings = &found["ConfigMap shop/settings"];
    assert_eq!(clusters(settings), ["m1", "m2"]);
    assert_eq!(settings.decision.policy.as_ref().unwrap().to_string(), "shop/settings");
}

#[test]
fn kinds_are_served_where_their_definition_goes() {
    let serves = json!({"apiEnablements": [
        {"groupVersion": "apiextensions.k8s.io/v1", "resources": [{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition"}]},
    ]});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "cars.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Car", "plural": "cars"}, "versions": [{"name": "v1"}]}});
    let wide = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy", "metadata": {"name": "definitions"},
        "spec": to(&[("apiextensions.k8s.io/v1", "CustomResourceDefinition")], &["m1"], json!({}))});
    let found = surveyed(vec![
        object("example.com/v1", "Car", "a", json!({})),
        policy("cars", to(&[("example.com/v1", "Car")], &["m1", "m2"], json!({}))),
        definition,
        wide,
        cluster("m1", serves.clone()),
        cluster("m2", serves),
    ]);
    assert_eq!(clusters(&found["Car shop/a"]), ["m1"]);
    let why = &found["Car shop/a"].decision.rejected["m2"];
    assert_eq!(why.to_string(), "it does not serve example.com/v1 Car");
}

#[test]
fn workloads_apart_from_one_another() {
    let scheduling = json!({
        "workloadAffinity": {"antiAffinity": {"groupByLabelKey": "app"}},
        "spreadConstraints": [{"maxGroups": 1}],
    });
    let deployment = |name: &str| {
        let mut object = object("apps/v1", "Deployment", name, json!({"replicas": 1}));
        object["metadata"]["labels"] = json!({"app": "db"});
        object
    };
    let found = surveyed(vec![
        cluster("m1", json!(null)),
        cluster("m2", json!(null)),
        policy(
            "db",
            json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "placement": scheduling}),
        ),
        deployment("a"),
        deployment("b"),
        deployment("c"),
    ]);
    assert_eq!(clusters(&found["Deployment shop/a"]), ["m1"]);
    assert_eq!(clusters(&found["Deployment shop/b"]), ["m2"]);
    let c = &found["Deployment shop/c"];
    assert_eq!(clusters(c), [""; 0]);
    let why = "a workload to be apart from is there";
    assert_eq!(c.reason(), Some(format!("no cluster fits (2 looked at): m1: {why}; m2: {why}")));
}

#[test]
fn an_error_is_of_one_cluster() {
    let broken = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "o", "namespace": "shop"}, "spec": {
        "overrideRules": [{"targetCluster": {"clusterNames": ["m2"]}, "overriders": {"plaintext": [{"path": "/a/b", "operator": "replace", "value": 1}]}}]}});
    let found = surveyed(vec![
        cluster("m1", json!(null)),
        cluster("m2", json!(null)),
        policy("p", to(&[("v1", "Service")], &["m1", "m2"], json!({}))),
        broken,
        object("v1", "Service", "a", json!({})),
        object("v1", "Service", "b", json!({"clusterIP": "10.0.0.1"})),
    ]);
    for entry in found.values() {
        assert_eq!(clusters(entry), ["m1", "m2"]);
        assert_eq!(entry.rendered.keys().collect::<Vec<_>>(), ["m1"]);
        assert!(
            entry
                .error()
                .unwrap()
                .starts_with("m2: rule 0 of override policy shop/o failed: the patch does not apply")
        );
    }
    assert_eq!(found["Service shop/b"].rendered["m1"]["spec"], json!({}));
}

#[test]
fn a_cluster_that_says_that_it_is_not_ready_gets_no_new_pods() {
    let ready = |is: &str| json!({"conditions": [{"type": "Ready", "status": is, "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let kinds = [("apps/v1", "Deployment"), ("v1", "ConfigMap")];
    let all = ["m1", "m2", "m3"];
    let found = surveyed(vec![
        cluster("m1", ready("True")),
        cluster("m2", ready("False")),
        cluster("m3", json!(null)),
        policy("web", to(&kinds, &all, json!({}))),
        object("apps/v1", "Deployment", "web", json!({"replicas": 1})),
        object("v1", "ConfigMap", "settings", json!(null)),
    ]);
    assert_eq!(clusters(&found["Deployment shop/web"]), ["m1", "m3"]);
    assert_eq!(clusters(&found["ConfigMap shop/settings"]), all, "objects do not wait");
}

#[test]
fn workloads_that_are_only_known_by_where_they_are_count_as_peers() {
    let mut spec = to(&[("apps/v1", "Deployment")], &["m1", "m2"], json!({}));
    spec["placement"]["workloadAffinity"] = json!({"antiAffinity": {"groupByLabelKey": "team"}});
    let mut web = object("apps/v1", "Deployment", "web", json!({"replicas": 1}));
    web["metadata"]["labels"] = json!({"team": "a"});
    let mut inventory = Inventory::default();
    for object in [cluster("m1", json!(null)), cluster("m2", json!(null)), policy("web", spec), web.clone()] {
        inventory.add(object).unwrap();
    }
    inventory.add_peer(Identity::of(&web), ["m1".to_owned()].into());
    let entries = survey(&inventory);
    assert_eq!(clusters(&entries[0]), ["m2"]);
}
