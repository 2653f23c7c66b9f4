use proptest::prelude::*;

use super::*;
use crate::translate::tests::{anchor, cluster, region};

fn reference(kind: Kind, host: &str) -> Reference {
    Reference { kind, host: host.to_owned(), member: format!("{host}-there"), optional: false }
}

fn copied(object: &Value, kind: Kind) -> Result<Value, CopyError> {
    let target = region();
    let namespace = target.namespaces.map("edge").unwrap();
    let classes = StorageClasses::new([("fast".to_owned(), "local-path".to_owned())]);
    copy(object, &reference(kind, "thing"), &namespace, &target, &anchor(), &classes)
}

fn config(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data, "futureField": 1,
        "metadata": {
            "name": "thing", "namespace": "edge", "uid": "u1", "resourceVersion": "5", "labels": { "a": "b" }, "finalizers": ["x"],
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "n" },
        },
    })
}

/// As the member's API server stores it.
fn stored(copy: &Value) -> Value {
    let mut stored = copy.clone();
    stored["metadata"]["uid"] = "m1".into();
    stored["metadata"]["resourceVersion"] = "9".into();
    stored["metadata"]["labels"]["theirs"] = "1".into();
    stored
}

#[test]
fn a_copy_is_ours_and_says_whose_it_is() {
    let copy = copied(&config(&json!({ "k": "v" })), Kind::ConfigMap).unwrap();
    let metadata = &copy["metadata"];
    assert_eq!(
        (&metadata["name"], &metadata["namespace"]),
        (&json!("thing-there"), &json!("edge-ke-beijing-cluster"))
    );
    assert_eq!(
        metadata["labels"],
        json!({ "a": "b", marks::HOST: "host-1", marks::NODE: "ke-beijing-cluster", marks::HOST_UID: "u1" })
    );
    assert_eq!(metadata["annotations"], json!({ "note": "n", marks::HOST_NAMESPACE: "edge" }));
    assert_eq!(metadata["ownerReferences"][0]["uid"], "anchor-uid");
    assert_eq!((metadata.get("finalizers"), metadata.get("resourceVersion")), (None, None));
    assert_eq!((&copy["data"], &copy["futureField"]), (&json!({ "k": "v" }), &json!(1)));
}

#[test]
fn no_token_of_a_service_account_leaves_the_host() {
    let secret =
        json!({ "metadata": { "uid": "u" }, "type": ACCOUNT_TOKEN, "data": { "token": "c2VjcmV0" } });
    let error = copied(&secret, Kind::Secret).unwrap_err();
    assert_eq!(error, CopyError::AccountToken("thing".to_owned()));
    assert!(!error.to_string().contains("c2VjcmV0"));
}

#[test]
fn a_claim_asks_the_member_for_a_volume_of_its_own() {
    let claim = json!({
        "metadata": { "uid": "u", "annotations": { "volume.kubernetes.io/selected-node": "member1", "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "storageClassName": "fast", "volumeName": "pv-1", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Bound" },
    });
    let copy = copied(&claim, Kind::EphemeralClaim).unwrap();
    assert_eq!(copy["kind"], "PersistentVolumeClaim");
    assert_eq!(
        copy["spec"],
        json!({ "storageClassName": "local-path", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } })
    );
    assert_eq!(copy["metadata"]["annotations"], json!({ marks::HOST_NAMESPACE: "" }));
    assert_eq!(copy.get("status"), None);
    let mut clone = claim;
    clone["spec"]["dataSourceRef"] = json!({ "kind": "VolumeSnapshot", "name": "s" });
    assert_eq!(copied(&clone, Kind::Claim), Err(CopyError::HostData("thing".to_owned())));
}

#[test]
fn plans_touch_only_what_is_ours_and_different() {
    let target = region();
    let desired = copied(&config(&json!({ "k": "v" })), Kind::ConfigMap).unwrap();
    let there = stored(&desired);
    assert_eq!(plan_copy(&desired, None, &target), CopyPlan::Create);
    assert_eq!(plan_copy(&desired, Some(&there), &target), CopyPlan::Nothing);
    assert_eq!(plan_copy(&desired, Some(&there), &cluster()), CopyPlan::Foreign, "of another virtual node");
    assert_eq!(plan_copy(&desired, Some(&json!({ "metadata": {} })), &target), CopyPlan::Foreign);

    let changed = copied(&config(&json!({ "k": "w" })), Kind::ConfigMap).unwrap();
    let CopyPlan::Replace(replacement) = plan_copy(&changed, Some(&there), &target) else {
        panic!("not replaced")
    };
    assert_eq!(replacement["data"], json!({ "k": "w" }));
    assert_eq!(
        (&replacement["metadata"]["uid"], &replacement["metadata"]["resourceVersion"]),
        (&json!("m1"), &json!("9"))
    );
    assert_eq!(replacement["metadata"]["labels"]["theirs"], "1");
}

#[test]
fn what_cannot_be_changed_is_made_again() {
    let target = region();
    let secret = |data: &str, kind: &str, immutable: bool| {
        let host = json!({ "metadata": { "uid": "u" }, "type": kind, "immutable": immutable, "data": { "k": data } });
        copied(&host, Kind::Secret).unwrap()
    };
    let again = CopyPlan::Recreate { uid: "m1".to_owned() };
    let frozen = stored(&secret("a", "Opaque", true));
    assert_eq!(plan_copy(&secret("a", "Opaque", true), Some(&frozen), &target), CopyPlan::Nothing);
    assert_eq!(plan_copy(&secret("b", "Opaque", true), Some(&frozen), &target), again);
    assert_eq!(plan_copy(&secret("a", "Opaque", false), Some(&frozen), &target), again);
    let plain = stored(&secret("a", "Opaque", false));
    assert_eq!(plan_copy(&secret("a", "kubernetes.io/tls", false), Some(&plain), &target), again);
    assert!(matches!(plan_copy(&secret("a", "Opaque", true), Some(&plain), &target), CopyPlan::Replace(_)));
    assert_eq!(
        plan_copy(&secret("a", "", false), Some(&plain), &target),
        CopyPlan::Nothing,
        "no type is Opaque"
    );
}

#[test]
fn what_a_policy_sent_is_used_as_it_is() {
    let target = region();
    let desired = copied(&config(&json!({ "k": "v" })), Kind::ConfigMap).unwrap();
    let mut there = stored(&desired);
    there["data"] = json!({ "k": "overridden" });
    assert!(matches!(plan_copy(&desired, Some(&there), &target), CopyPlan::Replace(_)));
    there["metadata"]["labels"][marks::PROPAGATED] = "true".into();
    assert_eq!(plan_copy(&desired, Some(&there), &target), CopyPlan::Nothing);
    // That of another host is nobody's to use.
    there["metadata"]["labels"][marks::HOST] = "another".into();
    assert_eq!(plan_copy(&desired, Some(&there), &target), CopyPlan::Foreign);
}

proptest! {
    #[test]
    fn a_copy_that_was_written_needs_no_more_writes(
        before in prop::collection::btree_map("[a-c]", "[a-c]", 0..3),
        after in prop::collection::btree_map("[a-c]", "[a-c]", 0..3),
    ) {
        let target = region();
        let there = stored(&copied(&config(&json!(before)), Kind::ConfigMap).unwrap());
        let desired = copied(&config(&json!(after)), Kind::ConfigMap).unwrap();
        match plan_copy(&desired, Some(&there), &target) {
            CopyPlan::Nothing => prop_assert_eq!(before, after),
            CopyPlan::Replace(written) => {
                prop_assert_ne!(before, after);
                prop_assert_eq!(plan_copy(&desired, Some(&written), &target), CopyPlan::Nothing);
            }
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
}
