//! Two edge regions, one Deployment, one Service, one policy, one override: from the files that people write
//! to what each member gets.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use federlet_policy::{
    api::{Cluster, OverridePolicy, PropagationPolicy},
    divide::Shares,
    matching::{self, Decision},
    object::Identity,
    overrides,
    place::{self, Member, Peers, Placed},
    prune, validate, workload,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

struct Host(Vec<Value>);

impl Host {
    fn read() -> Self {
        let documents = include_str!("story.yaml").split("\n---\n");
        Self(documents.map(|text| serde_saphyr::from_str(text).expect("a document")).collect())
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> Vec<T> {
        let documents = self.0.iter().filter(|document| document["kind"] == kind);
        documents.map(|document| serde_json::from_value(document.clone()).expect("an object")).collect()
    }

    fn one(&self, kind: &str) -> Value {
        self.all(kind).remove(0)
    }
}

/// Where an object goes, and how it is rendered there.
fn decide(host: &Host, template: &Value) -> Option<(Placed, BTreeMap<String, Value>)> {
    let policies: Vec<PropagationPolicy> = host.all("PropagationPolicy");
    let overrides: Vec<OverridePolicy> = host.all("OverridePolicy");
    let clusters: Vec<Cluster> = host.all("Cluster");

    let views: Vec<_> = policies.iter().map(Into::into).collect();
    let Decision::Take(policy) = matching::decide(&Identity::of(template), None, &views) else { return None };
    assert_eq!(validate::propagation(policy.namespace, policy.spec), []);

    let members: Vec<_> = clusters.iter().map(|cluster| Member { cluster, free: 0 }).collect();
    let request = place::Request {
        api_version: template["apiVersion"].as_str().expect("text"),
        kind: template["kind"].as_str().expect("text"),
        uid: "",
        replicas: workload::replicas(template),
        placement: &policy.spec.placement,
        previous: &Shares::new(),
        observed_affinity: None,
        leaving: &BTreeSet::new(),
        peers: &Peers::default(),
        fresh: false,
    };
    let placed = place::place(&request, &members).expect("a place");
    let mut rendered = BTreeMap::new();
    for cluster in &clusters {
        let name = cluster.metadata.name.clone().expect("a name");
        let Some(share) = placed.shares.get(&name) else { continue };
        let mut object = template.clone();
        prune::prune(&mut object);
        workload::set_replicas(&mut object, *share);
        let views = overrides.iter().map(Into::into);
        rendered.insert(name, overrides::render(&object, cluster, views).expect("an object").object);
    }
    Some((placed, rendered))
}

#[test]
fn one_pod_per_region_each_with_its_image() {
    let host = Host::read();
    let (placed, rendered) = decide(&host, &host.one("Deployment")).expect("a policy");
    let expected = [("ke-beijing-cluster".to_owned(), 1), ("ke-hangzhou-cluster".to_owned(), 1)];
    assert_eq!(placed.shares, expected.into());
    assert_eq!(placed.rejected["datacentre"].to_string(), "the policy lists other clusters by name");
    let image = |cluster: &str| rendered[cluster].pointer("/spec/template/spec/containers/0/image").cloned();
    assert_eq!(image("ke-beijing-cluster"), Some("nginx:1.25".into()));
    assert_eq!(image("ke-hangzhou-cluster"), Some("hangzhou.example.com/nginx:1.25".into()));
}

#[test]
fn the_service_goes_with_it() {
    let host = Host::read();
    let (placed, rendered) = decide(&host, &host.one("Service")).expect("a policy");
    assert_eq!(placed.shares.into_values().collect::<Vec<_>>(), [0, 0]);
    for object in rendered.values() {
        assert_eq!(object.pointer("/spec/clusterIP"), None);
    }
    assert!(decide(&host, &host.one("ConfigMap")).is_none());
}
