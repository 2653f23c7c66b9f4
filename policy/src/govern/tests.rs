use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::PropagationPolicy;

fn policy(name: &str, spec: Value) -> Arc<Propagation> {
    let mut whole =
        json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let policy: PropagationPolicy = serde_json::from_value(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"namespace": "shop", "name": name, "uid": name}, "spec": whole,
    }))
    .unwrap();
    Arc::new(policy.into())
}

fn web() -> Meta {
    Meta {
        identity: Identity {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: "web".into(),
            ..Identity::default()
        },
        uid: "w".into(),
        generation: 3,
        owner: None,
    }
}

/// What a policy decided for generation 3.
fn binding(of: &Propagation, spec: Value) -> ResourceBinding {
    let mut whole = json!({"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "placement": {"clusterAffinity": {"clusterNames": ["old"]}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let claim = of.claim();
    let mut annotations = claim.annotations();
    annotations.insert(GENERATION.into(), "3".into());
    serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": "web-deployment", "labels": claim.labels(), "annotations": annotations},
        "spec": whole,
    }))
    .unwrap()
}

fn clusters(governed: &Governed) -> &[String] {
    governed.placement.cluster_affinity.as_ref().map_or(&[], |affinity| &affinity.cluster_names)
}

#[test]
fn what_makes_pods_wait() {
    let needs = policy("p", json!({"dependentOverrides": ["o", "q"]}));
    let held = policy("p", json!({"suspension": {"dispatching": true}}));
    let plain = policy("p", json!({}));
    let frozen = json!({"suspension": {"scheduling": true}});
    for (policy, overrides, recorded, expected) in [
        (&plain, &[][..], None, None),
        (&plain, &[], Some(json!({})), None),
        (&plain, &[], Some(frozen.clone()), Some("its binding suspends scheduling")),
        (&held, &[], Some(frozen.clone()), Some("policy shop/p suspends dispatching")),
        (&needs, &["o", "q"], None, None),
        (
            &needs,
            &["o"],
            Some(json!({})),
            Some("policy shop/p waits for dependent overrides that do not exist: q"),
        ),
        (&needs, &[], None, Some("policy shop/p waits for dependent overrides that do not exist: o, q")),
    ] {
        let mut view = View::with(vec![policy.clone()]);
        let names = overrides.iter().map(|name| ("shop".to_owned(), (*name).to_owned()));
        // Those of other namespaces, or of the whole host, do not count.
        let elsewhere = ("bank".to_owned(), "q".to_owned());
        view.override_names = (names.chain([elsewhere]).collect(), ["q".to_owned()].into());
        let recorded = recorded.map(|spec| binding(policy, spec));
        let governed = govern(&web(), &view, recorded.as_ref()).unwrap();
        assert_eq!(governed.hold.map(|hold| hold.to_string()).as_deref(), expected, "{overrides:?}");
    }
    // A policy that went leaves it frozen as well.
    let recorded = binding(&plain, frozen);
    let governed = govern(&web(), &View::default(), Some(&recorded)).unwrap();
    assert_eq!((governed.hold, governed.current), (Some(Hold::Frozen), false));
}

#[test]
fn who_has_a_workload() {
    let low = policy("low", json!({"priority": 1}));
    let higher = |name: &str, spec: Value| policy(name, spec);
    let always = json!({"priority": 2, "preemption": "Always"});
    for (others, claimed, expected) in [
        // Nobody had it, so the most important one gets it.
        (vec![higher("high", json!({"priority": 2}))], false, "high"),
        // Who has it keeps it, unless another takes it.
        (vec![higher("high", json!({"priority": 2}))], true, "low"),
        (vec![higher("high", always)], true, "high"),
        (vec![higher("same", json!({"priority": 1, "preemption": "Always"}))], true, "low"),
        (vec![higher("less", json!({"priority": 0, "preemption": "Always"}))], true, "low"),
    ] {
        let recorded = claimed.then(|| binding(&low, json!({})));
        let view = View::with([vec![low.clone()], others].concat());
        let governed = govern(&web(), &view, recorded.as_ref()).unwrap();
        assert_eq!(governed.claim.policy.name, expected, "claimed: {claimed}");
        assert!(governed.current);
    }
}

#[test]
fn what_was_said_before_holds_for_the_lazy_and_for_those_that_went() {
    let said = |extra: Value| {
        let mut spec = json!({"placement": {"clusterAffinity": {"clusterNames": ["new"]}}});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        policy("p", spec)
    };
    let (lazy, eager) = (said(json!({"activationPreference": "Lazy"})), said(json!({})));
    let recorded = binding(&lazy, json!({}));
    let changed = Meta { generation: 4, ..web() };
    for (policies, workload, expected) in [
        (vec![eager], web(), "new"),
        (vec![lazy.clone()], web(), "old"),
        (vec![lazy], changed, "new"),
        (vec![], web(), "old"),
    ] {
        let governed = govern(&workload, &View::with(policies), Some(&recorded)).unwrap();
        assert_eq!(clusters(&governed), [expected]);
    }
    assert_eq!(govern(&web(), &View::default(), None), None);
}
