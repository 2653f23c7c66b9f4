use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::translate::tests::{cluster, pod, pod_with, region, sent};

fn found(pod: &Value, target: &Target) -> Vec<(Kind, String, bool)> {
    let objects = references(pod, target).unwrap().objects;
    objects.into_iter().map(|r| (r.kind, r.host, r.optional)).collect()
}

/// A pod that refers to something in every place where one can.
fn greedy() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "a",
            "env": [
                { "name": "A", "valueFrom": { "configMapKeyRef": { "name": format!("cm-env-{name}"), "key": "k" } } },
                { "name": "B", "valueFrom": { "secretKeyRef": { "name": format!("s-env-{name}"), "key": "k", "optional": true } } },
            ],
            "envFrom": [{ "configMapRef": { "name": "shared" } }, { "secretRef": { "name": format!("s-from-{name}") } }],
        })
    };
    pod_with(&json!({
        "containers": [container("app")], "initContainers": [container("init")], "ephemeralContainers": [container("debug")],
        "imagePullSecrets": [{ "name": "pull" }, { "name": "s-vol" }, {}],
        "volumes": [
            pod()["spec"]["volumes"][0],
            { "name": "a", "configMap": { "name": "shared", "optional": true } },
            { "name": "b", "secret": { "secretName": "s-vol" } },
            { "name": "c", "projected": { "sources": [
                { "configMap": { "name": "cm-proj" } }, { "secret": { "name": "s-proj", "optional": true } },
                { "serviceAccountToken": { "audience": "vault", "path": "t" } },
            ] } },
            { "name": "d", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "e", "ephemeral": { "volumeClaimTemplate": {} } },
            { "name": "f", "csi": { "driver": "x", "nodePublishSecretRef": { "name": "s-csi" } } },
            { "name": "g", "azureFile": { "secretName": "s-azure" } },
            { "name": "h", "iscsi": { "secretRef": { "name": "s-iscsi" } } },
            { "name": "i", "emptyDir": {} },
        ],
    }))
}

#[test]
fn every_place_is_looked_at() {
    use Kind::{Claim, ConfigMap, EphemeralClaim, Secret};
    let want: Vec<(Kind, String, bool)> = [
        (ConfigMap, "cm-env-app", false),
        (ConfigMap, "cm-env-debug", false),
        (ConfigMap, "cm-env-init", false),
        (ConfigMap, "cm-proj", false),
        (ConfigMap, "kube-root-ca.crt", false),
        (ConfigMap, "shared", false),
        (Secret, "pull", true),
        (Secret, "s-azure", false),
        (Secret, "s-csi", false),
        (Secret, "s-env-app", true),
        (Secret, "s-env-debug", true),
        (Secret, "s-env-init", true),
        (Secret, "s-from-app", false),
        (Secret, "s-from-debug", false),
        (Secret, "s-from-init", false),
        (Secret, "s-iscsi", false),
        (Secret, "s-proj", true),
        (Secret, "s-vol", false),
        (Claim, "data", false),
        (EphemeralClaim, "web-0-e", false),
    ]
    .map(|(kind, name, optional)| (kind, name.to_owned(), optional))
    .to_vec();
    assert_eq!(found(&greedy(), &cluster()), want);
}

#[test]
fn tokens_are_asked_for_as_the_pod_asks() {
    let references = references(&greedy(), &cluster()).unwrap();
    assert_eq!(references.service_account, "robot");
    let asked: Vec<_> = references.tokens.iter().map(|t| (t.audience.as_deref(), t.expiration)).collect();
    assert!(asked.contains(&(None, 3607)) && asked.contains(&(Some("vault"), 3600)), "{asked:?}");
}

#[test]
fn with_the_members_api_no_token_and_no_certificate_leaves_the_host() {
    let target = Target { api: ApiAccess::Member, ..cluster() };
    let references = references(&pod(), &target).unwrap();
    assert_eq!((references.objects, references.tokens), (vec![], vec![]));
}

#[test]
fn without_an_api_only_tokens_that_the_user_wrote_are_made() {
    let target = Target { api: ApiAccess::None, ..cluster() };
    let audiences = |pod: &Value| -> Vec<_> {
        references(pod, &target).unwrap().tokens.into_iter().map(|token| token.audience).collect()
    };
    assert_eq!(audiences(&pod()), []);
    assert_eq!(audiences(&greedy()), [Some("vault".to_owned())]);
}

#[test]
fn a_bare_pod_needs_nothing() {
    let bare = json!({ "metadata": { "name": "a", "namespace": "b", "uid": "c" }, "spec": {} });
    let references = references(&bare, &cluster()).unwrap();
    assert_eq!((references.objects.len(), references.tokens.len()), (0, 0));
    assert_eq!(references.service_account, "default");
    assert!(super::references(&json!({}), &cluster()).is_err());
}

/// The names in the member that a pod sent there refers to.
fn member_names(member: &Value) -> Vec<(Kind, String)> {
    let mut json = member.clone();
    json["metadata"]["uid"] = "x".into();
    // Read as if it were a host pod that uses its own API: then nothing is renamed.
    let as_is = Target { api: ApiAccess::Member, ..cluster() };
    found(&json, &as_is).into_iter().map(|(kind, name, _)| (kind, name)).collect()
}

fn followed(pod: &Value, target: &Target) -> Vec<(Kind, String)> {
    let references = references(pod, target).unwrap();
    let claims = |kind| if kind == Kind::EphemeralClaim { Kind::Claim } else { kind };
    let mut names: Vec<_> = references.objects.into_iter().map(|r| (claims(r.kind), r.member)).collect();
    names.extend(references.tokens.into_iter().map(|token| (Kind::Secret, token.secret)));
    names.sort();
    names
}

proptest! {
    /// What is followed and what the pod in the member refers to are the same: nothing is missing there, and nothing
    /// leaves the host for no reason.
    #[test]
    fn references_and_translation_agree(
        volumes in prop::sample::subsequence((0usize..10).collect::<Vec<_>>(), 0..10),
        in_region in any::<bool>(),
        api in 0..2,
    ) {
        let mut target = if in_region { region() } else { cluster() };
        if api == 1 {
            target.api = ApiAccess::None;
        }
        let mut pod = greedy();
        let all = pod["spec"]["volumes"].clone();
        pod["spec"]["volumes"] = volumes.into_iter().map(|at| all[at].clone()).collect();
        let member = sent(&pod, &target);
        let mut there = member.json;
        there["spec"]["ephemeralContainers"] = member.ephemeral.into();
        prop_assert_eq!(followed(&pod, &target), member_names(&there));
    }
}
