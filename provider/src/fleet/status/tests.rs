#![allow(clippy::needless_pass_by_value, reason = "JSON literals read better without a reference")]

use super::*;

fn pod(restart: &str, status: Value) -> Pod {
    Pod::try_from(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "p1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"restartPolicy": restart, "containers": [{"name": "app", "image": "nginx"}]},
        "status": status,
    }))
    .unwrap()
}

fn copy(cluster: &str, phase: &str, ready: bool) -> Copy {
    let said = if ready { "True" } else { "False" };
    let state = match phase {
        "Succeeded" => json!({"terminated": {"exitCode": 0}}),
        "Failed" => json!({"terminated": {"exitCode": 7}}),
        _ => json!({"running": {}}),
    };
    let mut status = json!({"phase": phase, "conditions": [
        {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
        {"type": "ContainersReady", "status": said, "lastTransitionTime": "2026-01-01T00:00:02Z"},
        {"type": "Ready", "status": said, "lastTransitionTime": "2026-01-01T00:00:02Z"}]});
    if phase != "Pending" {
        status["startTime"] = "2026-01-01T00:00:01Z".into();
        status["podIP"] = "10.0.0.1".into();
        status["containerStatuses"] =
            json!([{"name": "app", "ready": ready, "restartCount": 1, "state": state}]);
    }
    Copy { cluster: cluster.into(), reachable: true, json: Some(json!({"status": status})), trouble: None }
}

fn away(copy: Copy) -> Copy {
    Copy { reachable: false, ..copy }
}

fn missing(cluster: &str) -> Copy {
    Copy { cluster: cluster.into(), reachable: true, json: None, trouble: None }
}

/// Phase, Ready, and what is said of the copies.
fn shown(pod: &Pod, copies: &[Copy]) -> (String, bool, String) {
    let status = status(pod, copies);
    let said = condition(&status, COPIES).unwrap()["message"].as_str().unwrap().to_owned();
    (status["phase"].as_str().unwrap().to_owned(), is_true(&status, "Ready"), said)
}

#[test]
fn it_is_ready_when_every_copy_within_reach_is() {
    let (ready, running, pending) =
        (copy("a", "Running", true), copy("b", "Running", false), copy("b", "Pending", false));
    let web = pod("Always", json!({}));
    for (copies, phase, is_ready, said) in [
        (vec![ready.clone(), copy("b", "Running", true)], "Running", true, "a=Ready, b=Ready"),
        (vec![ready.clone(), running.clone()], "Running", false, "a=Ready, b=Running"),
        (vec![ready.clone(), pending.clone()], "Running", false, "a=Ready, b=Pending"),
        (vec![ready.clone(), away(running)], "Running", true, "a=Ready, b=Running (unreachable)"),
        (vec![ready.clone(), away(missing("b"))], "Running", true, "a=Ready, b=Missing (unreachable)"),
        (vec![away(ready)], "Running", false, "a=Ready (unreachable)"),
        (vec![pending], "Pending", false, "b=Pending"),
        (
            vec![Copy { trouble: Some("QuotaExceeded".into()), ..missing("a") }],
            "Pending",
            false,
            "a=Missing (QuotaExceeded)",
        ),
        (vec![missing("a")], "Pending", false, "a=Missing"),
        (vec![], "Pending", false, ""),
    ] {
        assert_eq!(shown(&web, &copies), (phase.into(), is_ready, said.into()));
    }
}

#[test]
fn it_ends_when_all_copies_have_ended_and_well_only_if_all_did() {
    let (well, badly) = (copy("a", "Succeeded", false), copy("b", "Failed", false));
    let job = pod("Never", json!({}));
    assert_eq!(shown(&job, &[well.clone(), copy("b", "Succeeded", false)]).0, "Succeeded");
    assert_eq!(shown(&job, &[well.clone(), copy("b", "Running", true)]).0, "Running");
    assert_eq!(shown(&job, &[well.clone(), away(copy("b", "Running", true))]).0, "Running", "all means all");
    let failed = status(&job, &[well, badly]);
    assert_eq!(failed["phase"], "Failed");
    assert_eq!(
        failed["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7,
        "as a policy of the Job asks"
    );
    // One that is to run for ever is not over because a copy is: that one is replaced.
    assert_eq!(shown(&pod("Always", json!({})), &[copy("a", "Failed", false)]).0, "Running");
}

#[test]
fn a_copy_that_ran_and_is_gone_counts_as_failed_if_it_may_have_finished() {
    let said =
        |message: &str| json!({"conditions": [{"type": COPIES, "status": "False", "message": message}]});
    let copies = [copy("a", "Succeeded", false), missing("b")];
    let (phase, _, message) = shown(&pod("Never", said("a=Succeeded, b=Running (unreachable)")), &copies);
    assert_eq!((phase.as_str(), message.as_str()), ("Failed", "a=Succeeded, b=Lost"));
    assert_eq!(shown(&pod("Never", said("a=Succeeded, b=Pending")), &copies).0, "Running");
    assert_eq!(shown(&pod("Never", said("a=Succeeded, b=Lost")), &copies).0, "Failed", "and stays so");
}

#[test]
fn containers_are_as_the_worst_of_them_and_nobody_has_an_address() {
    let mut crashing = copy("b", "Running", false);
    crashing.json.as_mut().unwrap()["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let web = pod("Always", json!({}));
    let shown = status(&web, &[copy("a", "Running", true), crashing]);
    let container = &shown["containerStatuses"][0];
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!((&container["ready"], &container["restartCount"]), (&json!(false), &json!(2)));
    assert_eq!((shown.get("podIP"), &shown["startTime"]), (None, &json!("2026-01-01T00:00:01Z")));
    let mut unschedulable = copy("b", "Pending", false);
    unschedulable.json = Some(json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too little room"}]}}));
    let shown = status(&web, &[copy("a", "Running", true), unschedulable]);
    assert_eq!(shown["containerStatuses"][0]["state"]["waiting"]["reason"], "Unschedulable");
}

#[test]
fn the_same_copies_say_the_same() {
    let copies = [copy("a", "Running", true), copy("b", "Pending", false)];
    let web = pod("Always", json!({}));
    assert_eq!(status(&web, &copies), status(&web, &copies));
    // And a pod that ran is not said to wait.
    assert_eq!(shown(&pod("Always", json!({"phase": "Running"})), &[missing("a")]).0, "Running");
}

#[test]
fn what_a_pod_says_of_its_copies_can_be_read_again() {
    let mut troubled = copy("b", "Pending", false);
    troubled.trouble = Some("Rejected".into());
    let copies = [
        copy("a", "Running", true),
        troubled,
        missing("c"),
        away(copy("d", "Running", false)),
        copy("e", "Failed", false),
    ];
    let well = copies_well(&status(&pod("Always", json!({})), &copies));
    let expected = [("a", Some(true)), ("b", Some(false)), ("c", None), ("d", None), ("e", Some(false))];
    assert_eq!(well, expected.map(|(cluster, well)| (cluster.to_owned(), well)).into());
    assert!(copies_well(&json!({})).is_empty());
}
