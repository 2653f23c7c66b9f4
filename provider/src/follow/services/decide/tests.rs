use proptest::prelude::*;

use super::*;
use crate::{
    names::NamespaceMap,
    translate::tests::{anchor, cluster},
};

/// As the host's API server stores it.
fn service(spec: &Value) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "s1", "resourceVersion": "5", "labels": { "a": "b" },
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "http", "nodePort": 30080 }],
            "fromTheFuture": 1,
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } },
    });
    for (field, value) in members(Some(spec)) {
        service["spec"][field] = value.clone();
    }
    service
}

fn sent(service: &Value) -> Value {
    let namespace = NamespaceMap::same().map("shop").unwrap();
    desired(service, &namespace, &cluster(), &anchor()).unwrap()
}

/// As the member's API server stores what we sent.
fn stored(sent: &Value) -> Value {
    let mut stored = sent.clone();
    stored["metadata"]["uid"] = "m1".into();
    stored["metadata"]["resourceVersion"] = "9".into();
    stored["metadata"]["annotations"]["theirs"] = "1".into();
    if !is_headless(sent) {
        stored["spec"]["clusterIP"] = "10.9.0.1".into();
        stored["spec"]["clusterIPs"] = json!(["10.9.0.1"]);
    }
    stored["spec"]["ipFamilies"] = json!(["IPv4"]);
    stored["spec"]["ipFamilyPolicy"] = "SingleStack".into();
    if is_outside(sent) {
        stored["spec"]["externalTrafficPolicy"] = "Cluster".into();
        for (at, port) in items_mut(stored.pointer_mut("/spec/ports")).enumerate() {
            port["nodePort"] = (31_000 + at).into();
        }
    }
    stored
}

#[test]
fn only_services_about_pods_follow_them() {
    assert!(selector(&service(&json!({}))).is_some());
    let mut api_server = service(&json!({}));
    api_server["metadata"]["namespace"] = "default".into();
    assert!(selector(&api_server).is_some());
    api_server["metadata"]["name"] = "kubernetes".into();
    let mut kept = service(&json!({}));
    kept["metadata"]["annotations"] = json!({ marks::FOLLOW: "false" });
    for (what, service) in [
        ("the API server", api_server),
        ("opted out", kept),
        ("a name elsewhere", service(&json!({ "type": "ExternalName", "externalName": "example.com" }))),
        ("an empty selector", service(&json!({ "selector": {} }))),
        ("no selector", service(&json!({ "selector": null }))),
        ("no Service at all", json!(null)),
    ] {
        assert_eq!(selector(&service), None, "{what}");
    }
}

#[test]
fn selects_as_the_host_does() {
    let selector = selector(&service(&json!({ "selector": { "app": "web", "tier": "front" } }))).unwrap();
    assert!(selects(&selector, &json!({ "app": "web", "tier": "front", "more": "1" })));
    for labels in [json!({ "app": "web" }), json!({ "app": "web", "tier": "back" }), json!({}), json!(null)] {
        assert!(!selects(&selector, &labels), "{labels}");
    }
}

#[test]
fn what_is_sent_has_nothing_of_the_hosts_network() {
    let sent = sent(&service(&json!({ "externalIPs": ["1.1.1.1"], "loadBalancerIP": "1.2.3.4" })));
    for field in HOSTS_FIELDS {
        assert_eq!(sent["spec"].get(field), None, "{field}");
    }
    assert_eq!(
        sent["spec"]["ports"],
        json!([{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "http" }])
    );
    assert_eq!(
        (&sent["spec"]["fromTheFuture"], &sent["spec"]["selector"]),
        (&json!(1), &json!({ "app": "web" }))
    );
    assert_eq!((sent.get("status"), sent["metadata"].get("finalizers")), (None, None));
    assert!(marks::is_ours(&sent, &cluster().host, &cluster().node));
}

#[test]
fn types() {
    let local = json!({ "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000 });
    let with = |kind: &str, annotation: Option<&str>| {
        let mut service = service(&local);
        service["spec"]["type"] = kind.into();
        if let Some(value) = annotation {
            service["metadata"]["annotations"] = json!({ marks::SERVICE_TYPE: value });
        }
        sent(&service)
    };
    for (kind, annotation, there, policy) in [
        ("ClusterIP", None, "ClusterIP", json!(null)),
        ("NodePort", None, "NodePort", json!("Local")),
        ("LoadBalancer", None, "ClusterIP", json!(null)),
        ("LoadBalancer", Some("LoadBalancer"), "LoadBalancer", json!("Local")),
        // It makes nothing more than it is on the host.
        ("ClusterIP", Some("LoadBalancer"), "ClusterIP", json!(null)),
    ] {
        let sent = with(kind, annotation);
        assert_eq!(
            (&sent["spec"]["type"], &sent["spec"]["externalTrafficPolicy"]),
            (&json!(there), &policy),
            "{kind}"
        );
    }
}

#[test]
fn headless_stays_headless() {
    let headless =
        service(&json!({ "clusterIP": "None", "clusterIPs": ["None"], "publishNotReadyAddresses": true }));
    let sent_headless = sent(&headless);
    assert_eq!(sent_headless["spec"]["clusterIP"], "None");
    let target = cluster();
    assert_eq!(plan(&sent_headless, Some(&stored(&sent_headless)), &target), CopyPlan::Nothing);
    let with_address = sent(&service(&json!({})));
    for (wanted, there) in [(&with_address, &sent_headless), (&sent_headless, &with_address)] {
        assert_eq!(plan(wanted, Some(&stored(there)), &target), CopyPlan::Recreate { uid: "m1".into() });
    }
}

#[test]
fn what_the_member_allocated_stays_when_something_else_changes() {
    let target = cluster();
    let there = stored(&sent(&service(&json!({ "type": "NodePort" }))));
    let changed = sent(&service(&json!({ "type": "NodePort", "sessionAffinity": "ClientIP", "ports": [
        { "name": "admin", "port": 8080, "protocol": "TCP", "targetPort": 8080 },
        { "name": "http", "port": 80, "protocol": "TCP", "targetPort": "other" },
    ] })));
    let CopyPlan::Replace(new) = plan(&changed, Some(&there), &target) else { panic!("it changed") };
    assert_eq!((&new["spec"]["clusterIP"], &new["metadata"]["uid"]), (&json!("10.9.0.1"), &json!("m1")));
    assert_eq!(new["metadata"]["annotations"]["theirs"], "1");
    let ports = &new["spec"]["ports"];
    assert_eq!((ports[0].get("nodePort"), &ports[1]["nodePort"]), (None, &json!(31_000)));
}

#[test]
fn a_service_that_is_not_reachable_from_outside_any_more_gives_its_ports_back() {
    let there = stored(&sent(&service(&json!({ "type": "NodePort" }))));
    let CopyPlan::Replace(new) = plan(&sent(&service(&json!({}))), Some(&there), &cluster()) else {
        panic!("it changed");
    };
    assert_eq!(new["spec"]["ports"][0].get("nodePort"), None);
    assert_eq!(new["spec"]["clusterIP"], "10.9.0.1");
}

#[test]
fn what_is_not_ours_is_never_touched() {
    let sent = sent(&service(&json!({})));
    let mut theirs = stored(&sent);
    theirs["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(plan(&sent, Some(&theirs), &cluster()), CopyPlan::Foreign);
    assert_eq!(plan(&sent, None, &cluster()), CopyPlan::Create);
}

#[test]
fn a_field_that_the_host_dropped_is_dropped() {
    let before =
        sent(&service(&json!({ "publishNotReadyAddresses": true, "trafficDistribution": "PreferClose" })));
    let after = sent(&service(&json!({})));
    assert!(matches!(plan(&after, Some(&stored(&before)), &cluster()), CopyPlan::Replace(_)));
}

#[test]
fn what_a_policy_sent_is_left_as_it_is() {
    let wanted = sent(&service(&json!({})));
    let mut there = stored(&sent(&service(&json!({ "type": "LoadBalancer" }))));
    there["spec"]["ports"][0]["port"] = 81.into();
    assert!(matches!(plan(&wanted, Some(&there), &cluster()), CopyPlan::Replace(_)));
    there["metadata"]["labels"][marks::PROPAGATED] = "true".into();
    assert_eq!(plan(&wanted, Some(&there), &cluster()), CopyPlan::Nothing);
}

proptest! {
    /// Sending the same again writes nothing, and what is written once is right.
    #[test]
    fn it_settles_at_once(
        kind in prop_oneof![Just("ClusterIP"), Just("NodePort"), Just("LoadBalancer")],
        ports in proptest::collection::btree_set(1u16..=65535, 1..4),
        other_ports in proptest::collection::btree_set(1u16..=65535, 1..4),
        headless in any::<bool>(),
        balanced in any::<bool>(),
    ) {
        let spec = |ports: &std::collections::BTreeSet<u16>| json!({
            "type": if headless { "ClusterIP" } else { kind },
            "clusterIP": if headless { "None" } else { "10.0.0.7" },
            "ports": ports.iter().map(|port| json!({
                "name": format!("p{port}"), "port": port, "protocol": "TCP", "targetPort": port,
            })).collect::<Vec<_>>(),
        });
        let target = cluster();
        let made = |ports| {
            let mut service = service(&spec(ports));
            if balanced {
                service["metadata"]["annotations"] = json!({ marks::SERVICE_TYPE: "LoadBalancer" });
            }
            sent(&service)
        };
        let (first, second) = (made(&ports), made(&other_ports));
        let there = stored(&first);
        prop_assert_eq!(plan(&first, Some(&there), &target), CopyPlan::Nothing);
        if let CopyPlan::Replace(new) = plan(&second, Some(&there), &target) {
            prop_assert_eq!(&new["spec"]["clusterIP"], &there["spec"]["clusterIP"]);
            prop_assert_eq!(plan(&second, Some(&new), &target), CopyPlan::Nothing);
        } else {
            prop_assert_eq!(ports, other_ports);
        }
    }
}
