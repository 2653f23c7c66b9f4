use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{contract::Pod, decide};

/// One run of a pod's containers. They begin and end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) pod_began: Timestamp,
    pub(super) began: Timestamp,
    pub(super) ended: Option<(Timestamp, i64)>,
    pub(super) restarts: u64,
    /// When the run before this one began and ended, and with which code.
    pub(super) before: Option<(Timestamp, Timestamp, i64)>,
}

impl Run {
    pub(super) const fn begin(now: Timestamp) -> Self {
        Self { pod_began: now, began: now, ended: None, restarts: 0, before: None }
    }

    /// The run before this one.
    pub(super) fn previous(self) -> Option<Self> {
        let (began, ended, code) = self.before?;
        Some(Self { began, ended: Some((ended, code)), before: None, ..self })
    }
}

/// Ends the containers, or starts them again where the pod's restart policy says so.
pub(super) fn end(pod: &Pod, run: Run, now: Timestamp) -> Run {
    let code = pod.annotation("memory.federlet.io/exit-code").and_then(|code| code.parse().ok()).unwrap_or(0);
    let policy = pod.spec()["restartPolicy"].as_str().unwrap_or("Always");
    if policy == "Always" || (policy == "OnFailure" && code != 0) {
        Run { began: now, restarts: run.restarts + 1, before: Some((run.began, now, code)), ..run }
    } else {
        Run { ended: Some((now, code)), ..run }
    }
}

/// An annotation that says seconds. One that does not make sense says nothing.
pub(super) fn seconds(pod: &Pod, annotation: &str) -> Option<Duration> {
    let seconds: f64 = pod.annotation(annotation)?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The status of a pod whose containers all do the same.
pub(super) fn status(pod: &Pod, run: Run) -> Value {
    let ready = run.ended.is_none();
    let phase = match run.ended {
        None => "Running",
        Some((_, 0)) => "Succeeded",
        Some(_) => "Failed",
    };
    let began = decide::seconds(run.pod_began);
    let since = run.ended.map_or(began.clone(), |(at, _)| decide::seconds(at));
    let condition = |kind: &str, holds: bool, since: &str| {
        let mut condition = json!({"type": kind, "status": if holds { "True" } else { "False" },
                                   "lastProbeTime": null, "lastTransitionTime": since});
        if !holds {
            condition["reason"] = "PodCompleted".into();
        }
        condition
    };
    let mut status = json!({
        "phase": phase,
        "startTime": began,
        "conditions": [
            condition("PodReadyToStartContainers", ready, &since),
            condition("Initialized", true, &began),
            condition("ContainersReady", ready, &since),
            condition("Ready", ready, &since),
        ],
    });
    for (list, field) in [
        ("initContainers", "initContainerStatuses"),
        ("containers", "containerStatuses"),
        ("ephemeralContainers", "ephemeralContainerStatuses"),
    ] {
        let containers = pod.spec().get(list).and_then(Value::as_array).into_iter().flatten();
        let statuses: Vec<Value> = containers.map(|c| container(c, list == "initContainers", run)).collect();
        if !statuses.is_empty() {
            status[field] = statuses.into();
        }
    }
    status
}

fn container(spec: &Value, init: bool, run: Run) -> Value {
    // An init container that never ends is a sidecar, and runs beside the others.
    let done = init && spec["restartPolicy"] != "Always";
    let began = decide::seconds(run.began);
    let state = match run.ended {
        _ if done => terminated(&began, &decide::seconds(run.pod_began), 0),
        Some((at, code)) => terminated(&began, &decide::seconds(at), code),
        None => json!({"running": {"startedAt": began}}),
    };
    let runs = !done && run.ended.is_none();
    let mut status = json!({
        "name": spec["name"], "image": spec["image"], "imageID": "", "containerID": "",
        "ready": runs || done, "started": runs, "restartCount": if done { 0 } else { run.restarts },
        "state": state, "lastState": {},
    });
    if let Some((began, ended, code)) = run.before.filter(|_| !done) {
        status["lastState"] = terminated(&decide::seconds(began), &decide::seconds(ended), code);
    }
    // Whatever is asked for is there. A host lets a pod be resized only if its containers say what they have.
    if let Some(resources) = spec.get("resources").filter(|_| runs) {
        status["resources"] = resources.clone();
        if let Some(requests) = resources.get("requests") {
            status["allocatedResources"] = requests.clone();
        }
    }
    status
}

fn terminated(began: &str, ended: &str, code: i64) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": ended}})
}
