//! Where in the member the pod may run.

use super::*;
use crate::marks;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn terms(member: &MemberPod) -> Value {
    member.json["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].clone()
}

fn with_constraints(constraints: &Value) -> Value {
    let mut pod = pod();
    pod["metadata"]["annotations"][marks::CONSTRAINTS] = constraints.to_string().into();
    pod
}

fn in_beijing() -> Value {
    json!({ "key": "location", "operator": "In", "values": ["beijing"] })
}

#[test]
fn what_is_about_the_hosts_nodes_stays_there() {
    let zone = json!([{ "topologyKey": "topology.kubernetes.io/zone", "labelSelector": {} }]);
    let spec = sent(
        &pod_with(&json!({
            "nodeSelector": { "kubernetes.io/hostname": "member1" },
            "affinity": {
                "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }] } },
                "podAntiAffinity": { REQUIRED: zone },
            },
            "topologySpreadConstraints": [{ "topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1 }],
        })),
        &cluster(),
    )
    .json["spec"]
        .clone();
    for gone in ["nodeSelector", "affinity", "topologySpreadConstraints"] {
        assert_eq!(spec.get(gone), None, "{gone}");
    }
}

#[test]
fn what_is_about_machines_goes_along() {
    let machine = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } });
    let preferred = json!([{ "weight": 5, "podAffinityTerm": machine }]);
    let spread = json!([{ "topologyKey": "kubernetes.io/hostname", "maxSkew": 1 }]);
    let affinity = json!({
        "podAntiAffinity": { REQUIRED: [machine], "preferredDuringSchedulingIgnoredDuringExecution": preferred },
    });
    let spec = json!({ "affinity": affinity, "topologySpreadConstraints": spread });
    let member = sent(&pod_with(&spec), &cluster()).json["spec"].clone();
    assert_eq!((&member["affinity"], &member["topologySpreadConstraints"]), (&affinity, &spread));
}

#[test]
fn kept_constraints_come_back_once() {
    let machine = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaces": ["edge", "other"] });
    let mut pod = with_constraints(&json!({
        "nodeSelector": { "disk": "ssd" },
        "affinity": { "podAntiAffinity": { REQUIRED: [machine] } },
        "topologySpreadConstraints": [{ "topologyKey": "rack", "maxSkew": 1 }],
        "hostPorts": [{ "container": "app", "containerPort": 80, "hostPort": 8080 }],
    }));
    pod["spec"]["affinity"] = json!({ "podAntiAffinity": { REQUIRED: [machine] } });
    pod["spec"]["containers"][0]["ports"] =
        json!([{ "containerPort": 80, "protocol": "TCP" }, { "containerPort": 80, "protocol": "UDP" }]);
    let member = sent(&pod, &region());
    let spec = &member.json["spec"];
    assert_eq!(spec["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(spec["topologySpreadConstraints"][0]["topologyKey"], "rack");
    let anti = spec["affinity"]["podAntiAffinity"][REQUIRED].as_array().unwrap();
    assert_eq!(anti.len(), 1);
    assert_eq!(anti[0]["namespaces"], json!(["edge-ke-beijing-cluster", "other-ke-beijing-cluster"]));
    assert_eq!(spec["containers"][0]["ports"][0]["hostPort"], 8080);
    assert_eq!(spec["containers"][0]["ports"][1].get("hostPort"), None);
    assert_eq!(member.json["metadata"]["annotations"].get(marks::CONSTRAINTS), None);
    assert_eq!(terms(&member), json!([{ "matchExpressions": [in_beijing()] }]));
}

#[test]
fn constraints_that_cannot_be_read_are_an_error_of_that_pod() {
    for bad in ["", "{", "[]", "7", "null"] {
        let mut pod = pod();
        pod["metadata"]["annotations"][marks::CONSTRAINTS] = bad.into();
        let request = Request { anchor: &anchor(), member_name: None, service_env: &[] };
        let error = translate(&pod, &cluster(), &request).unwrap_err();
        assert_eq!(error.reason(), "InvalidConstraints", "{bad}");
    }
    // Odd content in the right shape is left to the member's API server, and disturbs nothing.
    let odd = json!({ "affinity": 1, "nodeSelector": [], "hostPorts": [1, {}, { "container": "app" }], "topologySpreadConstraints": "x" });
    let mut pod = with_constraints(&odd);
    pod["spec"]["containers"][0]["ports"] = json!(["odd", {}]);
    sent(&pod, &region());
}

#[test]
fn the_region_is_anded_into_each_term() {
    let kept = json!({ "affinity": { "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "arch", "operator": "In", "values": ["arm64"] }] },
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] },
        {},
        { "matchExpressions": [] },
    ] } } } });
    let terms = terms(&sent(&with_constraints(&kept), &region()));
    assert_eq!(
        terms[0]["matchExpressions"],
        json!([{ "key": "arch", "operator": "In", "values": ["arm64"] }, in_beijing()])
    );
    assert_eq!(terms[1]["matchExpressions"], json!([in_beijing()]));
    assert_eq!(terms[1]["matchFields"][0]["values"], json!(["n1"]));
    // An empty term matches no node, and must not come to match the whole region.
    assert_eq!((&terms[2], &terms[3]), (&json!({}), &json!({ "matchExpressions": [] })));
}

#[test]
fn label_keys_are_written_out_once() {
    let mut pod = pod();
    pod["metadata"]["labels"]["pod-template-hash"] = "abc".into();
    let want = json!({ "key": "pod-template-hash", "operator": "In", "values": ["abc"] });
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "topologyKey": "kubernetes.io/hostname", "matchLabelKeys": ["pod-template-hash", "absent"],
        "labelSelector": { "matchExpressions": [want] },
    }]);
    let spread = sent(&pod, &cluster()).json["spec"]["topologySpreadConstraints"][0].clone();
    assert_eq!(spread.get("matchLabelKeys"), None);
    assert_eq!(spread["labelSelector"]["matchExpressions"], json!([want]));
}

#[test]
fn our_own_toleration_stays_on_the_host() {
    let tolerations = sent(&pod(), &cluster()).json["spec"]["tolerations"].clone();
    assert_eq!(tolerations.as_array().unwrap()[..], pod()["spec"]["tolerations"].as_array().unwrap()[1..]);
}

#[test]
fn pods_of_a_region_stay_when_their_node_is_offline() {
    let mut target = region();
    let taint = json!({ "key": "edge", "operator": "Exists", "effect": "NoSchedule" });
    target.region.as_mut().unwrap().tolerations.push(taint.clone());
    let tolerations = sent(&pod(), &target).json["spec"]["tolerations"].clone();
    assert_eq!(
        tolerations,
        json!([
            { "key": "gpu", "operator": "Exists" },
            { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute" },
            { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" },
            taint,
        ])
    );
}
