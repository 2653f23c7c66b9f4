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
        let mut view = View::with(policies);
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
        self.wanted_at(0, binding, required_by)
    }

    /// So many seconds after everything was seen.
    fn wanted_at(
        &self,
        seconds: i64,
        binding: Option<&ResourceBinding>,
        required_by: Option<&RequiredBy>,
    ) -> Option<Wanted> {
        let template =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}});
        self.wanted_of(template, seconds, binding, required_by)
    }

    fn wanted_of(
        &self,
        template: Value,
        seconds: i64,
        binding: Option<&ResourceBinding>,
        required_by: Option<&RequiredBy>,
    ) -> Option<Wanted> {
        let mut tainted = Tainted::default();
        tainted.note(self.view.clusters.values().map(|cluster| of_cluster(cluster)), Timestamp::UNIX_EPOCH);
        Situation {
            seen: &self.seen,
            view: &self.view,
            destinations: &self.destinations,
            binding,
            required_by,
            tainted: &tainted,
            now: Timestamp::from_second(seconds).unwrap(),
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
    binding.spec.clusters = clusters.iter().map(target).collect();
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
fn completions_of_a_job_stay_divided_when_its_policy_goes() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "c", "namespace": "shop"},
        "spec": {"parallelism": 3, "completions": 6}});
    for (scheduling, expected) in [("Divided", [Some(2), Some(4)]), ("Duplicated", [None, None])] {
        let mut before = binding(&["m1", "m2"], &[], "5");
        before.spec.placement =
            serde_json::from_value(json!({"replicaScheduling": {"replicaSchedulingType": scheduling}}))
                .unwrap();
        before.spec.clusters.iter_mut().zip([1, 2]).for_each(|(target, replicas)| target.replicas = replicas);
        let wanted = Scene::new(vec![]).wanted_of(job.clone(), 0, Some(&before), None).unwrap();
        let parts: Vec<Option<u32>> = wanted.clusters.values().map(|part| part.completions).collect();
        assert_eq!(parts, expected, "{scheduling}");
    }
}

#[test]
fn what_is_its_own_stays_when_those_go_that_needed_it_there_too() {
    let mut lazy = only("m2");
    lazy["activationPreference"] = json!("Lazy");
    let waits = json!({"dependentOverrides": ["o"]});
    for policies in [vec![], vec![policy(lazy)], vec![policy(waits)]] {
        let scene = Scene::new(policies);
        // What needed it is gone, and its binding does not say so yet.
        assert_eq!(scene.clusters(Some(&binding(&["m1"], &["m1"], "5")), None), "m1");
        let wanted = scene.wanted(Some(&binding(&["m1"], &[], "5")), Some(&needed("m2"))).unwrap();
        assert_eq!(wanted.own, BTreeSet::from(["m1".to_owned()]), "only its own are recorded as such");
        assert_eq!(wanted.clusters.len(), 2);
    }
    let along = Scene::new(vec![]).wanted(None, Some(&needed("m2"))).unwrap();
    assert!(along.own.is_empty() && along.clusters.contains_key("m2"));
    // A taint keeps only new ones away.
    let mut scene = Scene::new(vec![policy(json!({}))]);
    let tainted = cluster("m1", json!({}), json!({"taints": [{"key": "full", "effect": "NoSchedule"}]}));
    scene.view.clusters.insert("m1".into(), Arc::new(tainted.clone()));
    scene.destinations[0].cluster = tainted;
    assert_eq!(scene.clusters(Some(&binding(&["m1"], &["m1"], "5")), None), "m1 m2");
    assert_eq!(scene.clusters(Some(&binding(&["m2"], &["m1"], "5")), None), "m2", "there it only went along");
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

#[test]
fn an_object_leaves_a_cluster_with_a_taint_that_it_does_not_stand() {
    let down = |effect: &str| json!({"taints": [{"key": "down", "effect": effect}]});
    let tolerating = |seconds: Value| {
        let toleration = json!({"key": "down", "operator": "Exists", "tolerationSeconds": seconds});
        json!({"placement": {"clusterTolerations": [toleration]}})
    };
    let everywhere = binding(&["m1", "m2"], &[], "5");
    for (taint, spec, before, seconds, expected) in [
        (down("NoSchedule"), json!({}), Some(&everywhere), 0, "m1 m2"),
        (down("NoSchedule"), json!({}), None, 0, "m2"),
        (down("NoExecute"), json!({}), Some(&everywhere), 0, "m2"),
        (down("NoExecute"), json!({}), None, 0, "m2"),
        (down("NoExecute"), tolerating(Value::Null), Some(&everywhere), 9999, "m1 m2"),
        (down("NoExecute"), tolerating(json!(30)), Some(&everywhere), 29, "m1 m2"),
        (down("NoExecute"), tolerating(json!(30)), Some(&everywhere), 30, "m2"),
        // It does not come back to where it could not stay.
        (down("NoExecute"), tolerating(json!(30)), Some(&binding(&["m2"], &[], "5")), 31, "m2"),
    ] {
        let mut scene = Scene::new(vec![policy(spec.clone())]);
        let tainted = cluster("m1", json!({}), taint.clone());
        scene.view.clusters.insert("m1".into(), Arc::new(tainted.clone()));
        scene.destinations[0].cluster = tainted;
        let wanted = scene.wanted_at(seconds, before, None).unwrap();
        let clusters = wanted.clusters.into_keys().collect::<Vec<_>>().join(" ");
        assert_eq!(clusters, expected, "{taint} {spec} after {seconds} s");
        let waits = seconds == 29;
        assert_eq!(wanted.leaves.is_some(), waits, "{taint} {spec} after {seconds} s");
    }
}

#[test]
fn neither_laziness_nor_a_policy_that_went_keeps_an_object_on_a_taint() {
    let before = binding(&["m1", "m2"], &[], "5");
    for policies in [vec![policy(json!({"activationPreference": "Lazy"}))], vec![]] {
        let mut scene = Scene::new(policies);
        let tainted = cluster("m1", json!({}), json!({"taints": [{"key": "down", "effect": "NoExecute"}]}));
        scene.view.clusters.insert("m1".into(), Arc::new(tainted.clone()));
        scene.destinations[0].cluster = tainted;
        assert_eq!(scene.clusters(Some(&before), None), "m2");
        // What another needs there goes along with it, and stays as long as that does.
        assert_eq!(scene.clusters(Some(&before), Some(&needed("m1"))), "m1 m2");
    }
}
