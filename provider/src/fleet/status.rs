//! What a pod says of itself, from what its copies say.

use std::collections::{BTreeMap, BTreeSet};

use federlet_node::contract::{Phase, Pod};
use serde_json::{Map, Value, json};

use crate::json::{items, text};

/// The condition of a pod that says how each of its copies is.
pub(super) const COPIES: &str = "federlet.io/copies";
/// What it adds for a copy in a cluster that cannot be reached.
const UNREACHABLE: &str = " (unreachable)";

/// The copy in one of the chosen clusters.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) cluster: String,
    /// Whether the cluster can be reached. One that cannot must not hold up the others.
    pub(super) reachable: bool,
    /// The copy, unless it is not there.
    pub(super) json: Option<Value>,
    /// What went wrong when something was to be done about it, in one word.
    pub(super) trouble: Option<String>,
}

/// How a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    Lost,
    Pending,
    Running,
    Ready,
    Succeeded,
    Failed,
}

impl State {
    const ALL: [Self; 7] =
        [Self::Missing, Self::Lost, Self::Pending, Self::Running, Self::Ready, Self::Succeeded, Self::Failed];

    const fn word(self) -> &'static str {
        match self {
            Self::Missing => "Missing",
            Self::Lost => "Lost",
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Ready => "Ready",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    const fn is_over(self) -> bool {
        matches!(self, Self::Lost | Self::Succeeded | Self::Failed)
    }

    const fn began(self) -> bool {
        !matches!(self, Self::Missing | Self::Pending)
    }
}

/// The clusters whose copy ran, as the pod said it last. It is the only memory of copies that are not there any more.
pub(super) fn began(status: &Value) -> BTreeSet<String> {
    let condition = condition(status, COPIES).and_then(|condition| text(condition, "message"));
    let each = condition.unwrap_or_default().split(", ").filter_map(|part| part.split_once('='));
    each.filter(|(_, said)| {
        let word = said.split(' ').next().unwrap_or_default();
        State::ALL.into_iter().any(|state| state.began() && state.word() == word)
    })
    .map(|(cluster, _)| cluster.to_owned())
    .collect()
}

/// Whether the copy in each cluster is well, as the pod says it. Of one that is not there yet, or in a cluster that
/// cannot be reached, nobody can tell.
pub fn copies_well(status: &Value) -> BTreeMap<String, Option<bool>> {
    let condition = condition(status, COPIES).and_then(|condition| text(condition, "message"));
    let each = condition.unwrap_or_default().split(", ").filter_map(|part| part.split_once('='));
    each.map(|(cluster, said)| {
        let word = said.split(' ').next().unwrap_or_default();
        let state = State::ALL.into_iter().find(|state| state.word() == word);
        let well = state
            .filter(|state| *state != State::Missing && !said.ends_with(UNREACHABLE))
            .map(|state| matches!(state, State::Ready | State::Succeeded));
        (cluster.to_owned(), well)
    })
    .collect()
}

/// The status of a pod with these copies.
///
/// It is Ready when the copy in every cluster that can be reached is; Succeeded when all are; Failed, if it is one that
/// ends by itself, when all are over and not all of them well. It has no address: only copies do.
pub(super) fn status(pod: &Pod, copies: &[Copy]) -> Value {
    let began = if pod.restarts_always() { BTreeSet::new() } else { began(pod.status()) };
    let states: Vec<State> = copies.iter().map(|copy| state(copy, &began)).collect();
    let phase = phase(pod, &states);
    let within_reach: Vec<&Copy> = copies.iter().filter(|copy| copy.reachable).collect();
    let telling: Vec<&Copy> =
        if within_reach.is_empty() { copies.iter().collect() } else { within_reach.clone() };
    let mut status = Map::new();
    status.insert("phase".into(), phase.as_str().into());
    let starts = copies.iter().filter_map(|copy| copy.json.as_ref()?.pointer("/status/startTime")?.as_str());
    if let Some(start) = starts.min() {
        status.insert("startTime".into(), start.into());
    }
    for (list, statuses) in [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")]
    {
        let merged: Vec<Value> = items(pod.spec().get(list))
            .filter_map(|container| container_status(container, statuses, &telling))
            .collect();
        if !merged.is_empty() {
            status.insert(statuses.into(), merged.into());
        }
    }
    if let Some(failed) = copies.iter().find(|copy| {
        phase == Phase::Failed
            && copy.json.as_ref().is_some_and(|json| Phase::of(&json["status"]) == Phase::Failed)
    }) {
        for field in ["reason", "message"] {
            let said = failed.json.as_ref().and_then(|json| text(&json["status"], field));
            status.extend(said.map(|said| (field.to_owned(), said.into())));
        }
    }
    let ready = ["Initialized", "ContainersReady", "Ready"]
        .map(|kind| joint_condition(pod, kind, &within_reach, phase));
    let mut conditions: Vec<Value> = ready.into();
    conditions.push(copies_condition(pod, copies, &states));
    status.insert("conditions".into(), conditions.into());
    Value::Object(status)
}

fn state(copy: &Copy, began: &BTreeSet<String>) -> State {
    let Some(json) = &copy.json else {
        return if began.contains(&copy.cluster) { State::Lost } else { State::Missing };
    };
    match Phase::of(&json["status"]) {
        Phase::Succeeded => State::Succeeded,
        Phase::Failed => State::Failed,
        Phase::Running if is_true(&json["status"], "Ready") => State::Ready,
        Phase::Running | Phase::Unknown => State::Running,
        Phase::Pending => State::Pending,
    }
}

fn phase(pod: &Pod, states: &[State]) -> Phase {
    let all_over = !states.is_empty() && states.iter().all(|state| state.is_over());
    if !pod.restarts_always() && all_over {
        let well = states.iter().all(|state| *state == State::Succeeded);
        return if well { Phase::Succeeded } else { Phase::Failed };
    }
    // What ran once is not said to wait again: nobody expects that of a pod.
    let runs = pod.phase() == Phase::Running || states.iter().any(|state| state.began());
    if runs { Phase::Running } else { Phase::Pending }
}

/// The status of one container: that of the copy that is worst off, Ready when all are, with the restarts of all.
fn container_status(container: &Value, list: &str, copies: &[&Copy]) -> Option<Value> {
    let name = text(container, "name")?;
    let of = |copy: &Copy| {
        let status = &copy.json.as_ref()?["status"];
        let said = items(status.get(list)).find(|one| text(one, "name") == Some(name)).cloned();
        Some(said.unwrap_or_else(|| waiting(container, status)))
    };
    let all: Vec<Value> = copies.iter().filter_map(|copy| of(copy)).collect();
    let mut worst = all.iter().min_by_key(|status| rank(status))?.clone();
    let ready = all.iter().all(|status| status.get("ready") == Some(&true.into()));
    let restarts = all.iter().filter_map(|status| status.get("restartCount")?.as_u64()).sum::<u64>();
    worst["ready"] = ready.into();
    worst["restartCount"] = restarts.into();
    Some(worst)
}

/// What a container would say whose copy has not started.
fn waiting(container: &Value, status: &Value) -> Value {
    let scheduled = condition(status, "PodScheduled").filter(|condition| condition["status"] == "False");
    let reason = scheduled.and_then(|condition| text(condition, "reason")).unwrap_or("ContainerCreating");
    let message = scheduled.and_then(|condition| text(condition, "message"));
    let mut waiting = json!({ "reason": reason });
    if let Some(message) = message {
        waiting["message"] = message.into();
    }
    json!({
        "name": container.get("name"), "image": container.get("image"), "imageID": "", "ready": false,
        "started": false, "restartCount": 0, "state": { "waiting": waiting },
    })
}

fn rank(status: &Value) -> u8 {
    let state = &status["state"];
    if let Some(waiting) = state.get("waiting") {
        let usual = matches!(text(waiting, "reason"), None | Some("ContainerCreating" | "PodInitializing"));
        return u8::from(usual);
    }
    if let Some(ended) = state.get("terminated") {
        return if ended.get("exitCode").and_then(Value::as_i64) == Some(0) { 5 } else { 2 };
    }
    if status.get("ready") == Some(&true.into()) { 4 } else { 3 }
}

/// True when it is in all copies that can be reached, and there are any.
fn joint_condition(pod: &Pod, kind: &str, copies: &[&Copy], phase: Phase) -> Value {
    let holds = |copy: &&&Copy| copy.json.as_ref().is_some_and(|json| is_true(&json["status"], kind));
    let without: Vec<&str> =
        copies.iter().filter(|copy| !holds(copy)).map(|copy| copy.cluster.as_str()).collect();
    let since = copies.iter().filter_map(|copy| {
        let condition = condition(&copy.json.as_ref()?["status"], kind)?;
        text(condition, "lastTransitionTime").map(str::to_owned)
    });
    let mut said = json!({
        "type": kind, "status": "True", "lastTransitionTime": since.max().map_or_else(|| created(pod), Value::from),
    });
    if phase == Phase::Succeeded && kind != "Initialized" {
        (said["status"], said["reason"]) = ("False".into(), "PodCompleted".into());
    } else if copies.is_empty() {
        (said["status"], said["reason"]) = ("False".into(), "NoClusterReachable".into());
    } else if !without.is_empty() {
        (said["status"], said["reason"]) = ("False".into(), "CopiesNotReady".into());
        said["message"] = format!("not in {}", without.join(", ")).into();
    }
    said
}

fn copies_condition(pod: &Pod, copies: &[Copy], states: &[State]) -> Value {
    let each: Vec<String> = copies
        .iter()
        .zip(states)
        .map(|(copy, state)| {
            let trouble = copy.trouble.as_ref().map_or_else(String::new, |word| format!(" ({word})"));
            let away = if copy.reachable { "" } else { UNREACHABLE };
            format!("{}={}{trouble}{away}", copy.cluster, state.word())
        })
        .collect();
    let well =
        |(copy, state): (&Copy, &State)| copy.reachable && matches!(state, State::Ready | State::Succeeded);
    let all_well = !copies.is_empty() && copies.iter().zip(states).all(well);
    let mut said = json!({
        "type": COPIES, "status": if all_well { "True" } else { "False" }, "message": each.join(", "),
        "lastTransitionTime": created(pod),
    });
    said["reason"] = if all_well { "AllWell" } else { "NotAllWell" }.into();
    said
}

fn created(pod: &Pod) -> Value {
    let at = pod.metadata().get("creationTimestamp").cloned();
    at.unwrap_or_else(|| jiff::Timestamp::UNIX_EPOCH.to_string().into())
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    items(status.get("conditions")).find(|condition| text(condition, "type") == Some(kind))
}

/// Whether a condition holds.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests;
