//! Member pod to host pod: the status.
//!
//! What a kubelet would write, said by the member. Fields that other parties of the host own stay as the host has
//! them, what exists only in the member stays there, and whatever comes from a member is bounded and checked, so
//! that no member can make the host's API server reject the status of a pod or swell its store.

pub(crate) mod clean;
mod conditions;
mod containers;
mod ended;
mod unreachable;

use std::net::IpAddr;

use serde_json::{Value, json};

pub use self::{ended::ended, unreachable::unreachable};
use crate::{
    json::{Object, items, text},
    version::Version,
};

/// The first version that keeps `observedGeneration`. An older host drops it, and comparing it would never end.
const GENERATIONS_SINCE: Version = Version::v1(34);

/// Fields that the host's own scheduler and controllers write, or that are fixed since creation (`qosClass`).
const HOSTS_OWN: [&str; 6] = [
    "qosClass",
    "nominatedNodeName",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
    "startTime",
];

/// How the host shows pods of one member.
#[derive(Clone, Debug)]
pub struct View {
    /// The version of the host's API server.
    pub host_version: Version,
    /// What to do with addresses of pods.
    pub pod_addresses: PodAddresses,
    /// Addresses of the virtual node, which become `hostIPs`; the machine's own if there are none.
    pub node_addresses: Vec<IpAddr>,
}

/// Whether the host shows the addresses that pods have in the member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodAddresses {
    /// They can be reached from the host.
    Keep,
    /// They cannot: in an EndpointSlice they would swallow traffic, or reach another pod of the same address.
    #[default]
    Hide,
}

/// The status that the host pod should have, given its pod in the member.
///
/// Final phases stay: a pod that was over and is seen running again must not look as if it ran again.
pub fn status(host: &Value, member: &Value, view: &View) -> Value {
    let nothing = Object::new();
    let current = host.get("status").and_then(Value::as_object).unwrap_or(&nothing);
    let reported = member.get("status").and_then(Value::as_object).unwrap_or(&nothing);
    let final_phase = matches!(phase(current), "Succeeded" | "Failed");
    if final_phase && phase(current) != phase(reported) {
        return Value::Object(current.clone());
    }

    let mut status: Object = reported
        .iter()
        .filter(|(field, value)| {
            !HOSTS_OWN.contains(&field.as_str()) && *field != "conditions" && !value.is_null()
        })
        .map(|(field, value)| (field.clone(), clean::value(value)))
        .collect();
    clean::fields(&mut status);
    status.insert("phase".into(), phase(reported).into());
    for field in HOSTS_OWN {
        let kept = current.get(field).filter(|value| !value.is_null());
        // Nobody on the host says when a pod started but its kubelet.
        let own =
            if field == "startTime" { reported.get(field).filter(|time| clean::is_time(time)) } else { None };
        if let Some(value) = kept.or(own) {
            status.insert(field.to_owned(), value.clone());
        }
    }
    addresses(&mut status, reported, view);
    containers::rewrite(&mut status, host, current);
    let generation = observed(host, member, view.host_version);
    status.remove("observedGeneration");
    if let Some(generation) = generation {
        status.insert("observedGeneration".into(), generation.into());
    }
    status.insert("conditions".into(), conditions::rewrite(host, current, reported, generation).into());
    explain_waiting(&mut status, reported);
    Value::Object(status)
}

fn phase(status: &Object) -> &str {
    match status.get("phase").and_then(Value::as_str) {
        Some(phase @ ("Running" | "Succeeded" | "Failed" | "Unknown")) => phase,
        _ => "Pending",
    }
}

/// The generation of the host pod that the member has taken in: the latest, once its kubelet has seen its own
/// latest. A member too old to say counts as up to date.
fn observed(host: &Value, member: &Value, host_version: Version) -> Option<i64> {
    if host_version < GENERATIONS_SINCE {
        return None;
    }
    let number = |pod: &Value, field: &str| pod.pointer(field).and_then(Value::as_i64);
    let seen = match (number(member, "/status/observedGeneration"), number(member, "/metadata/generation")) {
        (Some(observed), Some(generation)) => observed >= generation,
        _ => true,
    };
    if seen { number(host, "/metadata/generation") } else { number(host, "/status/observedGeneration") }
}

fn addresses(status: &mut Object, reported: &Object, view: &View) {
    let hidden = view.pod_addresses == PodAddresses::Hide;
    for (one, all, own) in [("podIP", "podIPs", None), ("hostIP", "hostIPs", Some(&view.node_addresses))] {
        status.remove(one);
        status.remove(all);
        let found = match own {
            Some(own) if !own.is_empty() => own.iter().map(ToString::to_string).collect(),
            None if hidden => vec![],
            _ => valid_addresses(reported, one, all),
        };
        if let Some(first) = found.first() {
            status.insert(one.to_owned(), first.as_str().into());
            status.insert(all.to_owned(), found.iter().map(|ip| json!({ "ip": ip })).collect());
        }
    }
}

/// The addresses in a status, at most one per family, as API servers demand.
fn valid_addresses(reported: &Object, one: &str, all: &str) -> Vec<String> {
    let first = reported.get(one).and_then(Value::as_str);
    let more = items(reported.get(all)).filter_map(|entry| text(entry, "ip"));
    let mut found: Vec<IpAddr> = vec![];
    for address in first.into_iter().chain(more).filter_map(|text| text.parse::<IpAddr>().ok()) {
        if !found.iter().any(|known| known.is_ipv4() == address.is_ipv4()) {
            found.push(address);
        }
    }
    found.iter().map(ToString::to_string).collect()
}

/// Says in the pod's own reason why it waits in the member: `kubectl get pods` shows that, and the host's scheduler,
/// who placed it, would otherwise be believed.
fn explain_waiting(status: &mut Object, reported: &Object) {
    if phase(reported) != "Pending" || status.contains_key("reason") {
        return;
    }
    let condition = |kind: &str| items(reported.get("conditions")).find(|c| text(c, "type") == Some(kind));
    let why = condition("PodScheduled").filter(|c| text(c, "status") == Some("False"));
    // KubeEdge holds an updated pod back until somebody agrees.
    let held = condition("HeldUpgrade").filter(|c| text(c, "status") == Some("True"));
    let (default, why) = match (why, held) {
        (Some(why), _) => ("Unschedulable", why),
        (None, Some(held)) => ("HeldUpgrade", held),
        (None, None) => return,
    };
    let reason = if default == "HeldUpgrade" { default } else { text(why, "reason").unwrap_or(default) };
    status.insert("reason".into(), clean::word(reason).into());
    if let Some(message) = text(why, "message") {
        status.insert("message".into(), clean::text(message).into());
    }
}

#[cfg(test)]
mod tests;
