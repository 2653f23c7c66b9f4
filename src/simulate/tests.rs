use super::*;

fn entries(objects: &[Value]) -> Vec<Entry> {
    let mut inventory = Inventory::default();
    for object in objects {
        inventory.add(object.clone()).unwrap();
    }
    survey(&inventory)
}

fn world() -> Vec<Entry> {
    let cluster = |name: &str| json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}});
    let selectors =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment"}, {"apiVersion": "v1", "kind": "Service"}]);
    entries(&[
        cluster("member2"),
        cluster("member1"),
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "all", "namespace": "shop"},
            "spec": {"resourceSelectors": selectors, "placement": {"replicaScheduling": {}}}}),
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "bad", "namespace": "shop"},
            "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Service"}], "overrideRules": [{"targetCluster": {"clusterNames": ["member2"]},
                "overriders": {"plaintext": [{"path": "/spec/none", "operator": "remove"}]}}]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 5}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": {}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}}),
    ])
}

#[test]
fn the_table() {
    let expected = "\
TEMPLATE             POLICY    CLUSTERS             REASON
Deployment shop/web  shop/all  member1:3 member2:2
Service shop/web     shop/all  member1 member2      error: member2: rule 0 of override policy shop/bad failed: the patch does not apply: ";
    let found = shown(&world(), Output::Table).unwrap();
    assert!(found.starts_with(expected), "{found}");
    assert!(
        found.ends_with("ClusterRole reader   <none>    <none>               no policy selects it\n"),
        "{found}"
    );
}

#[test]
fn what_programs_read() {
    let found: Value = serde_json::from_str(&shown(&world(), Output::Json).unwrap()).unwrap();
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "policy": "shop/all",
        "clusters": [{"name": "member1", "replicas": 3}, {"name": "member2", "replicas": 2}], "reason": null, "error": null,
        "rendered": {
            "member1": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 3}},
            "member2": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2}},
        },
    });
    assert_eq!(found[0], expected);
    // The error is of one cluster only.
    assert_eq!(
        found[1]["clusters"],
        json!([{"name": "member1", "replicas": null}, {"name": "member2", "replicas": null}])
    );
    assert_eq!(found[1]["rendered"].as_object().unwrap().keys().collect::<Vec<_>>(), ["member1"]);
    assert!(found[1]["error"].as_str().unwrap().starts_with("member2: "));
    let (policy, namespace) = (&found[2]["policy"], &found[2]["namespace"]);
    assert_eq!((policy, namespace, &found[2]["clusters"]), (&json!(null), &json!(""), &json!([])));
    let yaml = shown(&world(), Output::Yaml).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), found);
}
