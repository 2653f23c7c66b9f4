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
fn the_kind_of_machine_that_a_pod_needs_goes_along() {
    let asks = |key: &str, values: Value| json!({ "key": key, "operator": "In", "values": values });
    let (arch, os) = ("kubernetes.io/arch", "kubernetes.io/os");
    let (amd, arm) = (asks(arch, json!(["amd64"])), asks(arch, json!(["arm64"])));
    let linux = asks(os, json!(["linux"]));
    let zone = asks("zone", json!(["a"]));
    let affinity = |terms: Value| json!({ "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": terms } } });
    let term = |all: &[&Value]| json!({ "matchExpressions": all });
    for (spec, expected) in [
        (json!({ "nodeSelector": { arch: "amd64", "zone": "a" } }), json!([term(&[&amd])])),
        (
            json!({ "affinity": affinity(json!([term(&[&zone, &amd]), term(&[&arm])])) }),
            json!([term(&[&amd]), term(&[&arm])]),
        ),
        // One of the two is content with any machine.
        (json!({ "affinity": affinity(json!([term(&[&amd]), term(&[&zone])])) }), Value::Null),
        (
            json!({ "nodeSelector": { os: "linux" }, "affinity": affinity(json!([term(&[&amd]), term(&[&arm])])) }),
            json!([term(&[&linux, &amd]), term(&[&linux, &arm])]),
        ),
    ] {
        let pod = pod_with(&spec);
        let member = sent(&pod, &cluster());
        assert_eq!(terms(&member), expected, "{spec}");
        assert_eq!(member.json["spec"].get("nodeSelector"), None);
    }
    let in_region = sent(&pod_with(&json!({ "nodeSelector": { arch: "amd64" } })), &region());
    assert_eq!(terms(&in_region), json!([term(&[&in_beijing(), &amd])]));
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
    // What keeps the host from driving it out is not for the member's machines.
    let mut waits = pod();
    let own = waits["spec"]["tolerations"].to_string();
    waits["metadata"]["annotations"][marks::TOLERATIONS] = own.into();
    waits["spec"]["tolerations"] = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    let sent = sent(&waits, &cluster()).json;
    assert_eq!(sent["spec"]["tolerations"], tolerations);
    assert_eq!(sent["metadata"]["annotations"].get(marks::TOLERATIONS), None);
}

#[test]
fn pods_of_a_region_stay_when_their_node_is_offline() {
    let mut target = region();
    let taint = json!({ "key": "edge", "operator": "Exists", "effect": "NoSchedule" });
    target.region.as_mut().unwrap().tolerations = Some(vec![taint.clone()]);
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

#[test]
fn a_toleration_of_everything_leads_to_no_virtual_node_of_the_member() {
    let not_virtual = json!({ "key": "type", "operator": "NotIn", "values": ["virtual-kubelet"] });
    let terms = |spec: &Value, target: &Target| {
        let path =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        sent(&pod_with(spec), target).json.pointer(path).cloned().unwrap_or_default()
    };
    for tolerations in [
        json!([{ "operator": "Exists" }]),
        json!([{ "key": "", "operator": "Exists", "effect": "NoSchedule" }]),
    ] {
        let spec = json!({ "tolerations": tolerations });
        assert_eq!(terms(&spec, &cluster()), json!([{ "matchExpressions": [not_virtual] }]), "{spec}");
        let in_region = terms(&spec, &region());
        let expressions = in_region[0]["matchExpressions"].as_array().unwrap();
        assert!(expressions.len() == 2 && expressions.contains(&not_virtual), "{in_region}");
    }
    for tolerations in [
        json!([{ "key": "gpu", "operator": "Exists" }]),
        json!([{ "operator": "Exists", "effect": "NoExecute" }]),
    ] {
        assert_eq!(terms(&json!({ "tolerations": tolerations }), &cluster()), Value::Null);
    }
}

#[test]
fn no_toleration_for_a_time_ends_pods_of_a_region() {
    let spec = json!({ "tolerations": [
        { "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30 },
        { "operator": "Exists", "effect": "NoExecute" },
    ] });
    let tolerations = sent(&pod_with(&spec), &region()).json["spec"]["tolerations"].clone();
    let for_a_time = |toleration: &Value| toleration.get("tolerationSeconds").is_some();
    assert!(!tolerations.as_array().unwrap().iter().any(for_a_time), "{tolerations}");
    assert!(tolerations.as_array().unwrap().contains(&spec["tolerations"][1]), "{tolerations}");
    // Elsewhere it is what the user wrote.
    assert_eq!(sent(&pod_with(&spec), &cluster()).json["spec"]["tolerations"], spec["tolerations"]);
}

#[test]
fn namespaces_that_a_selector_names_are_those_of_the_member() {
    let name = "kubernetes.io/metadata.name";
    let term = json!({
        "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "db" } },
        "namespaceSelector": {
            "matchLabels": { name: "edge", "team": "edge" },
            "matchExpressions": [
                { "key": name, "operator": "In", "values": ["edge", "kube-system"] },
                { "key": "team", "operator": "In", "values": ["edge"] },
            ],
        },
    });
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let pod = pod_with(&json!({ "affinity": { "podAntiAffinity": { required: [term] } } }));
    let sent = sent(&pod, &region());
    let selector = &sent.json["spec"]["affinity"]["podAntiAffinity"][required][0]["namespaceSelector"];
    let there = "edge-ke-beijing-cluster";
    assert_eq!(selector["matchLabels"], json!({ name: there, "team": "edge" }));
    assert_eq!(selector["matchExpressions"][0]["values"][0], there);
    assert_eq!(selector["matchExpressions"][1]["values"], json!(["edge"]));
}
