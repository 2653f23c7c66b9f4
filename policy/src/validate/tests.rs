use serde_json::{Value, json};

use super::*;
use crate::api::{OverrideSpec, PropagationPolicy};

#[test]
fn every_field_is_accepted_and_kept() {
    let text = include_str!("full.yaml");
    let policy: PropagationPolicy = serde_saphyr::from_str(text).unwrap();
    assert_eq!(propagation(Some("default"), &policy.spec), []);
    let read: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&policy).unwrap(), read);
}

fn with(change: Value) -> PropagationSpec {
    let mut value = json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]});
    json_patch::merge(&mut value, &change);
    serde_json::from_value(value).unwrap()
}

#[test]
fn what_is_wrong_with_a_propagation_policy() {
    let affinity = |field: Value| json!({"placement": {"clusterAffinity": {"fieldSelector": {"matchExpressions": [field]}}}});
    let spread = |constraints: Value| json!({"placement": {"spreadConstraints": constraints}});
    let application = |change: Value| {
        let mut value = json!({"decisionConditions": {}, "gracePeriodSeconds": 1});
        json_patch::merge(&mut value, &change);
        json!({"propagateDeps": true, "failover": {"application": value}})
    };
    let overflow = |scheduling: Value, names: Value| {
        let tiers = json!([{"affinityName": "b", "clusterNames": ["m2"]}]);
        json!({"placement": {
            "replicaScheduling": scheduling,
            "clusterAffinities": [{"affinityName": "a", "clusterNames": names, "overflowAffinities": tiers}],
        }})
    };
    let aggregated = json!({"replicaDivisionPreference": "Aggregated"});
    for (change, expected) in [
        (json!({}), None),
        (json!({"resourceSelectors": []}), Some("at least one item")),
        (json!({"preemption": "Always"}), Some("name cannot be empty if preemption is Always")),
        (
            json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Pod", "namespace": "other"}]}),
            Some("namespace of resource selector must be the same as the namespace of the policy"),
        ),
        (
            json!({"placement": {"clusterAffinity": {}, "clusterAffinities": [{"affinityName": "a"}]}}),
            Some("clusterAffinities cannot co-exist with clusterAffinity"),
        ),
        (
            json!({"placement": {"clusterAffinities": [{"affinityName": "a"}, {"affinityName": "a"}]}}),
            Some("each affinity term in a policy must have a unique name"),
        ),
        (overflow(aggregated.clone(), json!(["m1"])), None),
        (
            overflow(aggregated, json!([])),
            Some("overflowAffinities can only be used together with the inline ClusterAffinity"),
        ),
        (
            overflow(json!({}), json!(["m1"])),
            Some("overflowAffinities can only be used together with dynamic weight or aggregated scheduling"),
        ),
        (affinity(json!({"key": "zone", "operator": "NotIn", "values": ["a"]})), None),
        (
            affinity(json!({"key": "x", "operator": "In", "values": ["a"]})),
            Some("unsupported key \"x\", must be provider, region, or zone"),
        ),
        (
            affinity(json!({"key": "zone", "operator": "Gt"})),
            Some("unsupported operator \"Gt\", must be In or NotIn"),
        ),
        (
            spread(json!([{"spreadByField": "cluster", "spreadByLabel": "a"}])),
            Some("spreadByLabel should not co-exist with spreadByField"),
        ),
        (spread(json!([{"minGroups": -1}])), Some("minGroups lower than 0 is not allowed")),
        (spread(json!([{"maxGroups": -1}])), Some("maxGroups lower than 0 is not allowed")),
        (
            spread(json!([{"minGroups": 2, "maxGroups": 1}])),
            Some("maxGroups lower than minGroups is not allowed"),
        ),
        (spread(json!([{"minGroups": 2}])), None),
        (
            spread(json!([{"spreadByField": "cluster"}, {"spreadByField": "cluster"}])),
            Some("multiple cluster spread constraints are not allowed"),
        ),
        (
            spread(json!([{"spreadByField": "region"}])),
            Some("the cluster spread constraint must be enabled in one of the constraints"),
        ),
        (
            json!({"placement": {"workloadAffinity": {"affinity": {"groupByLabelKey": "a"}, "antiAffinity": {"groupByLabelKey": "a"}}}}),
            Some("affinity and antiAffinity must not use the same groupByLabelKey"),
        ),
        (json!({"placement": {"clusterTolerations": [{"operator": "Gt"}]}}), Some("must be Equal or Exists")),
        (application(json!({})), None),
        (
            json!({"failover": {"application": {"decisionConditions": {}, "gracePeriodSeconds": 1}}}),
            Some("application failover is set, propagateDeps must be true"),
        ),
        (
            application(json!({"decisionConditions": {"tolerationSeconds": -1}})),
            Some("must be greater than or equal to 0"),
        ),
        (
            application(json!({"purgeMode": "Directly"})),
            Some("only takes effect when purgeMode is gracefully"),
        ),
        (
            application(json!({"gracePeriodSeconds": null})),
            Some("should not be empty when purgeMode is gracefully"),
        ),
        (application(json!({"gracePeriodSeconds": 0})), Some("must be greater than 0")),
        (
            json!({"suspension": {"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["a"]}}}),
            Some("suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames"),
        ),
    ] {
        let found = propagation(Some("shop"), &with(change.clone()));
        match expected {
            None => assert_eq!(found, [], "{change}"),
            Some(message) => {
                assert!(found.iter().any(|one| one.message.contains(message)), "{change}: {found:?}");
            }
        }
    }
    let other = PropagationSpec { scheduler_name: "other".into(), ..with(json!({})) };
    assert_eq!(
        propagation_update(&with(json!({})), &other)[0].message,
        "the schedulerName should not be updated"
    );
}

#[test]
fn the_id_of_a_policy_stays() {
    let label = crate::claim::Claim::NAMESPACED_ID;
    assert_eq!(permanent_id_update(label, Some("a"), Some("a")), None);
    for (old, new) in [(Some("a"), Some("b")), (Some("a"), None), (None, Some("a"))] {
        let message = permanent_id_update(label, old, new).unwrap().message;
        let expected = "label propagationpolicy.karmada.io/permanent-id is immutable, it can only be set by the system during creation";
        assert_eq!(message, expected);
    }
}

#[test]
fn what_a_policy_means_when_it_says_nothing() {
    let mut spec = with(json!({
        "resourceSelectors": [{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport"}],
        "placement": {"spreadConstraints": [{}], "replicaScheduling": {}},
        "failover": {"application": {"decisionConditions": {}}},
    }));
    default_propagation(Some("shop"), &mut spec);
    assert_eq!(spec.resource_selectors[0].namespace, "shop");
    assert!(spec.propagate_deps);
    let constraint = &spec.placement.spread_constraints[0];
    assert_eq!((constraint.spread_by_field, constraint.min_groups), (Some(SpreadField::Cluster), 1));
    let scheduling = spec.placement.replica_scheduling.clone().unwrap();
    assert_eq!(scheduling.replica_division_preference, Some(ReplicaDivisionPreference::Weighted));
    assert_eq!(spec.failover.clone().unwrap().application.unwrap().grace_period_seconds, Some(600));
    assert_eq!(propagation(Some("shop"), &spec), []);
    let again = spec.clone();
    default_propagation(Some("shop"), &mut spec);
    assert_eq!(spec, again);
}

#[test]
fn what_is_wrong_with_an_override_policy() {
    let rule = |overriders: Value| json!({"overrideRules": [{"overriders": overriders}]});
    for (spec, expected) in [
        (json!({}), None),
        (
            json!({"overrideRules": [{"overriders": {}}], "targetCluster": {}}),
            Some("overrideRules and targetCluster can't co-exist"),
        ),
        (
            json!({"overrideRules": [{"overriders": {}}], "overriders": {"fieldOverrider": [{"fieldPath": "/a", "json": [{"subPath": "/a", "operator": "remove"}]}]}}),
            Some("overrideRules and overriders can't co-exist"),
        ),
        (
            rule(json!({"fieldOverrider": [{"fieldPath": "/a"}]})),
            Some("FieldOverrider must have either JSON or YAML set"),
        ),
        (
            rule(
                json!({"fieldOverrider": [{"fieldPath": "/a", "json": [{"subPath": "/a", "operator": "remove"}], "yaml": [{"subPath": "/a", "operator": "remove"}]}]}),
            ),
            Some("FieldOverrider has both YAML and JSON set. Only one is allowed"),
        ),
        (
            rule(
                json!({"fieldOverrider": [{"fieldPath": "/a", "json": [{"subPath": "/a", "operator": "add"}]}]}),
            ),
            Some("value is required for add or replace operation"),
        ),
        (
            rule(
                json!({"fieldOverrider": [{"fieldPath": "/a", "json": [{"subPath": "/a", "operator": "remove", "value": 1}]}]}),
            ),
            Some("value is not allowed for remove operation"),
        ),
        (rule(json!({"plaintext": [{"path": "a", "operator": "remove"}]})), Some("not a JSON pointer")),
        (
            rule(json!({"labelsOverrider": [{"operator": "add", "value": {"a b": "c"}}]})),
            Some("not a valid label key"),
        ),
        (rule(json!({"annotationsOverrider": [{"operator": "add", "value": {"a": "any text"}}]})), None),
        (
            rule(json!({"imageOverrider": [{"component": "Tag", "operator": "add"}]})),
            // As in Karmada: it changes nothing, which is said.
            None,
        ),
        (rule(json!({"plaintext": [{"path": "/a", "operator": "remove", "value": "b"}]})), None),
        (rule(json!({"plaintext": [{"path": "/a", "operator": "add"}]})), None),
    ] {
        let found = overrides(Some("shop"), &serde_json::from_value::<OverrideSpec>(spec.clone()).unwrap());
        match expected {
            None => assert_eq!(found, [], "{spec}"),
            Some(message) => {
                assert!(found.iter().any(|one| one.message.contains(message)), "{spec}: {found:?}");
            }
        }
    }
}
