use serde_json::json;

use super::*;

fn placement(value: Value) -> Placement {
    serde_json::from_value(value).unwrap()
}

fn steered(pod: &Value, placement: &Placement, way: Way) -> Value {
    steered_and(pod, placement, way, false)
}

fn steered_and(pod: &Value, placement: &Placement, way: Way, waits: bool) -> Value {
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
    let steering = Steering {
        workload: &workload,
        policy: &policy,
        placement,
        scheduler: None,
        priority_class: Some("high"),
        tolerations: &own,
        waits,
        way,
    };
    let mut pod = pod.clone();
    steer(&mut pod, &steering);
    // Asked twice, it says the same.
    let mut again = pod.clone();
    steer(&mut again, &steering);
    if !matches!(steering.way, Way::Daemon(_)) && !waits {
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
    assert_eq!(steered["spec"]["affinity"], require("kubernetes.io/hostname", "m1", vec![]));
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
        assert_eq!(certain_cluster(&placement), expected, "{affinity}");
    }
    assert_eq!(only_cluster(&Placement::default()), None);
    // What else is asked of it, it may not be.
    for more in [
        json!({"labelSelector": {"matchLabels": {"a": "b"}}}),
        json!({"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["r"]}]}}),
    ] {
        let mut affinity = json!({"clusterNames": ["a"]});
        affinity.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let placement = placement(json!({"clusterAffinity": affinity}));
        assert_eq!((only_cluster(&placement), certain_cluster(&placement)), (Some("a"), None), "{affinity}");
    }
    for more in [
        json!({"workloadAffinity": {"antiAffinity": {"groupByLabelKey": "group"}}}),
        json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2}]}),
    ] {
        let mut whole = json!({"clusterAffinity": {"clusterNames": ["a"]}});
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let placement = placement(whole);
        assert_eq!((only_cluster(&placement), certain_cluster(&placement)), (Some("a"), None), "{more}");
    }
}

#[test]
fn a_priority_class_is_given_once() {
    let computed =
        json!({"spec": {"priorityClassName": "usual", "priority": 5, "preemptionPolicy": "Never"}});
    let first = steered(&computed, &Placement::default(), Way::Gate);
    assert_eq!(first["spec"]["priorityClassName"], "high");
    assert!(first["spec"].get("priority").is_none() && first["spec"].get("preemptionPolicy").is_none());
    // Asked again after the host computed its value, nothing is to do.
    let mut computed = first;
    computed["spec"]["priority"] = json!(100);
    assert_eq!(steered(&computed, &Placement::default(), Way::Gate)["spec"]["priority"], 100);
    let spec = |priority: Value| -> PropagationSpec {
        serde_json::from_value(json!({"resourceSelectors": [], "schedulePriority": priority})).unwrap()
    };
    for (source, name, class) in [
        ("KubePriorityClass", "high", Some("high")),
        ("KubePriorityClass", "", None),
        ("PodPriorityClass", "high", None),
        ("FederatedPriorityClass", "high", None),
    ] {
        let spec = spec(json!({"priorityClassSource": source, "priorityClassName": name}));
        assert_eq!(priority_class(&spec), class, "{source} {name}");
    }
}

#[test]
fn who_waits_for_others_is_not_driven_out_by_the_host() {
    let tolerant = placement(json!({"clusterTolerations": [
        {"key": "slow", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]}));
    let default = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let pod = json!({"metadata": {}, "spec": {"containers": [], "tolerations": [default]}});
    let steered = steered_and(&pod, &tolerant, Way::Gate, true);
    let tolerations = steered["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.iter().all(|one| one.get("tolerationSeconds").is_none()), "{tolerations:?}");
    assert_eq!(tolerations.last().unwrap(), &json!({"operator": "Exists", "effect": "NoExecute"}));
    let own: Value =
        serde_json::from_str(steered["metadata"]["annotations"]["federlet.io/tolerations"].as_str().unwrap())
            .unwrap();
    let times: Vec<i64> =
        own.as_array().unwrap().iter().filter_map(|one| one["tolerationSeconds"].as_i64()).collect();
    assert_eq!(times, [300, 30]);
}

#[test]
fn pods_have_the_scheduler_that_their_policy_names() {
    for (name, expected) in [("mine", "mine"), ("default-scheduler", "own"), ("", "own")] {
        let spec: PropagationSpec =
            serde_json::from_value(json!({"resourceSelectors": [], "schedulerName": name})).unwrap();
        let (workload, policy) =
            (Workload::default(), PolicyKey { namespace: Some("shop".into()), name: "p".into() });
        let steering = Steering {
            workload: &workload,
            policy: &policy,
            placement: &spec.placement,
            scheduler: scheduler(&spec),
            priority_class: None,
            tolerations: &[],
            waits: false,
            way: Way::Gate,
        };
        let mut pod = json!({"metadata": {}, "spec": {"containers": [], "schedulerName": "own"}});
        steer(&mut pod, &steering);
        assert_eq!(pod["spec"]["schedulerName"], expected, "{name:?}");
    }
}
