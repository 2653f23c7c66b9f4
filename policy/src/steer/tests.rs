use serde_json::json;

use super::*;

fn placement(value: Value) -> Placement {
    serde_json::from_value(value).unwrap()
}

fn steered(pod: &Value, placement: &Placement, way: Way) -> Value {
    let workload = Workload {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        uid: "u-1".into(),
    };
    let policy = PolicyKey { namespace: Some("shop".into()), name: "spread".into() };
    let own: Vec<Toleration> =
        serde_json::from_value(json!([{"key": "virtual-kubelet.io/provider", "operator": "Exists"}]))
            .unwrap();
    let steering =
        Steering { workload: &workload, policy: &policy, placement, scheduler: None, tolerations: &own, way };
    let mut pod = pod.clone();
    steer(&mut pod, &steering);
    // Asked twice, it says the same.
    let mut again = pod.clone();
    steer(&mut again, &steering);
    if !matches!(steering.way, Way::Daemon(_)) {
        assert_eq!(again["spec"]["tolerations"], pod["spec"]["tolerations"]);
        assert_eq!(again["spec"]["schedulingGates"], pod["spec"]["schedulingGates"]);
    }
    pod
}

#[test]
fn a_pod_is_marked_gated_and_tolerates_its_cluster() {
    let tolerant = placement(json!({"clusterTolerations": [{"key": "gpu", "operator": "Exists"}]}));
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let steered = steered(&pod, &tolerant, Way::Gate);
    assert_eq!(steered["spec"]["schedulingGates"], json!([{"name": "federlet.io/placement"}]));
    assert_eq!(steered["metadata"]["labels"], json!({"app": "web", "federlet.io/workload": "u-1"}));
    assert_eq!(steered["metadata"]["annotations"]["federlet.io/policy"], "shop/spread");
    assert_eq!(Workload::of(&steered).unwrap().name, "web");
    assert_eq!(stamp::policy_of(&steered).unwrap().to_string(), "shop/spread");
    let keys: Vec<&str> = steered["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|toleration| toleration["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["virtual-kubelet.io/provider", "gpu"]);
    assert!(steered["metadata"]["annotations"].get("federlet.io/constraints").is_none());
}

#[test]
fn constraints_go_to_the_member_and_the_host_sees_only_ours() {
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}});
    let spread = json!([{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1}]);
    let pod = json!({"metadata": {}, "spec": {
        "nodeSelector": {"disk": "ssd"}, "affinity": affinity, "topologySpreadConstraints": spread,
        "containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}],
    }});
    let steered = steered(&pod, &Placement::default(), Way::Only("m1".into()));
    let kept: Value =
        serde_json::from_str(steered["metadata"]["annotations"]["federlet.io/constraints"].as_str().unwrap())
            .unwrap();
    assert_eq!(
        kept,
        json!({"nodeSelector": {"disk": "ssd"}, "affinity": affinity, "topologySpreadConstraints": spread,
            "hostPorts": [{"container": "a", "containerPort": 80, "protocol": "TCP", "hostPort": 8080}]})
    );
    let mut back = steered.clone();
    constraints::put_back(&mut back);
    for field in ["nodeSelector", "affinity", "topologySpreadConstraints", "containers"] {
        assert_eq!(back["spec"][field], pod["spec"][field], "{field}");
    }
    assert_eq!(steered["spec"]["affinity"], require("kubernetes.io/hostname", &["m1"]));
    assert!(steered["spec"].get("nodeSelector").is_none());
    assert!(steered["spec"].get("schedulingGates").is_none());
    assert_eq!(
        steered["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80}, {"containerPort": 81}])
    );
}

#[test]
fn what_steered_the_host_never_gets_to_the_member() {
    let pod = json!({"metadata": {}, "spec": {"containers": []}});
    let mut back = steered(&pod, &Placement::default(), Way::Gate);
    back["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "m1"});
    constraints::put_back(&mut back);
    assert!(back["spec"].get("nodeSelector").is_none() && back["spec"].get("affinity").is_none());
}

#[test]
fn ports_of_the_machines_network_stay() {
    let ports = json!([{"containerPort": 80, "hostPort": 80}]);
    let pod =
        json!({"metadata": {}, "spec": {"hostNetwork": true, "containers": [{"name": "a", "ports": ports}]}});
    let steered = steered(&pod, &Placement::default(), Way::Gate);
    assert_eq!(steered["spec"]["containers"][0]["ports"], ports);
}

#[test]
fn the_pod_of_a_daemon_set_keeps_its_node() {
    let terms = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m1"]}]}]}}});
    let pod = json!({"metadata": {}, "spec": {"affinity": terms, "containers": []}});
    assert_eq!(daemon_node(&pod), Some("m1"));
    let steered = steered(&pod, &Placement::default(), Way::Daemon("m1".into()));
    assert_eq!(steered["spec"]["affinity"], terms);
    assert_eq!(steered["metadata"]["annotations"]["federlet.io/run-daemonset"], "true");
    assert_eq!(daemon_node(&json!({"spec": {}})), None);
}

#[test]
fn a_policy_that_names_one_cluster_means_that_one() {
    for (affinity, expected) in [
        (json!({"clusterNames": ["a"]}), Some("a")),
        (json!({"clusterNames": ["a", "b"], "exclude": ["b"]}), Some("a")),
        (json!({"clusterNames": ["a", "b"]}), None),
        (json!({"clusterNames": []}), None),
        (json!({"labelSelector": {"matchLabels": {"a": "b"}}}), None),
    ] {
        let placement = placement(json!({"clusterAffinity": affinity}));
        assert_eq!(only_cluster(&placement), expected, "{affinity}");
    }
    assert_eq!(only_cluster(&Placement::default()), None);
}
