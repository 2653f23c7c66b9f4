use super::*;

fn items(statuses: &[Value]) -> Vec<AggregatedStatusItem> {
    let item = |(name, status): (&str, &Value)| AggregatedStatusItem {
        cluster_name: name.into(),
        status: (!status.is_null()).then(|| status.clone()),
        ..AggregatedStatusItem::default()
    };
    ["a", "b", "c"].into_iter().zip(statuses).map(item).collect()
}

fn aggregated(api_version: &str, kind: &str, statuses: &[Value]) -> Option<Value> {
    let template = json!({"apiVersion": api_version, "kind": kind, "metadata": {"generation": 3}, "spec": {"type": "LoadBalancer"}});
    aggregate(&template, &items(statuses))
}

#[test]
fn counters() {
    let member = |ready: i64, observed: i64| {
        let object = json!({"metadata": {"generation": 5}, "status": {"replicas": 2, "readyReplicas": ready, "observedGeneration": observed}});
        reflect(&object, 3).unwrap()
    };
    let status = aggregated("apps/v1", "Deployment", &[member(1, 5), member(2, 5)]).unwrap();
    assert_eq!(
        (&status["replicas"], &status["readyReplicas"], &status["observedGeneration"]),
        (&json!(4), &json!(3), &json!(3))
    );
    assert_eq!(status["availableReplicas"], 0);
    for behind in [
        member(2, 4),
        json!(null),
        reflect(&json!({"metadata": {"generation": 5}, "status": {"observedGeneration": 5}}), 2).unwrap(),
    ] {
        let status = aggregated("apps/v1", "StatefulSet", &[member(1, 5), behind]).unwrap();
        assert_eq!(status.get("observedGeneration"), None);
    }
    let status =
        aggregated("apps/v1", "DaemonSet", &[json!({"numberReady": 1}), json!({"numberReady": 2})]).unwrap();
    assert_eq!(status["numberReady"], 3);
    let hpa = aggregated(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        &[json!({"currentReplicas": 1}), json!({"currentReplicas": 4})],
    );
    assert_eq!(hpa.unwrap()["currentReplicas"], 5);
}

#[test]
fn jobs() {
    let done = |kind: &str, start: &str, end: &str| {
        json!({"succeeded": 1, "startTime": start, "completionTime": end,
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": end}]})
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let types = |status: &Value| -> Vec<String> {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().map(|condition| condition["type"].as_str().unwrap().to_owned()).collect()
    };
    let status =
        aggregated("batch/v1", "Job", &[done("Complete", late, late), done("Complete", early, early)])
            .unwrap();
    assert_eq!(
        (&status["startTime"], &status["completionTime"], &status["succeeded"]),
        (&json!(early), &json!(late), &json!(2))
    );
    assert_eq!(types(&status), ["SuccessCriteriaMet", "Complete"]);
    let status = aggregated("batch/v1", "Job", &[done("Complete", early, late), json!(null)]).unwrap();
    assert_eq!((status.get("startTime"), types(&status).len()), (None, 0));
    let status = aggregated(
        "batch/v1",
        "Job",
        &[done("Failed", early, late), done("Complete", early, late), done("Failed", early, late)],
    )
    .unwrap();
    assert_eq!(types(&status), ["FailureTarget", "Failed"]);
    assert_eq!(status["conditions"][1]["message"], "Job failed in clusters a,c");
    // What is finished stays.
    let template = json!({"apiVersion": "batch/v1", "kind": "Job", "status": status});
    assert_eq!(aggregate(&template, &items(&[json!({"active": 1})])), None);
    assert!(types(&aggregated("batch/v1", "Job", &[]).unwrap()).is_empty());
    let cron = aggregated(
        "batch/v1",
        "CronJob",
        &[
            json!({"active": [1], "lastScheduleTime": early}),
            json!({"active": [2], "lastScheduleTime": late}),
        ],
    )
    .unwrap();
    assert_eq!(cron, json!({"active": [1, 2], "lastScheduleTime": late}));
}

#[test]
fn phases() {
    let phases = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| if name.is_empty() { json!(null) } else { json!({"phase": name}) }).collect()
    };
    for (kind, given, expected) in [
        ("Pod", vec!["Running", "Succeeded"], Some("Running")),
        ("Pod", vec!["Running", "Pending"], Some("Pending")),
        ("Pod", vec!["Running", ""], Some("Pending")),
        ("Pod", vec!["Pending", "Failed"], Some("Failed")),
        ("Pod", vec!["Succeeded", "Succeeded"], Some("Succeeded")),
        ("Pod", vec![], None),
        ("PersistentVolumeClaim", vec!["Bound", "Bound"], Some("Bound")),
        ("PersistentVolumeClaim", vec!["Bound", "Pending"], Some("Pending")),
        ("PersistentVolumeClaim", vec!["Pending", "Lost"], Some("Lost")),
        ("PersistentVolume", vec!["Released", "Bound"], Some("Bound")),
        ("PersistentVolume", vec!["Bound", "Available"], Some("Available")),
        ("PersistentVolume", vec!["Failed", ""], Some("Failed")),
    ] {
        let status = aggregated("v1", kind, &phases(&given));
        assert_eq!(status.as_ref().and_then(|status| status["phase"].as_str()), expected, "{kind} {given:?}");
    }
    let pods = [
        json!({"phase": "Running", "containerStatuses": [{"name": "x"}]}),
        json!({"phase": "Running", "containerStatuses": [{"name": "x"}]}),
    ];
    assert_eq!(aggregated("v1", "Pod", &pods).unwrap()["containerStatuses"].as_array().unwrap().len(), 2);
}

#[test]
fn load_balancers_and_budgets() {
    let balancer = |ips: &[&str]| json!({"loadBalancer": {"ingress": ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>()}});
    for (api_version, kind) in [("v1", "Service"), ("networking.k8s.io/v1", "Ingress")] {
        let status = aggregated(
            api_version,
            kind,
            &[balancer(&["2.2.2.2", "1.1.1.1"]), json!(null), balancer(&["1.1.1.1"])],
        )
        .unwrap();
        assert_eq!(status, json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]}}));
    }
    let internal = json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "ClusterIP"}});
    assert_eq!(aggregate(&internal, &[]), None);
    let budget = aggregated(
        "policy/v1",
        "PodDisruptionBudget",
        &[
            json!({"currentHealthy": 1, "disruptedPods": {"p": "t"}}),
            json!({"currentHealthy": 2, "disruptedPods": {"p": "u"}}),
        ],
    )
    .unwrap();
    assert_eq!(
        (&budget["currentHealthy"], &budget["disruptedPods"]),
        (&json!(3), &json!({"a/p": "t", "b/p": "u"}))
    );
    assert_eq!(aggregated("v1", "ConfigMap", &[]), None);
}

proptest::proptest! {
    /// The order of the clusters never matters for a number, and aggregating twice changes nothing.
    #[test]
    fn sums_are_stable(counts in proptest::collection::vec(0..1000i64, 0..3)) {
        let mut statuses: Vec<Value> = counts.iter().map(|count| json!({"replicas": count})).collect();
        let status = aggregated("apps/v1", "Deployment", &statuses).unwrap();
        proptest::prop_assert_eq!(&status["replicas"], &json!(counts.iter().sum::<i64>()));
        let again = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 3}, "status": status});
        proptest::prop_assert_eq!(aggregate(&again, &items(&statuses)), again.get("status").cloned());
        statuses.reverse();
        proptest::prop_assert_eq!(aggregated("apps/v1", "Deployment", &statuses), again.get("status").cloned());
    }
}
