//! Two edge regions, one Deployment, one Service, one policy, one override: from the files that people write
//! to what each member gets.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use federlet_policy::{
    inventory::Inventory,
    survey::{Entry, survey},
};

fn surveyed() -> BTreeMap<String, Entry> {
    let mut inventory = Inventory::default();
    for text in include_str!("story.yaml").split("\n---\n") {
        inventory.add(serde_saphyr::from_str(text).expect("a document")).expect("an object");
    }
    survey(&inventory).into_iter().map(|entry| (entry.key.to_string(), entry)).collect()
}

#[test]
fn one_pod_per_region_each_with_its_image() {
    let all = surveyed();
    let nginx = &all["Deployment edge/nginx"];
    let expected = [("ke-beijing-cluster".to_owned(), Some(1)), ("ke-hangzhou-cluster".to_owned(), Some(1))];
    assert_eq!(nginx.clusters, expected.into());
    let why = nginx.decision.rejected["datacentre"].to_string();
    assert_eq!(why, "the policy lists other clusters by name");
    let image =
        |cluster: &str| nginx.rendered[cluster].pointer("/spec/template/spec/containers/0/image").cloned();
    assert_eq!(image("ke-beijing-cluster"), Some("nginx:1.25".into()));
    assert_eq!(image("ke-hangzhou-cluster"), Some("hangzhou.example.com/nginx:1.25".into()));
}

#[test]
fn the_service_goes_with_it() {
    let all = surveyed();
    let service = &all["Service edge/nginx-service"];
    assert_eq!(service.clusters.values().collect::<Vec<_>>(), [&None, &None]);
    for object in service.rendered.values() {
        assert_eq!(object.pointer("/spec/clusterIP"), None);
    }
    assert!(all["ConfigMap edge/unrelated"].decision.policy.is_none());
}
