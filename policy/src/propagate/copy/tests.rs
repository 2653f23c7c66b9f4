use super::*;

fn ids() -> (HostId, MemberName) {
    (HostId::new("host-1").unwrap(), MemberName::new("m1").unwrap())
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}, "data": {"a": "1"}})
}

fn desired(object: Value) -> Value {
    let (host, node) = ids();
    let anchor = Anchor { name: "anchor".into(), uid: "u".into() };
    let marking = Marking {
        ours: Ours { host: &host, node: &node },
        uid: "uid-1",
        namespace: "shop",
        anchor: Some(&anchor),
        preserve: false,
        applied: [&[], &[]],
    };
    marked(object, &marking)
}

fn planned(desired: &Value, there: Option<&Value>, settled: Option<u64>, others: &[&str]) -> Plan {
    let (host, node) = ids();
    plan(desired, there, Ours { host: &host, node: &node }, settled, others, ConflictResolution::Abort)
}

/// As an API server gives it back.
fn live(object: &Value) -> Value {
    let mut live = object.clone();
    live["metadata"]["resourceVersion"] = json!("7");
    live["metadata"]["uid"] = json!("there");
    live
}

#[test]
fn what_was_sent_and_is_there_is_not_sent_again() {
    let wanted = desired(config_map());
    assert_eq!(planned(&wanted, None, None, &[]), Plan::Apply(wanted.clone()));
    let mut there = live(&wanted);
    assert_eq!(planned(&wanted, Some(&there), None, &[]), Plan::Nothing);
    // What others add is theirs.
    there["metadata"]["labels"]["theirs"] = json!("1");
    assert_eq!(planned(&wanted, Some(&there), None, &[]), Plan::Nothing);
    there["data"]["a"] = json!("2");
    assert_eq!(planned(&wanted, Some(&there), None, &[]), Plan::Apply(wanted.clone()));
    // Unless that is what became of it when it was sent.
    assert_eq!(planned(&wanted, Some(&there), Some(content(&there)), &[]), Plan::Nothing);
    there["data"]["a"] = json!("3");
    assert!(matches!(planned(&wanted, Some(&there), Some(1), &[]), Plan::Apply(_)));
}

#[test]
fn a_field_that_the_template_lost_is_taken_away() {
    let mut before = config_map();
    before["data"]["b"] = json!("2");
    let there = live(&desired(before));
    // All that is wanted is there, and still it must be sent.
    assert!(matches!(planned(&desired(config_map()), Some(&there), None, &[]), Plan::Apply(_)));
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let wanted = desired(config_map());
    let foreign = live(&config_map());
    assert!(
        matches!(planned(&wanted, Some(&foreign), None, &[]), Plan::Conflict(why) if why.contains("not made by federlet"))
    );
    let (host, node) = ids();
    let taken = plan(
        &wanted,
        Some(&foreign),
        Ours { host: &host, node: &node },
        None,
        &[],
        ConflictResolution::Overwrite,
    );
    assert!(matches!(taken, Plan::Apply(_)));
    for (label, value) in [(marks::HOST, "host-2"), (marks::NODE, "m2")] {
        let mut other = live(&wanted);
        other["metadata"]["labels"][label] = json!(value);
        assert!(matches!(planned(&wanted, Some(&other), None, &[]), Plan::Conflict(_)), "{label}");
    }
}

#[test]
fn a_copy_that_goes_along_with_pods_is_taken_over_unless_it_holds_data() {
    for (kind, taken) in [("ConfigMap", true), ("Service", true), ("PersistentVolumeClaim", false)] {
        let mut object = config_map();
        object["kind"] = json!(kind);
        let wanted = desired(object);
        let mut there = live(&wanted);
        there["metadata"]["labels"].as_object_mut().unwrap().remove(marks::PROPAGATED);
        there["metadata"]["annotations"].as_object_mut().unwrap().remove(marks::SENT);
        let plan = planned(&wanted, Some(&there), None, &[]);
        assert_eq!(matches!(plan, Plan::Apply(_)), taken, "{kind}");
        assert_eq!(plan == Plan::Leave, !taken, "{kind}");
    }
}

#[test]
fn regions_share_what_has_no_namespace() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    let wanted = desired(role);
    let mut there = live(&wanted);
    there["metadata"]["labels"][marks::NODE] = json!("m2");
    there["metadata"]["annotations"][marks::SENT] = json!("other");
    assert_eq!(planned(&wanted, Some(&there), None, &["m2"]), Plan::Leave);
    // The other left: the copy is ours from now on.
    assert!(matches!(planned(&wanted, Some(&there), None, &[]), Plan::Apply(_)));
    there["metadata"]["labels"][marks::HOST_UID] = json!("another object");
    assert!(
        matches!(planned(&wanted, Some(&there), None, &["m2"]), Plan::Conflict(why) if why.contains("same cluster"))
    );
    assert!(matches!(planned(&wanted, Some(&there), None, &[]), Plan::Conflict(_)));
}

#[test]
fn marks_say_whose_it_is_and_who_runs_it_is_left_out() {
    let mut object = config_map();
    object["metadata"]["annotations"] = json!({marks::RUN_BY: "member", "mine": "1"});
    let wanted = desired(object);
    let (host, node) = ids();
    assert!(marks::is_ours(&wanted, &host, &node) && marks::is_propagated(&wanted));
    assert_eq!(marks::annotation(&wanted, marks::HOST_NAMESPACE), Some("shop"));
    assert_eq!(marks::annotation(&wanted, marks::RUN_BY), None);
    assert_eq!(marks::annotation(&wanted, "mine"), Some("1"));
    assert_eq!(wanted.pointer("/metadata/ownerReferences/0/uid"), Some(&json!("u")));
    let patch = released(&live(&wanted));
    for label in wanted["metadata"]["labels"].as_object().unwrap().keys() {
        assert_eq!(patch["metadata"]["labels"].get(label), Some(&Value::Null), "{label}");
    }
}

#[test]
fn what_the_member_chose_is_kept() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}});
    let wanted = desired(service);
    let mut there = live(&wanted);
    there["spec"]["clusterIP"] = json!("10.0.0.1");
    there["spec"]["ports"][0]["nodePort"] = json!(30000);
    assert_eq!(planned(&wanted, Some(&there), None, &[]), Plan::Nothing);
    there["spec"]["ports"][0]["port"] = json!(81);
    let Plan::Apply(sent) = planned(&wanted, Some(&there), None, &[]) else { panic!("it differs") };
    assert_eq!(sent["spec"]["clusterIP"], "10.0.0.1");
}

#[test]
fn a_copy_says_which_overrides_made_it() {
    let (host, node) = ids();
    let ours = Ours { host: &host, node: &node };
    let mark = |object: Value, applied: [&[String]; 2]| {
        let marking =
            Marking { ours, uid: "uid-1", namespace: "shop", anchor: None, preserve: false, applied };
        marked(object, &marking)
    };
    let (own, everywhere) = (["a".to_owned(), "b".to_owned()], ["z".to_owned()]);
    let copy = mark(config_map(), [&own, &everywhere]);
    let said = |key| marks::annotation(&copy, key);
    assert_eq!(
        said("policy.karmada.io/applied-overrides"),
        Some(r#"[{"policyName":"a"},{"policyName":"b"}]"#)
    );
    assert_eq!(said("policy.karmada.io/applied-cluster-overrides"), Some(r#"[{"policyName":"z"}]"#));
    // The same overrides are no reason to write again, others are.
    let there = live(&copy);
    assert_eq!(planned(&copy, Some(&there), None, &[]), Plan::Nothing);
    let fewer = mark(config_map(), [&own[..1], &everywhere]);
    assert!(matches!(planned(&fewer, Some(&there), None, &[]), Plan::Apply(_)));
    // Without any it says nothing, whatever its template does.
    let mut template = config_map();
    template["metadata"]["annotations"] = json!({"policy.karmada.io/applied-overrides": "[]"});
    assert_eq!(mark(template, [&[], &[]]), mark(config_map(), [&[], &[]]));
}

#[test]
fn only_what_was_seen_is_changed() {
    let wanted = desired(config_map());
    let there = live(&wanted);
    let onto = only_onto(&wanted, Some(&there));
    assert_eq!(onto["metadata"]["uid"], "there");
    assert_eq!(onto.pointer("/metadata/resourceVersion"), None, "what others write meanwhile is theirs");
    let new = only_onto(&wanted, None);
    assert_eq!((&new["metadata"]["resourceVersion"], new.pointer("/metadata/uid")), (&json!("1"), None));
    for (code, said, expected) in [
        (409, "Operation cannot be fulfilled: the object has been modified", true),
        (422, "metadata.uid: Invalid value: \"u\": field is immutable", true),
        (422, "data: Forbidden: field is immutable when `immutable` is set", false),
        (403, "no", false),
    ] {
        assert_eq!(is_another(code, said), expected, "{code} {said}");
    }
}

#[test]
fn what_has_an_address_is_never_made_anew() {
    for (kind, expected) in
        [("ConfigMap", true), ("RoleBinding", true), ("Service", false), ("PersistentVolumeClaim", false)]
    {
        assert_eq!(can_be_remade(kind), expected, "{kind}");
    }
}
