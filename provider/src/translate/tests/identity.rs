//! Whose names, tokens and variables the pod sees.

use super::*;
use crate::marks;

#[test]
fn metadata_is_the_members_own() {
    let member = sent(&pod(), &region());
    let metadata = &member.json["metadata"];
    assert_eq!(member.key.to_string(), "edge-ke-beijing-cluster/web-0");
    assert_eq!(metadata["namespace"], "edge-ke-beijing-cluster");
    for gone in [
        "uid",
        "resourceVersion",
        "generation",
        "generateName",
        "creationTimestamp",
        "finalizers",
        "managedFields",
    ] {
        assert_eq!(metadata.get(gone), None, "{gone}");
    }
    assert_eq!(
        metadata["ownerReferences"],
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "federlet-anchor", "uid": "anchor-uid",
                 "controller": true, "blockOwnerDeletion": false }])
    );
    assert_eq!(
        metadata["labels"],
        json!({ "app": "web", marks::HOST: "host-1", marks::NODE: "ke-beijing-cluster",
                marks::HOST_UID: "8a6e0804-2bd0-4672-b79d-d97027f9071a" })
    );
    assert_eq!(metadata["annotations"]["note"], "hello");
    assert_eq!(metadata["annotations"][marks::HOST_NAMESPACE], "edge");
    assert_eq!(member.json.get("status"), None);
}

#[test]
fn labels_that_clusters_write_when_they_bind_a_pod_are_each_ones_own() {
    let mut pod = pod();
    pod["metadata"]["labels"]["topology.kubernetes.io/zone"] = "host-a".into();
    pod["metadata"]["labels"]["topology.kubernetes.io/region"] = "host".into();
    let labels = |minor| {
        let target = Target { version: Version::v1(minor), ..cluster() };
        sent(&pod, &target).json["metadata"]["labels"].as_object().unwrap().len()
    };
    // A member that writes none leaves the host's.
    assert_eq!((labels(35), labels(34)), (4, 6));
}

#[test]
fn nobody_can_pass_for_another_by_writing_our_marks() {
    let mut pod = pod();
    pod["metadata"]["labels"][marks::HOST] = "other-host".into();
    pod["metadata"]["labels"][marks::HOST_UID] = "other-uid".into();
    pod["metadata"]["annotations"][marks::HOST_NAMESPACE] = "kube-system".into();
    pod["metadata"]["annotations"][marks::HOST_NAME] = "other".into();
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x".into();
    let metadata = sent(&pod, &cluster()).json["metadata"].clone();
    assert_eq!(metadata["labels"][marks::HOST], "host-1");
    assert_eq!(metadata["labels"][marks::HOST_UID], "8a6e0804-2bd0-4672-b79d-d97027f9071a");
    assert_eq!(metadata["annotations"][marks::HOST_NAMESPACE], "edge");
    assert_eq!(metadata["annotations"].get(marks::HOST_NAME), None);
    assert_eq!(metadata["annotations"].get("kubernetes.io/config.mirror"), None);
}

#[test]
fn a_pod_can_have_another_name_in_the_member() {
    let request = Request { anchor: &anchor(), member_name: Some("web"), service_env: &[] };
    let member = translate(&pod(), &cluster(), &request).unwrap();
    assert_eq!(member.key.to_string(), "edge/web");
    assert_eq!(member.json["metadata"]["annotations"][marks::HOST_NAME], "web-0");
}

#[test]
fn the_spec_keeps_all_but_what_is_the_hosts() {
    let spec = sent(&pod(), &cluster()).json["spec"].clone();
    for gone in
        ["nodeName", "schedulerName", "priority", "preemptionPolicy", "serviceAccountName", "serviceAccount"]
    {
        assert_eq!(spec.get(gone), None, "{gone}");
    }
    assert_eq!((&spec["hostname"], &spec["subdomain"]), (&json!("web-0"), &json!("web")));
    assert_eq!(spec["futureField"], json!({ "deep": [1] }));
    assert_eq!(spec["containers"][0]["futureContainerField"], true);
    assert_eq!(spec["enableServiceLinks"], true);
}

#[test]
fn the_token_is_the_hosts_and_only_one() {
    let spec = sent(&pod(), &region()).json["spec"].clone();
    assert_eq!(spec["automountServiceAccountToken"], false);
    let sources = &spec["volumes"][0]["projected"]["sources"];
    let secret = sources[0]["secret"]["name"].as_str().unwrap();
    assert!(secret.starts_with("web-0-token-"), "{secret}");
    assert_eq!(sources[0]["secret"]["items"], json!([{ "key": "token", "path": "token" }]));
    assert_eq!(sources[0].get("serviceAccountToken"), None);
    let ca = sources[1]["configMap"]["name"].as_str().unwrap();
    assert!(ca.starts_with("federlet-root-ca-"), "{ca}");
    assert_eq!(sources[1]["configMap"]["items"][0]["path"], "ca.crt");
    let namespace = &sources[2]["downwardAPI"]["items"][0]["fieldRef"];
    assert_eq!(namespace["fieldPath"], "metadata.annotations['federlet.io/host-namespace']");
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-x7");
}

#[test]
fn tokens_that_the_user_asks_for_are_the_hosts_too() {
    let volumes = json!([{ "name": "vault", "projected": { "sources": [
        { "serviceAccountToken": { "audience": "vault", "path": "vault-token" } },
        { "serviceAccountToken": { "audience": "other", "path": "other-token" } },
        { "secret": { "name": "plain" } },
    ] } }]);
    let spec = sent(&pod_with(&json!({ "volumes": volumes })), &cluster()).json["spec"].clone();
    let sources = spec["volumes"][0]["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 3, "no source may be lost while another is rewritten");
    assert_ne!(sources[0]["secret"]["name"], sources[1]["secret"]["name"]);
    assert_eq!(sources[0]["secret"]["items"][0]["path"], "vault-token");
    assert_eq!(sources[2], json!({ "secret": { "name": "plain" } }));
}

#[test]
fn with_the_members_api_the_member_gives_the_token() {
    let target = Target { api: ApiAccess::Member, ..cluster() };
    let spec = sent(&pod(), &target).json["spec"].clone();
    assert_eq!(spec["automountServiceAccountToken"], true);
    assert_eq!(spec["volumes"], json!([]));
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([]));
    assert_eq!(spec["containers"][0]["env"], pod()["spec"]["containers"][0]["env"]);
}

#[test]
fn without_an_api_there_is_no_token_and_no_address() {
    let target = Target { api: ApiAccess::None, ..cluster() };
    let spec = sent(&pod(), &target).json["spec"].clone();
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["volumes"], json!([]));
    assert_eq!(spec["containers"][0]["env"][0], json!({ "name": "KUBERNETES_SERVICE_HOST", "value": "" }));
}

#[test]
fn injected_variables_come_first_and_never_twice() {
    let mut pod = pod();
    pod["spec"]["containers"][0]["env"][0] = json!({ "name": "KUBERNETES_SERVICE_PORT", "value": "1" });
    pod["spec"]["initContainers"] = json!([{ "name": "init", "image": "busybox" }]);
    let services = [("WEB_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())];
    let request = Request { anchor: &anchor(), member_name: None, service_env: &services };
    let spec = translate(&pod, &cluster(), &request).unwrap().json["spec"].clone();
    let names = |container: &Value| -> Vec<String> {
        let name = |env: &Value| env["name"].as_str().unwrap().to_owned();
        container["env"].as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(
        names(&spec["containers"][0]),
        [
            "KUBERNETES_SERVICE_HOST",
            "KUBERNETES_SERVICE_PORT_HTTPS",
            "KUBERNETES_PORT",
            "KUBERNETES_PORT_443_TCP",
            "KUBERNETES_PORT_443_TCP_PROTO",
            "KUBERNETES_PORT_443_TCP_PORT",
            "KUBERNETES_PORT_443_TCP_ADDR",
            "WEB_SERVICE_HOST",
            "KUBERNETES_SERVICE_PORT",
            "URL",
            "CPU",
        ]
    );
    assert_eq!(names(&spec["initContainers"][0]).len(), 9);
    assert_eq!(spec["containers"][0]["env"][0]["value"], "api.host.example");
    assert_eq!(spec["containers"][0]["env"][2]["value"], "tcp://api.host.example:6443");
}

#[test]
fn a_name_the_member_cannot_resolve_goes_into_the_hosts_file() {
    let address = Some("192.0.2.7".parse().unwrap());
    let api = ApiAccess::Host { name: "kubernetes.default.svc".to_owned(), port: 443, address };
    let target = Target { api, ..cluster() };
    let want = json!([{ "ip": "192.0.2.7", "hostnames": ["kubernetes.default.svc"] }]);
    assert_eq!(sent(&pod(), &target).json["spec"]["hostAliases"], want);
    let own = json!({ "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["a"] }, { "ip": "192.0.2.8", "hostnames": ["b"] }] });
    let aliases = sent(&pod_with(&own), &target).json["spec"]["hostAliases"].clone();
    assert_eq!(aliases[0]["hostnames"], json!(["a", "kubernetes.default.svc"]));
    assert_eq!(aliases[1], own["hostAliases"][1]);
}

#[test]
fn what_a_container_hears_about_itself_is_what_the_host_says() {
    let field = |path: &str| json!({ "name": "X", "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let target =
        Target { addresses: vec!["10.9.8.7".parse().unwrap(), "fd00::1".parse().unwrap()], ..region() };
    for (path, instead, value) in [
        (
            "metadata.uid",
            "metadata.labels['federlet.io/host-uid']",
            Some("8a6e0804-2bd0-4672-b79d-d97027f9071a"),
        ),
        ("spec.nodeName", "metadata.labels['federlet.io/node']", Some("ke-beijing-cluster")),
        ("metadata.namespace", "metadata.annotations['federlet.io/host-namespace']", Some("edge")),
        ("spec.serviceAccountName", "metadata.annotations['federlet.io/service-account']", Some("robot")),
        ("status.hostIP", "metadata.annotations['federlet.io/node-address']", Some("10.9.8.7")),
        ("status.hostIPs", "metadata.annotations['federlet.io/node-addresses']", Some("10.9.8.7,fd00::1")),
        ("metadata.labels", "metadata.annotations['federlet.io/downward-labels']", Some("app=\"web\"")),
        (
            "metadata.annotations",
            "metadata.annotations['federlet.io/downward-annotations']",
            Some("note=\"hello\""),
        ),
        ("metadata.name", "metadata.name", None),
        ("status.podIP", "status.podIP", None),
        ("metadata.labels['app']", "metadata.labels['app']", None),
    ] {
        let mut pod = pod();
        pod["spec"]["containers"][0]["env"] = json!([field(path)]);
        pod["spec"]["volumes"] = json!([{ "name": "d", "downwardAPI": { "items": [{ "path": "x", "fieldRef": { "fieldPath": path } }] } }]);
        let member = sent(&pod, &target).json;
        let env = member["spec"]["containers"][0]["env"].as_array().unwrap().last().unwrap();
        assert_eq!(env["valueFrom"]["fieldRef"]["fieldPath"], instead, "{path}");
        let item = &member["spec"]["volumes"][0]["downwardAPI"]["items"][0];
        assert_eq!(item["fieldRef"]["fieldPath"], instead, "{path}");
        if let Some(value) = value {
            let (kind, key) =
                instead.trim_start_matches("metadata.").trim_end_matches("']").split_once("['").unwrap();
            assert_eq!(member["metadata"][kind][key], value, "{path}");
        }
    }
}

#[test]
fn resources_of_the_container_stay_with_the_members_kubelet() {
    let env = sent(&pod(), &cluster()).json["spec"]["containers"][0]["env"].clone();
    let last = env.as_array().unwrap().last().unwrap();
    assert_eq!(last, &pod()["spec"]["containers"][0]["env"][2]);
}

#[test]
fn the_node_is_the_machine_if_the_virtual_one_has_no_address() {
    let env = json!([{ "name": "X", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } }]);
    let mut pod = pod();
    pod["spec"]["containers"][0]["env"] = env.clone();
    let member = sent(&pod, &cluster()).json;
    assert_eq!(
        member["spec"]["containers"][0]["env"].as_array().unwrap().last(),
        env.as_array().unwrap().first()
    );
}

#[test]
fn ephemeral_containers_wait_until_the_pod_is_there() {
    let debug = json!({ "ephemeralContainers": [{ "name": "debug", "image": "busybox", "targetContainerName": "app" }] });
    let member = sent(&pod_with(&debug), &cluster());
    assert_eq!(member.json["spec"].get("ephemeralContainers"), None);
    assert_eq!(member.ephemeral[0]["name"], "debug");
    assert_eq!(member.ephemeral[0]["env"][0]["name"], "KUBERNETES_SERVICE_HOST");
}

#[test]
fn generic_ephemeral_volumes_become_claims() {
    let volumes =
        json!({ "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }] });
    let volume = sent(&pod_with(&volumes), &cluster()).json["spec"]["volumes"][0].clone();
    assert_eq!(
        volume,
        json!({ "name": "scratch", "persistentVolumeClaim": { "claimName": "web-0-scratch" } })
    );
}

#[test]
fn the_hosts_certificate_has_another_name_wherever_it_is_used() {
    let spec = json!({
        "containers": [{ "name": "app", "image": "a",
            "env": [{ "name": "CA", "valueFrom": { "configMapKeyRef": { "name": "kube-root-ca.crt", "key": "ca.crt" } } }],
            "envFrom": [{ "configMapRef": { "name": "kube-root-ca.crt" } }] }],
        "volumes": [{ "name": "ca", "configMap": { "name": "kube-root-ca.crt" } }],
    });
    let text = sent(&pod_with(&spec), &cluster()).json.to_string();
    assert!(!text.contains("kube-root-ca.crt"), "{text}");
    let target = Target { api: ApiAccess::Member, ..cluster() };
    assert!(sent(&pod_with(&spec), &target).json.to_string().contains("kube-root-ca.crt"));
}
