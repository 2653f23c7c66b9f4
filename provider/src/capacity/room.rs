//! The most that is free on one machine, as node labels that the host's scheduler can compare.
//!
//! A sum says nothing about whether a pod fits anywhere: eight machines with one free GPU each hold no pod that wants
//! two. The scheduler compares integers in labels (`Gt`), so each resource gets a label, in steps that suit it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Resources, requests, requests::PODS};
use crate::{names::shortened, quantity::Quantity};

/// Where the labels are.
pub const ROOM_PREFIX: &str = "room.federlet.io/";

/// The name part of a label has at most 63 characters.
const NAME_LIMIT: usize = 64;

/// One mebibyte.
const MEBI: Quantity = Quantity::bytes(1 << 20);

/// The label for a resource. `nvidia.com/gpu` becomes `room.federlet.io/nvidia.com_gpu`: no domain has an underscore,
/// so no two resources meet.
pub fn room_label(resource: &str) -> String {
    format!("{ROOM_PREFIX}{}", shortened(&resource.replacen('/', "_", 1), NAME_LIMIT - 1))
}

/// In which steps a resource is compared: CPUs by the thousandth, bytes by the mebibyte, the rest one by one.
fn step(resource: &str) -> Quantity {
    match resource {
        "cpu" => Quantity::milli(1),
        "memory" | "ephemeral-storage" => MEBI,
        pages if pages.starts_with("hugepages-") => MEBI,
        _ => Quantity::units(1),
    }
}

/// The labels for what is free on the largest machine, rounded down.
pub fn room_labels(largest: &Resources) -> BTreeMap<String, i64> {
    let label = |(resource, amount): (&str, Quantity)| {
        (room_label(resource), amount.steps_down(step(resource)).max(0))
    };
    largest.iter().filter(|(resource, _)| *resource != PODS).map(label).collect()
}

/// What a pod asks of its node, as requirements of a node affinity. One that may push others aside asks for nothing: what
/// is free now does not say where it fits.
pub fn room_for(pod: &Value) -> Vec<Value> {
    if may_preempt(pod) { vec![] } else { fit_expressions(&requests(pod)) }
}

/// Whether a pod may push others aside.
pub fn may_preempt(pod: &Value) -> bool {
    let spec = pod.get("spec");
    let priority = spec.and_then(|spec| spec.get("priority")).and_then(Value::as_i64);
    let policy = spec.and_then(|spec| spec.get("preemptionPolicy")).and_then(Value::as_str);
    priority.is_some_and(|priority| priority > 0) && policy != Some("Never")
}

/// Requirements for a node affinity that hold only where one machine has room for all that is asked for.
pub fn fit_expressions(asked: &Resources) -> Vec<Value> {
    let expression = |(resource, amount): (&str, Quantity)| {
        // More than one less: at least as much.
        let less = amount.steps_up(step(resource)) - 1;
        json!({ "key": room_label(resource), "operator": "Gt", "values": [less.to_string()] })
    };
    asked
        .iter()
        .filter(|(resource, amount)| *resource != PODS && *amount > Quantity::ZERO)
        .map(expression)
        .collect()
}

/// An amount rounded up to six significant bits. What is free changes with every pod; the label then changes with every
/// thirtieth part of it, and small numbers, such as GPUs, stay exact. Up, because a pod that fits exactly must not be
/// refused for ever; one that misses by a thirtieth waits in the member.
pub fn coarse(amount: i64) -> i64 {
    let amount = amount.max(0);
    let dropped = (64 - amount.leading_zeros()).saturating_sub(6);
    let rest = (1_i64 << dropped) - 1;
    amount.saturating_add(rest) & !rest
}
