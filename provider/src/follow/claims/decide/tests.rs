use super::*;
use crate::{names::NamespaceMap, translate::tests::cluster};

fn claim(changes: &Value) -> Value {
    let mut claim = json!({
        "metadata": { "namespace": "shop", "name": "data", "uid": "c1" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "federlet",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    merge(&mut claim, changes);
    claim
}

fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, changes) => *into = changes.clone(),
    }
}

fn chosen(node: &str, provisioner: &str) -> Value {
    json!({ "metadata": { "annotations": { SELECTED_NODE: node, WANTED_PROVISIONERS[0]: provisioner } } })
}

#[test]
fn only_claims_that_wait_for_this_node_get_a_volume() {
    let here = chosen("member1", PROVISIONER);
    assert!(waits_for_us(&claim(&here), "member1"));
    for (what, other) in [
        ("no node was chosen", json!({})),
        ("another node", chosen("member2", PROVISIONER)),
        ("another provisioner", chosen("member1", "ebs.csi.aws.com")),
        ("it is bound", {
            let mut c = here.clone();
            c["spec"]["volumeName"] = "v".into();
            c
        }),
        ("it goes away", {
            let mut c = here;
            c["metadata"]["deletionTimestamp"] = "now".into();
            c
        }),
    ] {
        assert!(!waits_for_us(&claim(&other), "member1"), "{what}");
    }
}

#[test]
fn a_claim_that_is_given_back_waits_for_nobody() {
    let mut waiting = claim(&chosen("member1", PROVISIONER));
    waiting["metadata"]["resourceVersion"] = "7".into();
    let patch = choose_again(&waiting);
    assert_eq!(patch["metadata"]["resourceVersion"], "7", "not if somebody was quicker");
    merge(&mut waiting, &patch);
    assert_eq!(waits_for(&waiting), None);
    assert_eq!(marks::annotation(&waiting, WANTED_PROVISIONERS[0]), Some(PROVISIONER));
}

#[test]
fn data_that_was_let_go_is_found_again() {
    let made =
        Claimed { node: "member1".into(), namespace: "shop".into(), name: "data".into(), uid: "m1".into() };
    let bound = claim(&json!({ "spec": { "volumeName": "pvc-c1" } }));
    let free =
        json!({ "metadata": { "uid": "m1", "labels": { "theirs": "x" } }, "spec": { "volumeName": "v" } });
    let with = |changes: Value| {
        let mut there = free.clone();
        merge(&mut there, &changes);
        there
    };
    for (what, there, claim, expected) in [
        ("let go", free.clone(), bound.clone(), true),
        ("another one", with(json!({ "metadata": { "uid": "m2" } })), bound.clone(), false),
        (
            "of another host",
            with(json!({ "metadata": { "labels": { marks::HOST: "h" } } })),
            bound.clone(),
            false,
        ),
        (
            "of another node",
            with(json!({ "metadata": { "labels": { marks::NODE: "n" } } })),
            bound.clone(),
            false,
        ),
        ("going", with(json!({ "metadata": { "deletionTimestamp": "now" } })), bound, false),
        ("bound by hand", free.clone(), claim(&json!({ "spec": { "volumeName": "other" } })), false),
        ("not bound", free.clone(), claim(&json!({})), false),
    ] {
        assert_eq!(was_let_go(&there, &made, &claim), expected, "{what}");
    }
    let desired = json!({ "metadata": {
        "labels": { marks::HOST: "h", marks::NODE: "n", marks::HOST_UID: "c1", "app": "db" },
        "annotations": { marks::HOST_NAMESPACE: "shop" },
        "ownerReferences": [{ "uid": "anchor" }],
    } });
    let ours = take_again(&free, &desired);
    assert_eq!(let_go(&ours)["metadata"]["labels"], free["metadata"]["labels"], "and can be let go again");
    assert_eq!(marks::label(&ours, marks::HOST_UID), Some("c1"));
    assert_eq!(
        (&ours["metadata"]["ownerReferences"], &ours["spec"]),
        (&desired["metadata"]["ownerReferences"], &free["spec"])
    );
}

fn our_volume(node: &str) -> Value {
    let target = cluster();
    let there = json!({ "metadata": { "uid": "m1" } });
    let namespace = NamespaceMap::same().map("shop").unwrap();
    let mut volume = volume(&claim(&json!({})), None, &there, &namespace, &target).unwrap();
    volume["spec"]["csi"]["volumeAttributes"]["node"] = node.into();
    volume
}

#[test]
fn a_volume_says_where_its_data_is() {
    let node = cluster().node.as_str().to_owned();
    let ours =
        Claimed { node: node.clone(), namespace: "shop".into(), name: "data".into(), uid: "m1".into() };
    assert_eq!(Volume::of(Some(&our_volume(&node)), &node), Volume::Ours(ours));
    assert_eq!(Volume::of(Some(&our_volume("other")), &node), Volume::Elsewhere("other".into()));
    assert_eq!(Volume::of(None, &node), Volume::None);
    for host in
        [json!({ "spec": { "nfs": {} } }), json!({ "spec": { "csi": { "driver": "x" } } }), json!(null)]
    {
        assert_eq!(Volume::of(Some(&host), &node), Volume::OnHost, "{host}");
    }
}

#[test]
fn a_volume_is_one_that_the_hosts_binder_takes() {
    let volume = our_volume("member1");
    assert_eq!(volume["metadata"]["name"], "pvc-c1");
    let spec = &volume["spec"];
    assert_eq!((&spec["claimRef"]["uid"], &spec["claimRef"]["name"]), (&json!("c1"), &json!("data")));
    assert_eq!(
        (&spec["capacity"]["storage"], &spec["storageClassName"]),
        (&json!("1Gi"), &json!("federlet"))
    );
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(spec.get("volumeAttributesClassName"), None);
    let mut fast = claim(&json!({}));
    fast["spec"]["volumeAttributesClassName"] = "fast".into();
    let namespace = NamespaceMap::same().map("shop").unwrap();
    let there = json!({ "metadata": { "uid": "m1" } });
    let its = super::volume(&fast, None, &there, &namespace, &cluster()).unwrap();
    assert_eq!(its["spec"]["volumeAttributesClassName"], "fast");
    let terms = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"][0]["values"], json!([cluster().node.as_str()]));
}

#[test]
fn nobody_finds_an_empty_volume_where_data_should_be() {
    let mapped = StorageClasses::new([("federlet".to_owned(), "fast".to_owned())]);
    let none = StorageClasses::default();
    let elsewhere = Volume::Elsewhere("member2".into());
    for (volume, classes, reason) in [
        (Volume::None, &none, None),
        (
            Volume::Ours(Claimed {
                node: "n".into(),
                namespace: "n".into(),
                name: "c".into(),
                uid: "u".into(),
            }),
            &none,
            None,
        ),
        (Volume::OnHost, &none, Some("VolumeOnHost")),
        (Volume::OnHost, &mapped, None),
        (elsewhere.clone(), &none, Some("VolumeElsewhere")),
        (elsewhere, &mapped, Some("VolumeElsewhere")),
    ] {
        let refused = admit(&claim(&json!({})), &volume, classes).err().map(|(reason, _)| reason);
        assert_eq!(refused, reason, "{volume:?}");
    }
}

#[test]
fn the_members_class_is_the_mapped_one_or_that_of_our_class_or_its_default() {
    let mapped = StorageClasses::new([("federlet".to_owned(), "fast".to_owned())]);
    let none = StorageClasses::default();
    let plain = json!({ "provisioner": PROVISIONER });
    let named = json!({ "provisioner": PROVISIONER, "parameters": { CLASS_PARAMETER: "ssd" } });
    for (ours, classes, class) in [
        (None, &none, json!("federlet")),
        (Some(&plain), &none, json!(null)),
        (Some(&named), &none, json!("ssd")),
        (Some(&named), &mapped, json!("federlet")),
    ] {
        let mut copy = claim(&json!({}));
        choose_class(&mut copy, &claim(&json!({})), ours, classes);
        assert_eq!(copy["spec"]["storageClassName"], class);
    }
}

fn ours(claim: Value) -> Value {
    let target = cluster();
    let mut claim = claim;
    claim["metadata"]["labels"] =
        json!({ marks::HOST: target.host.as_str(), marks::NODE: target.node.as_str() });
    claim
}

#[test]
fn a_claim_only_ever_grows() {
    let target = cluster();
    let sized =
        |size: &str| ours(claim(&json!({ "spec": { "resources": { "requests": { "storage": size } } } })));
    assert_eq!(plan(&sized("1Gi"), None, &target), CopyPlan::Create);
    assert_eq!(plan(&sized("1Gi"), Some(&claim(&json!({}))), &target), CopyPlan::Foreign);
    for same in ["1Gi", "1024Mi", "512Mi"] {
        assert_eq!(plan(&sized(same), Some(&sized("1Gi")), &target), CopyPlan::Nothing, "{same}");
    }
    let mut there = sized("1Gi");
    there["spec"]["volumeName"] = "their-volume".into();
    let CopyPlan::Replace(grown) = plan(&sized("2Gi"), Some(&there), &target) else { panic!("it must grow") };
    assert_eq!(grown["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert_eq!(grown["spec"]["volumeName"], "their-volume");
}

#[test]
fn the_host_hears_of_a_size_only_if_it_grew() {
    let there = |size: &str| json!({ "status": { "capacity": { "storage": size } } });
    let volume = json!({ "spec": { "capacity": { "storage": "1Gi" } } });
    assert_eq!(grown(&there("2Gi"), &volume), Some(json!("2Gi")));
    for same in ["1Gi", "1024Mi", "1Mi", "much"] {
        assert_eq!(grown(&there(same), &volume), None);
    }
}

#[test]
fn only_what_is_over_and_not_to_be_kept_is_reclaimed() {
    let volume = |phase: &str, policy: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": policy }, "status": { "phase": phase } });
    for (phase, policy, over) in [
        ("Released", "Delete", true),
        ("Failed", "Delete", true),
        ("Released", "Retain", false),
        ("Bound", "Delete", false),
        ("Available", "Delete", false),
        ("Pending", "Delete", false),
    ] {
        assert_eq!(is_over(&volume(phase, policy)), over, "{phase} {policy}");
    }
}

#[test]
fn what_is_kept_is_not_ours_any_more() {
    let retained =
        |policy: &str| is_retained(&json!({ "spec": { "persistentVolumeReclaimPolicy": policy } }));
    assert!(retained("Retain") && !retained("Delete"));
    let target = cluster();
    let mut claim = ours(claim(&json!({})));
    claim["metadata"]["labels"]["theirs"] = "1".into();
    claim["metadata"]["ownerReferences"] = json!([{ "kind": "ConfigMap", "uid": "anchor" }]);
    let free = let_go(&claim);
    assert!(
        marks::is_ours(&claim, &target.host, &target.node)
            && !marks::is_ours(&free, &target.host, &target.node)
    );
    assert_eq!(free["metadata"]["labels"], json!({ "theirs": "1" }));
    assert_eq!((free["metadata"].get("ownerReferences"), &free["spec"]), (None, &claim["spec"]));
}
