use serde_json::json;

use super::*;
use crate::{
    affinity::tests::cluster,
    api::{PropagationPolicy, TargetCluster},
};

fn policy(spec: Value) -> Arc<Propagation> {
    let mut whole = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let policy: PropagationPolicy = serde_json::from_value(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"namespace": "shop", "name": "p", "uid": "policy"}, "spec": whole,
    }))
    .unwrap();
    Arc::new(policy.into())
}

struct Scene {
    view: View,
    destinations: Vec<Destination>,
    seen: Arc<Seen>,
}

impl Scene {
    fn new(policies: Vec<Arc<Propagation>>) -> Self {
        let clusters = ["m1", "m2"].map(|name| cluster(name, json!({}), json!({})));
        let mut view = View { propagation: policies, ..View::default() };
        for index in 0..view.propagation.len() {
            view.by_kind.entry(("v1".into(), "ConfigMap".into())).or_default().push(index);
        }
        view.clusters =
            clusters.iter().map(|one| (one.metadata.name.clone().unwrap(), Arc::new(one.clone()))).collect();
        let destination = |cluster| Destination {
            cluster,
            namespaces: federlet_provider::names::NamespaceMap::same(),
            stated_room: None,
        };
        let identity = Identity {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "shop".into(),
            name: "c".into(),
            ..Identity::default()
        };
        let seen = Seen { identity, uid: "u".into(), version: "5".into(), ..Seen::default() };
        Self { view, destinations: clusters.map(destination).into(), seen: Arc::new(seen) }
    }

    fn wanted(&self, binding: Option<&ResourceBinding>, required_by: Option<&RequiredBy>) -> Option<Wanted> {
        let template =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}});
        Situation {
            seen: &self.seen,
            view: &self.view,
            destinations: &self.destinations,
            binding,
            required_by,
        }
        .wanted(&Arc::new(template))
    }

    fn clusters(&self, binding: Option<&ResourceBinding>, required_by: Option<&RequiredBy>) -> String {
        let wanted = self.wanted(binding, required_by);
        wanted.map_or("none".into(), |wanted| wanted.clusters.into_keys().collect::<Vec<_>>().join(" "))
    }
}

/// What a policy decided before.
fn binding(clusters: &[&str], along: &[&str], revision: &str) -> ResourceBinding {
    let target = |name: &&str| TargetCluster { name: (*name).to_owned(), replicas: 0 };
    let mut binding = ResourceBinding::new("c-configmap", Default::default());
    let claim = policy(json!({})).claim();
    binding.metadata.labels = Some(claim.labels());
    let mut annotations = claim.annotations();
    annotations.insert(GENERATION.into(), revision.into());
    binding.metadata.annotations = Some(annotations);
    binding.spec.placement = Some(Placement::default());
    binding.spec.clusters = clusters.iter().chain(along).map(target).collect();
    if !along.is_empty() {
        let clusters = along.iter().map(target).collect();
        binding.spec.required_by = vec![BindingSnapshot { name: "x".into(), clusters, ..Default::default() }];
    }
    binding
}

fn needed(cluster: &str) -> RequiredBy {
    let clusters = vec![TargetCluster { name: cluster.to_owned(), replicas: 3 }];
    let snapshot = BindingSnapshot { name: "web-deployment".into(), clusters, ..Default::default() };
    [(Key { kind: "Deployment".into(), ..Key::default() }, snapshot)].into()
}

fn only(name: &str) -> Value {
    json!({"placement": {"clusterAffinity": {"clusterNames": [name]}}})
}

#[test]
fn a_policy_sends_it_everywhere_or_where_it_says() {
    assert_eq!(Scene::new(vec![]).clusters(None, None), "none");
    assert_eq!(Scene::new(vec![policy(json!({}))]).clusters(None, None), "m1 m2");
    assert_eq!(Scene::new(vec![policy(only("m2"))]).clusters(None, None), "m2");
    // It moves with its policy.
    assert_eq!(Scene::new(vec![policy(only("m2"))]).clusters(Some(&binding(&["m1"], &[], "5")), None), "m2");
    let nowhere = Scene::new(vec![policy(only("m9"))]);
    let wanted = nowhere.wanted(None, None).unwrap();
    assert_eq!((wanted.clusters.len(), wanted.waiting.unwrap().0), (0, "NoClusterFit"));
}

#[test]
fn what_a_policy_sent_stays_when_it_goes() {
    let scene = Scene::new(vec![]);
    assert_eq!(scene.clusters(Some(&binding(&["m1"], &[], "5")), None), "m1");
    // Where it only went along it does not stay.
    assert_eq!(scene.clusters(Some(&binding(&["m1"], &["m2"], "5")), None), "m1");
}

#[test]
fn what_others_need_goes_with_them() {
    let scene = Scene::new(vec![]);
    assert_eq!(scene.clusters(None, Some(&needed("m2"))), "m2");
    assert_eq!(Scene::new(vec![policy(only("m1"))]).clusters(None, Some(&needed("m2"))), "m1 m2");
    assert_eq!(scene.clusters(None, Some(&needed("m9"))), "", "there is no such cluster");
}

#[test]
fn a_lazy_policy_waits_for_the_object() {
    let mut spec = only("m2");
    spec["activationPreference"] = json!("Lazy");
    let scene = Scene::new(vec![policy(spec)]);
    assert_eq!(scene.clusters(Some(&binding(&["m1"], &[], "5")), None), "m1");
    assert_eq!(scene.clusters(Some(&binding(&["m1"], &[], "4")), None), "m2");
    assert_eq!(scene.clusters(None, None), "m2");
}

#[test]
fn overrides_that_are_missing_change_nothing() {
    let scene = Scene::new(vec![policy(json!({"dependentOverrides": ["o"]}))]);
    assert_eq!(scene.clusters(None, None), "");
    assert_eq!(scene.clusters(Some(&binding(&["m1"], &[], "5")), None), "m1");
    assert_eq!(scene.wanted(None, None).unwrap().waiting.unwrap().0, "Held");
}

#[test]
fn nothing_is_sent_to_a_cluster_that_leaves() {
    let mut scene = Scene::new(vec![]);
    let mut leaving = cluster("m1", json!({}), json!({}));
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    scene.view.clusters.insert("m1".into(), Arc::new(leaving));
    assert_eq!(scene.clusters(Some(&binding(&["m1", "m2"], &[], "5")), None), "m2");
}

#[test]
fn the_object_and_its_policy_say_what_happens_to_others() {
    let mut scene = Scene::new(vec![policy(json!({
        "conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true,
        "suspension": {"dispatchingOnClusters": {"clusterNames": ["m2"]}},
    }))]);
    let wanted = scene.wanted(None, None).unwrap();
    assert_eq!((wanted.resolution, wanted.preserve), (ConflictResolution::Overwrite, true));
    assert!(wanted.is_held_back("m2") && !wanted.is_held_back("m1"));
    let mut seen = Seen::clone(&scene.seen);
    seen.identity.annotations.insert(conflict::CONFLICT_RESOLUTION.into(), "abort".into());
    scene.seen = Arc::new(seen);
    assert_eq!(scene.wanted(None, None).unwrap().resolution, ConflictResolution::Abort);
}
