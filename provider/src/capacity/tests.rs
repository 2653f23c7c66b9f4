use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    marks,
    names::{HostId, MemberName},
    quantity::Quantity,
};

fn ids() -> (HostId, MemberName) {
    (HostId::new("host-1").unwrap(), MemberName::new("member1").unwrap())
}

fn node(name: &str, cpu: &str, change: &Value) -> MemberNode {
    let mut json = json!({
        "metadata": { "name": name, "labels": { "location": "beijing", "kubernetes.io/arch": "amd64" } },
        "spec": {},
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "capacity": { "cpu": cpu, "memory": "8Gi", "pods": "110" },
            "allocatable": { "cpu": cpu, "memory": "8Gi", "pods": "110" },
        },
    });
    for (path, value) in change.as_object().unwrap() {
        let (parent, field) = path.rsplit_once('/').unwrap();
        json.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    MemberNode::read(&json).unwrap()
}

fn plain(name: &str, cpu: &str) -> MemberNode {
    node(name, cpu, &json!({}))
}

fn pod_on(node: &str, cpu: &str, ours: bool) -> PodLoad {
    let labels = if ours { json!({ marks::HOST: "host-1", marks::NODE: "member1" }) } else { json!({}) };
    let pod = json!({
        "metadata": { "labels": labels },
        "spec": { "nodeName": node, "containers": [{ "name": "a", "resources": { "requests": { "cpu": cpu } } }] },
    });
    let (host, member) = ids();
    PodLoad::read(&pod, &host, &member).unwrap()
}

fn q(text: &str) -> Quantity {
    text.parse().unwrap()
}

#[test]
fn allocatable_is_what_others_leave_and_ours_may_use() {
    let nodes = [plain("a", "4"), plain("b", "4")];
    let pods = [
        pod_on("a", "1", false),
        pod_on("a", "2", true),
        pod_on("b", "500m", false),
        pod_on("elsewhere", "9", false),
    ];
    let sum = Capacity::of(&nodes, &pods, &Scope::default());
    assert_eq!(sum.capacity.get("cpu"), q("8"));
    assert_eq!(sum.allocatable.get("cpu"), q("6500m"));
    assert_eq!(sum.allocatable.get("pods"), q("218"));
    assert_eq!(sum.largest.get("cpu"), q("3500m"));
    assert_eq!(sum.allocatable.get("memory").to_string(), "16Gi");
    assert_eq!(sum.nodes, NodeSummary { total: 2, ready: 2 });
}

#[test]
fn nodes_that_cannot_take_pods_do_not_count() {
    let gone = json!({ "/status/conditions": [{ "type": "Ready", "status": "Unknown" }] });
    for (change, ready) in [
        (gone, 1),
        (json!({ "/status/conditions": [] }), 1),
        (json!({ "/spec/unschedulable": true }), 2),
        (
            json!({ "/spec/taints": [{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }] }),
            2,
        ),
        (json!({ "/metadata/deletionTimestamp": "2026-11-16T00:00:00Z" }), 1),
    ] {
        let nodes = [plain("a", "4"), node("b", "16", &change)];
        let pods = [pod_on("b", "2", true), pod_on("b", "1", false)];
        let sum = Capacity::of(&nodes, &pods, &Scope::default());
        assert_eq!((sum.allocatable.get("cpu"), sum.largest.get("cpu")), (q("4"), q("4")), "{change}");
        assert_eq!(sum.stranded.get("cpu"), q("2"), "{change}");
        assert_eq!(sum.nodes, NodeSummary { total: 2, ready }, "{change}");
    }
    let virtual_node = node("v", "1000", &json!({ "/metadata/labels": { "type": "virtual-kubelet" } }));
    let sum = Capacity::of(&[plain("a", "4"), virtual_node], &[], &Scope::default());
    assert_eq!((sum.allocatable.get("cpu"), sum.nodes.total), (q("4"), 1));
}

#[test]
fn what_the_scheduler_has_left_is_what_machines_that_count_have_free() {
    let offline = json!({ "/status/conditions": [{ "type": "Ready", "status": "Unknown" }] });
    let nodes = [plain("a", "4"), node("b", "16", &offline)];
    let pods = [pod_on("a", "1", true), pod_on("a", "1", false), pod_on("b", "6", true)];
    let ours = q("7");
    let left = |limits: &[(&str, &str)]| {
        let limits =
            Limits::new(limits.iter().map(|(name, limit)| ((*name).to_owned(), limit.parse().unwrap())));
        let scope = Scope { limits: limits.clone(), ..Scope::default() };
        let capacity = Capacity::of(&nodes, &pods, &scope);
        (capacity.published(&limits).get("cpu") - ours, capacity.largest.get("cpu"))
    };
    assert_eq!(left(&[]), (q("2"), q("2")));
    // Half of what there is now is granted, and one of it is in use.
    assert_eq!(left(&[("cpu", "50%")]).0, q("1"));
    // What is granted as an amount includes what is held where nobody can see it.
    assert_eq!(left(&[("cpu", "8")]).0, q("1"));
    assert_eq!(left(&[("cpu", "7")]).0, q("0"));
    let published = Capacity::of(&nodes, &pods, &Scope::default()).published(&Limits::default());
    assert_eq!(published.get("pods"), q("110"), "one place of each that is held, and those that are free");
}

#[test]
fn a_region_counts_its_own_nodes_and_only_pods_on_them() {
    let hangzhou = json!({ "/metadata/labels": { "location": "hangzhou" } });
    let edge = json!({ "/spec/taints": [{ "key": "edge", "effect": "NoSchedule" }] });
    let full =
        json!({ "/spec/taints": [{ "key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule" }] });
    let nodes = [plain("a", "4"), node("b", "2", &edge), node("c", "32", &hangzhou), node("d", "16", &full)];
    let pods = [pod_on("a", "1", false), pod_on("c", "30", false)];
    let scope = Scope { region: Some("location=beijing".parse().unwrap()), ..Scope::default() };
    let sum = Capacity::of(&nodes, &pods, &scope);
    assert_eq!(sum.allocatable.get("cpu"), q("5"), "a taint that some have is tolerated in a region");
    assert_eq!(sum.nodes.total, 3);
    assert_eq!(
        sum.taints.tolerations(),
        [json!({ "key": "edge", "operator": "Exists", "effect": "NoSchedule" })]
    );
}

#[test]
fn pods_of_another_region_or_host_are_not_ours() {
    let (host, member) = ids();
    let load = |host_label: &str, node_label: &str| {
        let pod = json!({ "metadata": { "labels": { marks::HOST: host_label, marks::NODE: node_label } }, "spec": { "nodeName": "a" } });
        PodLoad::read(&pod, &host, &member).unwrap().ours
    };
    assert!(load("host-1", "member1"));
    assert!(!load("host-1", "member2") && !load("host-2", "member1"));
}

#[test]
fn nothing_is_ever_negative_and_one_full_node_takes_nothing_from_another() {
    let nodes = [plain("a", "1"), plain("b", "4")];
    let sum = Capacity::of(&nodes, &[pod_on("a", "100", false)], &Scope::default());
    assert_eq!((sum.allocatable.get("cpu"), sum.largest.get("cpu")), (q("4"), q("4")));
}

#[test]
fn extended_resources_count_like_any_other() {
    let gpu = json!({ "/status/allocatable": { "nvidia.com/gpu": "8", "cpu": "64" }, "/spec/taints": [{ "key": "nvidia.com/gpu", "effect": "NoSchedule" }] });
    let sum = Capacity::of(&[plain("a", "4"), node("g", "64", &gpu)], &[], &Scope::default());
    assert_eq!(
        sum.allocatable.get("nvidia.com/gpu"),
        q("8"),
        "a taint named like the resource does not close the node"
    );
    assert_eq!(room_labels(&sum.largest)["room.federlet.io/nvidia.com_gpu"], 8);
}

#[test]
fn limits_are_a_share_or_an_amount() {
    let limit = |resource: &str, text: &str| (resource.to_owned(), text.parse::<Limit>().unwrap());
    let limits = Limits::new([
        limit("cpu", "50%"),
        limit("memory", "3Gi"),
        limit("pods", "33.3%"),
        limit("nvidia.com/gpu", "4"),
    ]);
    let scope = Scope { limits, ..Scope::default() };
    let nodes = [plain("a", "4"), plain("b", "3")];
    let sum = Capacity::of(&nodes, &[pod_on("a", "1", false)], &scope);
    assert_eq!(sum.allocatable.get("cpu"), q("3500m"), "a share of what the nodes have, not of what is left");
    assert_eq!(sum.allocatable.get("memory").to_string(), "3Gi");
    assert_eq!(sum.allocatable.get("pods"), q("73"));
    assert!(!sum.allocatable.has("nvidia.com/gpu"), "a limit makes nothing appear");
    assert_eq!(sum.largest.get("memory"), q("3Gi"), "no machine offers more than is granted");
    for bad in ["101%", "-1%", "1.55%", "%", "a%", "-1", "", "1000%", "٣%"] {
        assert!(bad.parse::<Limit>().is_err(), "{bad}");
    }
}

#[test]
fn taints_that_all_have_are_the_virtual_nodes() {
    let taints = |list: Value| json!({ "/spec/taints": list });
    let edge = json!({ "key": "edge", "value": "a", "effect": "NoSchedule" });
    let own = json!({ "key": "db", "effect": "NoExecute" });
    let passing = json!({ "key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule" });
    let prefer = json!({ "key": "slow", "effect": "PreferNoSchedule" });
    let virtual_taint = json!({ "key": "virtual-kubelet.io/provider", "effect": "NoSchedule" });
    let nodes = [
        node("a", "1", &taints(json!([edge, own, prefer, virtual_taint]))),
        node("b", "1", &taints(json!([edge, passing]))),
    ];
    let scope = Scope { region: Some("location".parse().unwrap()), ..Scope::default() };
    let sum = Capacity::of(&nodes, &[], &scope);
    let common: Vec<Value> = sum.taints.common.iter().map(Taint::to_json).collect();
    assert_eq!(common, [edge]);
    assert_eq!(
        sum.taints.tolerations(),
        [json!({ "key": "db", "operator": "Exists", "effect": "NoExecute" })]
    );
}

#[test]
fn a_machine_that_is_down_does_not_open_those_that_are_not_for_us() {
    let control_plane = json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" });
    let first = node("control", "4", &json!({ "/spec/taints": [control_plane] }));
    let down = json!({ "/status/conditions": [{ "type": "Ready", "status": "False" }] });
    for worker in [node("worker", "8", &down), node("worker", "8", &json!({ "/spec/unschedulable": true }))] {
        let sum = Capacity::of(&[first.clone(), worker], &[], &Scope::default());
        assert_eq!(sum.taints.common, []);
        assert_eq!(sum.allocatable.get("cpu"), q("0"));
    }
    let alone = Capacity::of(&[first], &[], &Scope::default());
    assert_eq!((alone.taints.common.len(), alone.allocatable.get("cpu")), (1, q("4")));
}

#[test]
fn pods_request_what_the_scheduler_says() {
    let container = |cpu: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
    let sidecar = |cpu: &str| json!({ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": cpu } } });
    for (what, spec, cpu) in [
        ("containers add up", json!({ "containers": [container("1"), container("500m")] }), "1500m"),
        (
            "init containers run one by one",
            json!({ "containers": [container("1")], "initContainers": [container("3"), container("2")] }),
            "3",
        ),
        ("sidecars stay", json!({ "containers": [container("1")], "initContainers": [sidecar("1")] }), "2"),
        (
            "init after a sidecar runs beside it",
            json!({ "containers": [container("1")], "initContainers": [sidecar("1"), container("3")] }),
            "4",
        ),
        (
            "init before a sidecar does not",
            json!({ "containers": [container("1")], "initContainers": [container("3"), sidecar("1")] }),
            "3",
        ),
        (
            "overhead comes on top",
            json!({ "containers": [container("1")], "overhead": { "cpu": "250m" } }),
            "1250m",
        ),
        (
            "the pod's own resources win",
            json!({ "containers": [container("1")], "resources": { "requests": { "cpu": "4" } }, "overhead": { "cpu": "1" } }),
            "5",
        ),
        ("nothing is nothing", json!({ "containers": [{ "name": "c" }] }), "0"),
    ] {
        let asked = requests(&json!({ "spec": spec }));
        assert_eq!((asked.get("cpu"), asked.get("pods")), (q(cpu), q("1")), "{what}");
    }
}

#[test]
fn a_container_being_resized_holds_the_most_of_all() {
    let resized = |asked: &str, granted: &str, conditions: Value| {
        requests(&json!({
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": asked } } }] },
            "status": { "conditions": conditions, "containerStatuses": [{ "name": "c", "allocatedResources": { "cpu": granted }, "resources": { "requests": { "cpu": granted } } }] },
        }))
        .get("cpu")
    };
    assert_eq!(resized("2", "1", json!([])), q("2"));
    assert_eq!(resized("1", "2", json!([])), q("2"));
    let infeasible = json!([{ "type": "PodResizePending", "status": "True", "reason": "Infeasible" }]);
    assert_eq!(resized("100", "1", infeasible), q("1"));
}

#[test]
fn pods_that_are_over_or_nowhere_hold_nothing() {
    let (host, member) = ids();
    for pod in [
        json!({ "spec": {} }),
        json!({ "spec": { "nodeName": "a" }, "status": { "phase": "Succeeded" } }),
        json!({ "spec": { "nodeName": "a" }, "status": { "phase": "Failed" } }),
        json!(null),
    ] {
        assert_eq!(PodLoad::read(&pod, &host, &member), None);
    }
}

#[test]
fn labels_tell_resources_apart_and_fit() {
    assert_eq!(room_label("cpu"), "room.federlet.io/cpu");
    assert_ne!(room_label("a/b.c"), room_label("a.b/c"));
    let long = room_label(&format!("{}.example.com/gpu", "x".repeat(80)));
    assert!(long.len() - ROOM_PREFIX.len() <= 63, "{long}");
    let free = Resources::from_iter([
        ("cpu", q("1999999u")),
        ("memory", q("1048575")),
        ("hugepages-2Mi", q("4Mi")),
        ("pods", q("9")),
    ]);
    let labels = room_labels(&free);
    assert_eq!(labels["room.federlet.io/cpu"], 1999);
    assert_eq!(labels["room.federlet.io/memory"], 0);
    assert_eq!(labels["room.federlet.io/hugepages-2Mi"], 4);
    assert_eq!(labels.len(), 3);
}

#[test]
fn a_pod_asks_for_room_on_one_machine() {
    let pod = json!({ "spec": { "containers": [{ "name": "a", "resources": { "requests": { "cpu": "1500m", "memory": "1", "nvidia.com/gpu": "2", "zero": "0" } } }] } });
    assert_eq!(
        room_for(&pod),
        [
            json!({ "key": "room.federlet.io/cpu", "operator": "Gt", "values": ["1499"] }),
            json!({ "key": "room.federlet.io/memory", "operator": "Gt", "values": ["0"] }),
            json!({ "key": "room.federlet.io/nvidia.com_gpu", "operator": "Gt", "values": ["1"] }),
        ]
    );
    assert_eq!(room_for(&json!({})), Vec::<Value>::new());
    let mut important = pod;
    important["spec"]["priority"] = 1000.into();
    assert_eq!(room_for(&important), Vec::<Value>::new(), "it pushes others aside");
    important["spec"]["preemptionPolicy"] = "Never".into();
    assert_eq!(room_for(&important).len(), 3);
}

#[test]
fn what_fits_exactly_is_not_rounded_away() {
    for (free, said) in [(0, 0), (-1, 0), (1, 1), (63, 63), (64, 64), (65, 66), (4000, 4032), (8000, 8064)] {
        assert_eq!(coarse(free), said, "{free}");
    }
    assert!(coarse(i64::MAX) > 0);
}

#[test]
fn a_value_falls_at_once_and_rises_when_it_lasts() {
    let mut free = Settled::new(10);
    for (now, actual, shown) in [
        (0, 4, 4),
        (1, 9, 4),
        (5, 7, 4),
        (10, 8, 4),
        (11, 8, 7),
        (12, 8, 7),
        (20, 3, 3),
        (21, 9, 3),
        (25, 2, 2),
        (26, 9, 2),
        (36, 9, 9),
    ] {
        free = free.next(actual, now, 10);
        assert_eq!(free.value(), shown, "at {now}");
    }
}

#[test]
fn what_all_nodes_agree_on_is_true_of_the_virtual_one() {
    let arm = json!({ "/metadata/labels": { "kubernetes.io/arch": "arm64" }, "/status/declaredFeatures": ["B", "A", "C"] });
    let amd = json!({ "/status/declaredFeatures": ["A", "B"] });
    let (a, b, c) = (node("a", "1", &amd), node("b", "1", &amd), node("c", "1", &arm));
    assert_eq!(agreed_label([&a, &b], "kubernetes.io/arch"), Some("amd64"));
    assert_eq!(agreed_label([&a, &b, &c], "kubernetes.io/arch"), None);
    assert_eq!(agreed_label([&a], "absent"), None);
    assert_eq!(agreed_label([], "absent"), None);
    let arch = "kubernetes.io/arch";
    assert_eq!(
        [differ_in([&a, &b], arch), differ_in([&a, &b, &c], arch), differ_in([], arch)],
        [false, true, false]
    );
    assert!(!differ_in([&a, &c], "absent"));
    assert_eq!(declared_features([&a, &c]), ["A", "B"]);
    assert_eq!(declared_features([]), Vec::<String>::new());
}

fn loads() -> impl Strategy<Value = Vec<PodLoad>> {
    let load = (prop::sample::select(vec!["a", "b", "c"]), 1i64..4000, any::<bool>());
    prop::collection::vec(load.prop_map(|(node, cpu, ours)| pod_on(node, &format!("{cpu}m"), ours)), 0..20)
}

proptest! {
    #[test]
    fn sums_hold(pods in loads(), permille in 0u16..=1000) {
        let nodes = [plain("a", "4"), plain("b", "8"), plain("c", "2")];
        let limits = Limits::new([("cpu".to_owned(), Limit::Share(permille))]);
        let sum = Capacity::of(&nodes, &pods, &Scope { limits, ..Scope::default() });
        prop_assert!(!sum.allocatable.get("cpu").is_negative());
        prop_assert!(sum.allocatable.get("cpu") <= sum.capacity.get("cpu"));
        prop_assert!(sum.largest.get("cpu") <= sum.allocatable.get("cpu"));
        prop_assert!(sum.capacity.get("cpu") <= q("14").share(permille));
        prop_assert_eq!(Resources::read(Some(&sum.allocatable.to_json())), sum.allocatable);
    }

    /// Whoever fits by the labels fits on a machine.
    #[test]
    fn the_scheduler_sends_no_pod_that_fits_nowhere(pods in loads(), cpu in 1i64..10_000_000) {
        let nodes = [plain("a", "4"), plain("b", "8"), plain("c", "2")];
        let sum = Capacity::of(&nodes, &pods, &Scope::default());
        let wanted = Quantity::from_nano(i128::from(cpu) * 1000, crate::quantity::Form::Decimal);
        let pod = json!({ "spec": { "containers": [{ "name": "a", "resources": { "requests": { "cpu": wanted.to_string() } } }] } });
        let expression = room_for(&pod).remove(0);
        let less: i64 = expression["values"][0].as_str().unwrap().parse().unwrap();
        if room_labels(&sum.largest)["room.federlet.io/cpu"] > less {
            let fits = nodes.iter().any(|node| {
                let held: Quantity = pods.iter().filter(|p| p.node == node.name).map(|p| p.requests.get("cpu")).sum();
                wanted <= node.allocatable.get("cpu") - held
            });
            prop_assert!(fits);
        }
    }

    #[test]
    fn what_is_published_is_never_more_than_was_true_lately(values in prop::collection::vec(0i64..10, 1..30), hold in 1u64..5) {
        let mut settled = Settled::new(values[0]);
        for (now, actual) in values.iter().enumerate() {
            settled = settled.next(*actual, now as u64, hold);
            prop_assert!(settled.value() <= *actual);
        }
        // And it gets there.
        let last = *values.last().unwrap();
        for now in 0..=2 * hold + 2 {
            settled = settled.next(last, values.len() as u64 + now, hold);
        }
        prop_assert_eq!(settled.value(), last);
    }
}
