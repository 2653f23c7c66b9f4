//! What a member does not allow, does not have, or is too old for.

use super::*;
use crate::target::{ApiAccess, Policy, Registries};

fn bad_pod() -> Value {
    let mut pod = pod_with(&json!({
        "hostNetwork": true, "hostPID": true, "hostIPC": true,
        "priorityClassName": "system-node-critical", "runtimeClassName": "gvisor",
        "resourceClaims": [{ "name": "gpu" }],
        "initContainers": [{ "name": "setup", "image": "evil.example/x", "securityContext": { "privileged": true } }],
        "ephemeralContainers": [{ "name": "debug", "image": "nginx", "securityContext": { "privileged": true } }],
    }));
    for volume in [
        json!({ "name": "etc", "hostPath": { "path": "/etc" } }),
        json!({ "name": "img", "image": { "reference": "evil.example/y" } }),
        json!({ "name": "cert", "projected": { "sources": [
            { "podCertificate": {} }, { "clusterTrustBundle": { "name": "b" } }, { "clusterTrustBundle": { "name": "c", "optional": true } },
        ] } }),
    ] {
        pod["spec"]["volumes"].as_array_mut().unwrap().push(volume);
    }
    pod
}

#[test]
fn everything_that_is_not_allowed_is_named_at_once() {
    let policy = Policy { registries: Some(Registries::new(["docker.io"])), ..Policy::default() };
    let target = Target { policy, ..cluster() };
    let privileged = |container: &str| Refusal::Privileged { container: container.to_owned() };
    let image = |image: &str| Refusal::Image { image: image.to_owned() };
    let source = |source_kind| Refusal::VolumeSource { volume: "cert".to_owned(), source_kind };
    assert_eq!(
        refused(&bad_pod(), &target),
        [
            Refusal::HostNetwork,
            Refusal::HostProcesses { field: "hostPID" },
            Refusal::HostProcesses { field: "hostIPC" },
            Refusal::ResourceClaims,
            Refusal::SystemPriority { class: "system-node-critical".to_owned() },
            Refusal::RuntimeClass { class: "gvisor".to_owned() },
            privileged("setup"),
            image("evil.example/x"),
            Refusal::HostPath { volume: "etc".to_owned() },
            image("evil.example/y"),
            source("podCertificate"),
            source("clusterTrustBundle"),
        ]
    );
}

#[test]
fn what_the_owner_of_the_member_allows_goes_through() {
    let mut target = cluster();
    target.policy = Policy {
        privileged: true,
        host_network: true,
        host_processes: true,
        host_path: true,
        system_priority: true,
        registries: None,
    };
    target.offers.runtime_classes = Some(["gvisor".to_owned()].into());
    let mut pod = bad_pod();
    pod["spec"]["resourceClaims"] = json!([]);
    pod["spec"]["volumes"].as_array_mut().unwrap().pop();
    let spec = sent(&pod, &target).json["spec"].clone();
    for field in
        ["hostNetwork", "hostPID", "hostIPC", "priorityClassName", "runtimeClassName", "initContainers"]
    {
        assert!(spec.get(field).is_some(), "{field}");
    }
}

#[test]
fn a_debug_container_that_is_not_allowed_stops_nothing_else() {
    let debug = |name: &str, privileged: bool| json!({ "name": name, "image": "a", "securityContext": { "privileged": privileged } });
    let spec = json!({ "ephemeralContainers": [debug("root", true), debug("plain", false)] });
    let member = sent(&pod_with(&spec), &cluster());
    assert_eq!(member.ephemeral.len(), 1);
    assert_eq!(member.ephemeral[0]["name"], "plain");
    assert_eq!(member.notices[0].reason, "EphemeralContainerNotAllowed");
    assert!(member.notices[0].message.contains("root"));
}

#[test]
fn whatever_is_left_out_is_said() {
    let told = |spec: &Value, target: &Target| -> Vec<&'static str> {
        sent(&pod_with(spec), target).notices.iter().map(|notice| notice.reason).collect()
    };
    let mut member = cluster();
    member.api = ApiAccess::Member;
    let account = |name: &str| json!({ "serviceAccountName": name });
    assert_eq!(told(&account("robot"), &member), ["ServiceAccountNotUsed"]);
    assert!(told(&account("default"), &member).is_empty());
    assert!(told(&account("robot"), &cluster()).is_empty(), "its token is in the pod");
    let bundle = json!({ "volumes": [{ "name": "trust", "projected": { "sources": [
        { "clusterTrustBundle": { "name": "b", "optional": true, "path": "b" } },
    ] } }] });
    assert_eq!(told(&bundle, &cluster()), ["TrustBundleLeftOut"]);
    assert_eq!(told(&json!({ "schedulerName": "own" }), &cluster()), ["SchedulerNotFound"]);
}

#[test]
fn host_processes_of_windows_count_as_privileged() {
    let spec = json!({ "securityContext": { "windowsOptions": { "hostProcess": true } } });
    assert_eq!(
        refused(&pod_with(&spec), &cluster()),
        [Refusal::Privileged { container: "every".to_owned() }]
    );
}

#[test]
fn a_single_refusal_gives_its_own_reason() {
    let error = translate(
        &pod_with(&json!({ "hostNetwork": true })),
        &cluster(),
        &Request { anchor: &anchor(), member_name: None, service_env: &[] },
    )
    .unwrap_err();
    assert_eq!(
        (error.reason(), error.to_string().as_str()),
        ("HostNetworkNotAllowed", "the member does not allow hostNetwork")
    );
}

#[test]
fn classes_go_along_if_the_member_has_them() {
    let spec = json!({ "priorityClassName": "batch", "schedulerName": "volcano", "priority": 7 });
    let member = sent(&pod_with(&spec), &cluster());
    assert_eq!(
        (member.json["spec"].get("priorityClassName"), member.json["spec"].get("schedulerName")),
        (None, None)
    );
    let reasons: Vec<&str> = member.notices.iter().map(|notice| notice.reason).collect();
    assert_eq!(reasons, ["SchedulerNotFound", "PriorityClassNotFound"]);

    let mut target = cluster();
    target.offers.priority_classes = Some(["batch".to_owned()].into());
    let member = sent(&pod_with(&spec), &target);
    assert_eq!(member.json["spec"]["priorityClassName"], "batch");
    assert_eq!(member.json["spec"].get("priority"), None, "the member's admission writes its own");
    let reasons: Vec<&str> = member.notices.iter().map(|notice| notice.reason).collect();
    assert_eq!(reasons, ["SchedulerNotFound"]);
}

#[test]
fn nothing_is_left_out_before_the_member_was_seen_whole() {
    let unseen = Target { offers: crate::target::Offers::default(), ..cluster() };
    let request = Request { anchor: &anchor(), member_name: None, service_env: &[] };
    for spec in [json!({ "priorityClassName": "batch" }), json!({ "runtimeClassName": "gvisor" })] {
        let error = translate(&pod_with(&spec), &unseen, &request).unwrap_err();
        assert!(matches!(error, TranslateError::NotListed(_)), "{error:?}");
        let error = federlet_node::contract::ProviderError::from(error);
        assert!(matches!(error, federlet_node::contract::ProviderError::Unavailable { .. }), "{error:?}");
    }
    // Pods that name none need not wait.
    sent(&pod_with(&json!({ "priorityClassName": "", "runtimeClassName": null })), &unseen);
    let mut unseen = region();
    unseen.region.as_mut().unwrap().tolerations = None;
    let error = translate(&pod(), &unseen, &request).unwrap_err();
    assert!(matches!(error, TranslateError::NotListed("machines")), "{error:?}");
    // What is refused anyway is refused at once.
    refused(&pod_with(&json!({ "hostNetwork": true, "runtimeClassName": "gvisor" })), &unseen);
}

#[test]
fn the_kube_system_of_a_member_is_out_of_reach() {
    let mut pod = pod();
    pod["metadata"]["namespace"] = "kube-system".into();
    let request = Request { anchor: &anchor(), member_name: None, service_env: &[] };
    assert_eq!(translate(&pod, &cluster(), &request).unwrap_err().reason(), "NamespaceNotAllowed");
}

#[test]
fn what_an_old_member_would_reject_is_left_out_and_said() {
    let mut pod = pod_with(&json!({
        "resources": { "limits": { "cpu": "1" } }, "hostnameOverride": "x",
        "securityContext": { "seLinuxChangePolicy": "Recursive", "fsGroup": 1 },
    }));
    pod["spec"]["containers"][0]["restartPolicy"] = "Never".into();
    pod["spec"]["containers"][0]["resizePolicy"] =
        json!([{ "resourceName": "cpu", "restartPolicy": "NotRequired" }]);
    pod["spec"]["initContainers"] = json!([
        { "name": "s", "image": "a", "restartPolicy": "Always" },
        { "name": "i", "image": "a", "restartPolicy": "Never" },
    ]);
    let at = |minor| sent(&pod, &Target { version: Version::v1(minor), ..cluster() });

    let new = at(36);
    assert!(new.notices.is_empty());
    for field in ["resources", "hostnameOverride"] {
        assert!(new.json["spec"].get(field).is_some(), "{field}");
    }
    let old = at(31);
    let spec = &old.json["spec"];
    assert_eq!((spec.get("resources"), spec.get("hostnameOverride")), (None, None));
    assert_eq!(spec["containers"][0].get("restartPolicy"), None);
    assert_eq!(spec["containers"][0].get("resizePolicy"), None);
    assert_eq!(spec["initContainers"][0]["restartPolicy"], "Always");
    assert_eq!(spec["initContainers"][1].get("restartPolicy"), None);
    assert_eq!(new.json["spec"]["initContainers"][1]["restartPolicy"], "Never");
    assert_eq!(spec["securityContext"], json!({ "fsGroup": 1 }));
    assert_eq!(old.notices.len(), 4);
    assert_eq!(at(34).notices.len(), 2);
}

#[test]
fn what_would_be_another_pod_on_an_old_member_is_refused() {
    let mut pod = pod();
    pod["spec"]["initContainers"] = json!([{ "name": "s", "image": "a", "restartPolicy": "Always" }]);
    pod["spec"]["containers"][0]["env"] =
        json!([{ "name": "X", "valueFrom": { "fileKeyRef": { "key": "x" } } }]);
    pod["spec"]["volumes"] = json!([{ "name": "i", "image": { "reference": "nginx" } }]);
    pod["spec"]["hostUsers"] = false.into();
    pod["spec"]["securityContext"] = json!({ "supplementalGroupsPolicy": "Strict" });
    let at = |minor| refused(&pod, &Target { version: Version::v1(minor), ..cluster() });
    for (minor, count) in [(28, 5), (32, 4), (34, 2)] {
        let refusals = at(minor);
        assert_eq!(refusals.len(), count, "{refusals:?}");
        assert!(refusals.iter().all(|refusal| matches!(refusal, Refusal::TooOld { .. })));
    }
}

#[test]
fn a_workload_that_the_member_runs_may_do_no_more_than_pods() {
    let refused: Vec<Refusal> = not_allowed(&bad_pod()["spec"], &cluster()).iter().cloned().collect();
    assert!(refused.contains(&Refusal::HostNetwork), "{refused:?}");
    assert!(refused.contains(&Refusal::HostPath { volume: "etc".to_owned() }), "{refused:?}");
    // Its runtime classes and devices are the member's own.
    let foreign = |refusal: &Refusal| {
        matches!(
            refusal,
            Refusal::RuntimeClass { .. } | Refusal::ResourceClaims | Refusal::VolumeSource { .. }
        )
    };
    assert!(!refused.iter().any(foreign), "{refused:?}");
    assert!(not_allowed(&json!({ "containers": [] }), &cluster()).is_empty());
}
