use proptest::prelude::*;
use serde_json::json;

use super::*;

fn deployment(name: &str, labels: &[(&str, &str)]) -> Identity {
    Identity {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        namespace: "shop".into(),
        name: name.into(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Identity::default()
    }
}

fn selector(extra: serde_json::Value) -> ResourceSelector {
    let mut value = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    json_patch::merge(&mut value, &extra);
    serde_json::from_value(value).unwrap()
}

fn spec(priority: i32, selectors: Vec<ResourceSelector>) -> PropagationSpec {
    PropagationSpec { resource_selectors: selectors, priority, ..PropagationSpec::default() }
}

fn policy<'a>(namespace: Option<&'a str>, name: &'a str, spec: &'a PropagationSpec) -> Policy<'a> {
    Policy { namespace, name, id: Some(name), deleting: false, spec }
}

fn claim(namespace: Option<&str>, name: &str) -> Claim {
    Claim {
        policy: PolicyKey { namespace: namespace.map(str::to_owned), name: name.into() },
        id: name.into(),
    }
}

#[test]
fn selectors_and_their_precision() {
    let web = deployment("web", &[("app", "web")]);
    for (extra, expected) in [
        (json!({}), Some(Precision::Kind)),
        (json!({"namespace": "shop"}), Some(Precision::Kind)),
        (json!({"namespace": "bank"}), None),
        (json!({"name": "web"}), Some(Precision::Name)),
        (json!({"name": "db"}), None),
        (json!({"labelSelector": {"matchLabels": {"app": "web"}}}), Some(Precision::Labels)),
        (json!({"labelSelector": {"matchLabels": {"app": "db"}}}), None),
        (json!({"labelSelector": {}}), Some(Precision::Labels)),
        // A name makes the labels not matter.
        (json!({"name": "web", "labelSelector": {"matchLabels": {"app": "db"}}}), Some(Precision::Name)),
        // An invalid selector selects nothing.
        (json!({"labelSelector": {"matchExpressions": [{"key": "x", "operator": "NotIn"}]}}), None),
        (json!({"kind": "deployment"}), None),
        (json!({"apiVersion": "apps/v1beta1"}), None),
    ] {
        assert_eq!(precision(&selector(extra.clone()), &web), expected, "{extra}");
    }
}

#[test]
fn the_winner_among_several() {
    let web = deployment("web", &[("app", "web")]);
    let kind = spec(0, vec![selector(json!({}))]);
    let labels = spec(0, vec![selector(json!({"labelSelector": {"matchLabels": {"app": "web"}}}))]);
    let name = spec(0, vec![selector(json!({"name": "db"})), selector(json!({"name": "web"}))]);
    let high = spec(1, vec![selector(json!({}))]);
    let low = spec(-1, vec![selector(json!({"name": "web"}))]);
    let ns = Some("shop");
    let tables = [
        (vec![policy(ns, "b", &kind), policy(ns, "a", &kind)], Some("a")),
        (vec![policy(ns, "a", &kind), policy(ns, "b", &labels)], Some("b")),
        (vec![policy(ns, "a", &labels), policy(ns, "b", &name)], Some("b")),
        (vec![policy(ns, "a", &name), policy(ns, "b", &high)], Some("b")),
        (vec![policy(ns, "a", &low), policy(ns, "b", &kind)], Some("b")),
        (vec![policy(None, "a", &high), policy(ns, "b", &low)], Some("b")),
        (vec![policy(None, "a", &kind), policy(Some("bank"), "b", &high)], Some("a")),
        (vec![Policy { deleting: true, ..policy(ns, "a", &kind) }, policy(ns, "b", &low)], Some("b")),
        (vec![policy(Some("bank"), "b", &high)], None),
        (vec![], None),
    ];
    for (policies, expected) in tables {
        assert_eq!(choose(&web, policies.clone()).map(|policy| policy.name), expected, "{policies:?}");
    }
}

#[test]
fn who_has_it_keeps_it_unless_preempted() {
    let web = deployment("web", &[]);
    let at = |priority, preemption| PropagationSpec {
        preemption,
        ..spec(priority, vec![selector(json!({"name": "web"}))])
    };
    let (never, always) = (Preemption::Never, Preemption::Always);
    // (owner namespaced, owner priority, other namespaced, other priority, other's preemption, other takes it)
    for (owner_ns, owner_at, other_ns, other_at, preemption, taken) in [
        (true, 0, true, 9, never, false),
        (true, 0, true, 9, always, true),
        (true, 9, true, 9, always, false),
        (false, 9, true, 0, always, true),
        (false, 9, true, 0, never, false),
        (false, 0, false, 1, always, true),
        (false, 1, false, 1, always, false),
        (true, 0, false, 9, always, false),
    ] {
        let scope = |namespaced: bool| namespaced.then_some("shop");
        let (owner, other) = (at(owner_at, never), at(other_at, preemption));
        let policies = [policy(scope(owner_ns), "owner", &owner), policy(scope(other_ns), "other", &other)];
        let decision = decide(&web, Some(&claim(scope(owner_ns), "owner")), &policies);
        let expected = if taken { Decision::Take(policies[1]) } else { Decision::Keep(policies[0]) };
        assert_eq!(decision, expected, "{owner_ns} {owner_at} {other_ns} {other_at} {preemption:?}");
    }
}

#[test]
fn a_claim_ends_with_its_reason() {
    let web = deployment("web", &[]);
    let (mine, other) = (spec(0, vec![selector(json!({"name": "db"}))]), spec(0, vec![selector(json!({}))]));
    let ns = Some("shop");
    let held = claim(ns, "mine");
    // No longer selected.
    assert_eq!(decide(&web, Some(&held), &[policy(ns, "mine", &mine)]), Decision::Release);
    // Gone; another one takes it.
    let others = [policy(ns, "other", &other)];
    assert_eq!(decide(&web, Some(&held), &others), Decision::Take(others[0]));
    // Made again under the same name: a claim on the new one.
    let again = [Policy { id: Some("new"), ..policy(ns, "mine", &other) }];
    assert_eq!(decide(&web, Some(&held), &again), Decision::Take(again[0]));
    assert_eq!(decide(&web, None, &[]), Decision::Nothing);
}

#[test]
fn reserved_objects() {
    let reserved = Reserved::default();
    let object = |api_version: &str, kind: &str, namespace: &str, name: &str| Identity {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..Identity::default()
    };
    for (object, expected) in [
        (object("v1", "ConfigMap", "shop", "a"), false),
        (object("v1", "ConfigMap", "kube-system", "a"), true),
        (object("v1", "ConfigMap", "karmada-es-x", "a"), true),
        (object("v1", "Secret", "federlet-system", "member-1"), true),
        (object("v1", "ConfigMap", "shop", "kube-root-ca.crt"), true),
        (object("v1", "ServiceAccount", "shop", "default"), true),
        (object("v1", "ConfigMap", "shop", "default"), false),
        (object("v1", "Namespace", "", "kube-public"), true),
        (object("v1", "Namespace", "", "shop"), false),
        (object("policy.karmada.io/v1alpha1", "OverridePolicy", "shop", "a"), true),
        (object("policy/v1", "PodDisruptionBudget", "shop", "a"), false),
        (object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "kube-x"), false),
    ] {
        assert_eq!(reserved.holds(&object), expected, "{object:?}");
    }
    let mut claimed = object("v1", "ConfigMap", "shop", "a");
    claimed.labels.insert(Reserved::CLAIMED_BY.into(), "x".into());
    assert!(reserved.holds(&claimed));
}

#[test]
fn a_policy_waits_for_its_overrides() {
    let spec =
        PropagationSpec { dependent_overrides: vec!["a".into(), "b".into()], ..PropagationSpec::default() };
    let policy = policy(Some("shop"), "p", &spec);
    assert_eq!(policy.missing_overrides(&BTreeSet::from(["b", "c"])), ["a"]);
    assert!(policy.missing_overrides(&BTreeSet::from(["a", "b"])).is_empty());
}

proptest! {
    #[test]
    fn a_claim_is_read_as_it_was_put(namespace in proptest::option::of("[a-z]{1,8}"), name in "[a-z]{1,8}", id in "[a-f0-9]{4}") {
        let new = Claim { policy: PolicyKey { namespace, name }, id };
        let mut object = deployment("web", &[("app", "web")]);
        let before = object.clone();
        claim(None, "old").put_on(&mut object);
        new.put_on(&mut object);
        prop_assert_eq!(Claim::of(&object), Some(new));
        Claim::take_off(&mut object);
        prop_assert_eq!(object, before);
    }

    /// The order in which policies are listed never decides.
    #[test]
    fn the_order_of_policies_does_not_matter(
        drawn in proptest::collection::btree_map("[a-d]{1,2}", (-2i32..3, 0usize..3, any::<bool>()), 1..8),
        seed in any::<prop::sample::Index>(),
    ) {
        let web = deployment("web", &[("app", "web")]);
        let kinds = [json!({}), json!({"labelSelector": {"matchLabels": {"app": "web"}}}), json!({"name": "web"})];
        let specs: Vec<_> = drawn
            .iter()
            .map(|(name, (priority, kind, namespaced))| (name, *namespaced, spec(*priority, vec![selector(kinds[*kind].clone())])))
            .collect();
        let mut policies: Vec<_> =
            specs.iter().map(|(name, namespaced, spec)| policy(namespaced.then_some("shop"), name, spec)).collect();
        let first = choose(&web, policies.iter().copied()).map(|policy| policy.key());
        policies.rotate_left(seed.index(drawn.len()));
        prop_assert_eq!(&first, &choose(&web, policies.iter().copied()).map(|policy| policy.key()));
        policies.reverse();
        prop_assert_eq!(&first, &choose(&web, policies.iter().copied()).map(|policy| policy.key()));
    }
}
