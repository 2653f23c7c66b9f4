use serde_json::json;

use super::*;
use crate::inventory::Inventory;

/// Three clusters with room for 4, 2 and 6 replicas.
fn clusters() -> Vec<Value> {
    [("m1", "4"), ("m2", "2"), ("m3", "6")]
        .map(|(name, room)| {
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "spec": {},
                "metadata": {"name": name, "annotations": {"federlet.io/available-replicas": room}}})
        })
        .to_vec()
}

fn policy(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    if !kind.starts_with("Cluster") {
        object["metadata"]["namespace"] = json!("shop");
    }
    object
}

fn deployment(replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}, "spec": {"replicas": replicas}})
}

fn inventory(objects: impl IntoIterator<Item = Value>) -> Inventory {
    let mut inventory = Inventory::default();
    for object in clusters().into_iter().chain(objects) {
        inventory.add(object).unwrap();
    }
    inventory
}

fn decided(objects: impl IntoIterator<Item = Value>, object: &Value, previous: &Previous) -> Decision {
    decide(&inventory(objects).world(), object, previous, [])
}

fn selects(selector: Value) -> Value {
    json!({"resourceSelectors": [selector]})
}

fn shares(named: &[(&str, u32)]) -> Shares {
    named.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect()
}

/// Which of several policies has the Deployment.
#[test]
fn who_wins() {
    let kind = || json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let labelled = || json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"app": "web"}}});
    let named = || json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let with =
        |selector: Value, priority: i32| json!({"resourceSelectors": [selector], "priority": priority});
    let own = |name: &str, spec: Value| policy("PropagationPolicy", name, spec);
    let wide = |name: &str, spec: Value| policy("ClusterPropagationPolicy", name, spec);
    for (policies, expected) in [
        (vec![], None),
        (vec![own("b", selects(kind())), own("a", selects(kind()))], Some("shop/a")),
        (vec![own("a", selects(kind())), own("b", selects(labelled()))], Some("shop/b")),
        (vec![own("a", selects(labelled())), own("b", selects(named()))], Some("shop/b")),
        (vec![own("a", selects(named())), own("b", with(kind(), 1))], Some("shop/b")),
        (vec![own("a", with(named(), -1)), own("b", selects(kind()))], Some("shop/b")),
        // A policy of the namespace wins over one of the host, whatever they say.
        (vec![wide("a", with(named(), 9)), own("z", with(kind(), -9))], Some("shop/z")),
        (vec![wide("a", selects(kind())), wide("b", selects(named()))], Some("b")),
        (
            vec![wide(
                "a",
                selects(json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "bank"})),
            )],
            None,
        ),
        (vec![own("a", selects(json!({"apiVersion": "apps/v1beta1", "kind": "Deployment"})))], None),
    ] {
        let found = decided(policies.clone(), &deployment(1), &Previous::default());
        assert_eq!(found.policy.map(|key| key.to_string()).as_deref(), expected, "{policies:?}");
    }
}

#[test]
fn what_is_never_sent() {
    let all = |api_version: &str, kind: &str| {
        policy("ClusterPropagationPolicy", "all", selects(json!({"apiVersion": api_version, "kind": kind})))
    };
    let object = |metadata: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    for (metadata, sent) in [
        (json!({"name": "a", "namespace": "kube-system"}), false),
        (json!({"name": "a", "namespace": "kube-public"}), false),
        (json!({"name": "a", "namespace": "karmada-system"}), false),
        (json!({"name": "a", "namespace": "karmada-es-m1"}), false),
        (
            json!({"name": "a", "namespace": "shop", "labels": {"resourcetemplate.karmada.io/claimed-by": "x"}}),
            false,
        ),
        (json!({"name": "a", "namespace": "default"}), true),
        (json!({"name": "a", "namespace": "kubernetes"}), true),
    ] {
        let found = decided([all("v1", "ConfigMap")], &object(metadata.clone()), &Previous::default());
        assert_eq!(found.policy.is_some(), sent, "{metadata}");
        assert_eq!(found.verdict == Verdict::Reserved, !sent, "{metadata}");
    }
}

#[test]
fn policies_wait_for_their_overrides() {
    let spec = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "dependentOverrides": ["first", "second"]});
    let waiting = policy("PropagationPolicy", "p", spec);
    let first = policy("OverridePolicy", "first", json!({}));
    let found = decided([waiting.clone(), first.clone()], &deployment(1), &Previous::default());
    assert_eq!(
        found.reason().as_deref(),
        Some("its policy waits for override policies that do not exist: second")
    );
    assert_eq!((found.policy.map(|key| key.to_string()).as_deref(), found.shares.len()), (Some("shop/p"), 0));
    // One of the whole host is another one.
    let wide = policy("ClusterOverridePolicy", "second", json!({}));
    assert!(
        decided([waiting.clone(), first.clone(), wide], &deployment(1), &Previous::default())
            .shares
            .is_empty()
    );
    let second = policy("OverridePolicy", "second", json!({}));
    assert_eq!(decided([waiting, first, second], &deployment(1), &Previous::default()).shares.len(), 3);
}

/// Each way to divide, from nothing and from what is there.
#[test]
fn replicas() {
    let all = |scheduling: Value| {
        let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
        policy(
            "PropagationPolicy",
            "p",
            json!({"resourceSelectors": selectors, "placement": {"replicaScheduling": scheduling}}),
        )
    };
    let weights = json!({"weightPreference": {"staticWeightList": [
        {"targetCluster": {"clusterNames": ["m1"]}, "weight": 1}, {"targetCluster": {"clusterNames": ["m2"]}, "weight": 2},
    ]}});
    let dynamic = json!({"weightPreference": {"dynamicWeight": "AvailableReplicas"}});
    let aggregated = json!({"replicaDivisionPreference": "Aggregated"});
    let none: &[(&str, u32)] = &[];
    for (scheduling, replicas, previous, expected) in [
        (json!(null), 5, none, vec![("m1", 5), ("m2", 5), ("m3", 5)]),
        (json!({}), 5, none, vec![("m1", 2), ("m2", 2), ("m3", 1)]),
        (weights.clone(), 30, none, vec![("m1", 10), ("m2", 20)]),
        // From scratch each time, and none for a cluster that no rule matches.
        (weights.clone(), 3, &[("m1", 9), ("m3", 9)], vec![("m1", 1), ("m2", 2)]),
        // A cluster whose part is nothing does not get the workload.
        (weights, 1, none, vec![("m2", 1)]),
        (dynamic.clone(), 6, none, vec![("m1", 2), ("m2", 1), ("m3", 3)]),
        (dynamic.clone(), 12, none, vec![("m1", 4), ("m2", 2), ("m3", 6)]),
        // Only what is new is divided; 4 : 2 : 6.
        (dynamic.clone(), 8, &[("m1", 2)], vec![("m1", 4), ("m2", 1), ("m3", 3)]),
        // By what is there.
        (dynamic.clone(), 6, &[("m1", 2), ("m2", 4), ("m3", 6)], vec![("m1", 1), ("m2", 2), ("m3", 3)]),
        (dynamic.clone(), 12, &[("m1", 2), ("m2", 4), ("m3", 6)], vec![("m1", 2), ("m2", 4), ("m3", 6)]),
        // What was elsewhere is new here.
        (dynamic, 6, &[("gone", 6)], vec![("m1", 2), ("m2", 1), ("m3", 3)]),
        (aggregated.clone(), 6, none, vec![("m3", 6)]),
        (aggregated.clone(), 8, none, vec![("m1", 3), ("m3", 5)]),
        // Those in use come first.
        (aggregated.clone(), 4, &[("m2", 2)], vec![("m2", 4)]),
        (aggregated.clone(), 8, &[("m2", 2)], vec![("m2", 4), ("m3", 4)]),
        (aggregated, 6, &[("m1", 4), ("m2", 8)], vec![("m2", 6)]),
    ] {
        let before = Previous { shares: shares(previous), ..Previous::default() };
        let found = decided([all(scheduling.clone())], &deployment(replicas), &before);
        assert_eq!(found.shares, shares(&expected), "{scheduling} {replicas} {previous:?}");
    }
}

#[test]
fn what_has_no_room_stays_and_what_fits_nowhere_goes() {
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let before = Previous { shares: shares(&[("m1", 3)]), ..Previous::default() };
    let crowded = json!({"resourceSelectors": selectors, "placement": {
        "clusterAffinity": {"exclude": ["m3"]}, "replicaScheduling": {"replicaDivisionPreference": "Aggregated"}}});
    let found = decided([policy("PropagationPolicy", "p", crowded)], &deployment(99), &before);
    assert_eq!(found.shares, before.shares);
    assert_eq!(
        found.reason().as_deref(),
        Some(
            "not enough room: the clusters have room for 6 more replicas, 96 are needed: m3: the policy excludes it by \
             name; what runs stays where it is"
        )
    );
    let nowhere =
        json!({"resourceSelectors": selectors, "placement": {"clusterAffinity": {"clusterNames": ["m9"]}}});
    let found = decided([policy("PropagationPolicy", "p", nowhere)], &deployment(1), &before);
    assert_eq!(found.shares, Shares::new());
    let why = "the policy lists other clusters by name";
    assert_eq!(
        found.reason(),
        Some(format!("no cluster fits (3 looked at): m1: {why}; m2: {why}; m3: {why}"))
    );
}

/// Who forgets to say how much room there is hears of it.
#[test]
fn room_that_nobody_knows() {
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    let spec = json!({"resourceSelectors": selectors, "placement": {
        "clusterAffinity": {"clusterNames": ["m9"]}, "replicaScheduling": {"replicaDivisionPreference": "Aggregated"}}});
    let silent = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m9"}, "spec": {}});
    let found =
        decided([policy("PropagationPolicy", "p", spec), silent], &deployment(1), &Previous::default());
    assert_eq!(found.rejected["m9"], Rejection::NoRoomKnown);
    assert!(found.reason().unwrap().contains("m9: nobody said how much room it has"));
}

#[test]
fn what_is_held_back_is_decided_all_the_same() {
    let selectors = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    for (suspension, expected) in [
        (json!({"dispatching": true}), Some("the policy holds it back from m1, m2, m3")),
        (json!({"dispatching": false}), None),
        (
            json!({"dispatchingOnClusters": {"clusterNames": ["m2", "m9"]}}),
            Some("the policy holds it back from m2"),
        ),
    ] {
        let spec = json!({"resourceSelectors": selectors, "suspension": suspension});
        let found = decided([policy("PropagationPolicy", "p", spec)], &deployment(1), &Previous::default());
        assert_eq!((found.shares.len(), found.reason().as_deref()), (3, expected), "{suspension}");
    }
}

#[test]
fn what_was_decided_before() {
    let spec: ResourceBindingSpec = serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u"},
        "clusters": [{"name": "m1", "replicas": 2}, {"name": "m2"}],
        "gracefulEvictionTasks": [{"fromCluster": "m3", "reason": "r", "producer": "p"}],
        "rescheduleTriggeredAt": "2026-01-02T00:00:00Z",
    }))
    .unwrap();
    let expected = Previous {
        uid: "u".to_owned(),
        shares: shares(&[("m1", 2), ("m2", 0)]),
        affinity: None,
        leaving: BTreeSet::from(["m3".to_owned()]),
        fresh: false,
        frozen: false,
        revision: None,
        former: None,
    };
    assert_eq!(Previous::of(&spec, None), expected);
    for (decided, fresh) in [("2026-01-01T00:00:00Z", true), ("2026-01-03T00:00:00Z", false)] {
        let status: ResourceBindingStatus = serde_json::from_value(
            json!({"lastScheduledTime": decided, "schedulerObservingAffinityName": "near"}),
        )
        .unwrap();
        let found = Previous::of(&spec, Some(&status));
        assert_eq!((found.fresh, found.affinity.as_deref()), (fresh, Some("near")));
    }
}

/// As a running host does: what a policy said holds when it is gone.
#[test]
fn a_policy_that_is_gone_is_obeyed_until_another_has_the_object() {
    let binding: ResourceBinding = serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop",
            "labels": {"propagationpolicy.karmada.io/permanent-id": "i"},
            "annotations": {"propagationpolicy.karmada.io/namespace": "shop", "propagationpolicy.karmada.io/name": "old"}},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"},
            "placement": {"clusterAffinity": {"clusterNames": ["m2"]}}, "clusters": [{"name": "m2", "replicas": 1}]},
    }))
    .unwrap();
    let before = Previous::of_binding(&binding);
    let found = decided([], &deployment(2), &before);
    assert_eq!((found.policy.as_ref(), &found.shares), (None, &shares(&[("m2", 2)])));
    let reason = found.reason().unwrap();
    assert!(reason.starts_with("policy shop/old is gone: "), "{reason}");
    let other = policy(
        "PropagationPolicy",
        "new",
        json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}),
    );
    let found = decided([other], &deployment(2), &before);
    assert_eq!((found.shares.clone(), found.reason()), (shares(&[("m1", 2)]), None));
    // What nobody ever had goes nowhere.
    assert_eq!(decided([], &deployment(2), &Previous::default()).verdict, Verdict::NoPolicy);
}

/// Odd replicas go by the UID, and so do the completions of a Job.
#[test]
fn the_uid_decides_ties() {
    let selectors = json!([{"apiVersion": "batch/v1", "kind": "Job"}]);
    let spec = json!({"resourceSelectors": selectors, "placement": {"clusterAffinity": {"clusterNames": ["m1", "m2"]}, "replicaScheduling": {}}});
    // FNV-1a of "b" is odd, of "a" even.
    for (uid, expected) in [("a", [("m1", 2), ("m2", 1)]), ("b", [("m1", 1), ("m2", 2)])] {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "shop", "uid": uid}, "spec": {"parallelism": 3, "completions": 6}});
        let found = decided([policy("PropagationPolicy", "p", spec.clone())], &job, &Previous::default());
        assert_eq!(found.shares, shares(&expected));
        let completions: Shares =
            expected.iter().map(|(name, share)| ((*name).to_owned(), share * 2)).collect();
        assert_eq!(found.completions, Some(completions));
    }
}

/// Each copy of a duplicated Job does all of it.
#[test]
fn duplicated_completions_stay() {
    let selectors = json!([{"apiVersion": "batch/v1", "kind": "Job"}]);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "shop"}, "spec": {"parallelism": 3, "completions": 6}});
    let found = decided(
        [policy("PropagationPolicy", "p", json!({"resourceSelectors": selectors}))],
        &job,
        &Previous::default(),
    );
    assert_eq!((found.completions, found.shares.len()), (None, 3));
}

#[test]
fn a_lazy_policy_waits_for_the_object() {
    let lazy = |kind: &str, version: &str| {
        policy(
            "PropagationPolicy",
            "p",
            json!({"resourceSelectors": [{"apiVersion": version, "kind": kind}], "activationPreference": "Lazy",
                "placement": {"clusterAffinity": {"clusterNames": ["m2"]}}}),
        )
    };
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}});
    for (mut object, version, field, now, next) in [
        (deployment(2), "apps/v1", "generation", json!(4), json!(5)),
        (config, "v1", "resourceVersion", json!("4"), json!("5")),
    ] {
        let binding: ResourceBinding = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": "b", "namespace": "shop",
                "labels": {"propagationpolicy.karmada.io/permanent-id": "i"},
                "annotations": {"propagationpolicy.karmada.io/namespace": "shop",
                    "propagationpolicy.karmada.io/name": "p", GENERATION: "4"}},
            "spec": {"resource": {"apiVersion": version, "kind": object["kind"], "name": "x"},
                "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}, "clusters": [{"name": "m1", "replicas": 2}]},
        }))
        .unwrap();
        let previous = Previous::of_binding(&binding);
        let kind = object["kind"].as_str().unwrap().to_owned();
        object["metadata"][field] = now;
        let untouched = decided([lazy(&kind, version)], &object, &previous);
        assert_eq!(untouched.shares.keys().collect::<Vec<_>>(), ["m1"], "{kind}");
        assert!(untouched.reason().unwrap().starts_with("its policy is Lazy: "), "{kind}");
        assert!(untouched.rejected.contains_key("m2"), "{kind}");
        object["metadata"][field] = next;
        let changed = decided([lazy(&kind, version)], &object, &previous);
        assert_eq!(changed.shares.keys().collect::<Vec<_>>(), ["m2"], "{kind}");
        assert_eq!(changed.reason(), None, "{kind}");
    }
}
