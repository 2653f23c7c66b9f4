//! The JSON of `/stats/summary`.

use serde_json::{Map, Value, json};

use super::{Counters, Names};
use crate::json::{items, text};

/// What of a machine's own statistics can be added up.
const OF_MACHINES: [&str; 4] = ["cpu", "memory", "swap", "fs"];

/// Of these, what only ever rises.
const CPU: &str = "usageCoreNanoSeconds";

/// The statistics of all machines, each with its name, as those of one node.
pub fn merge_summaries(
    node: &str,
    summaries: &[(&str, Value)],
    names: &impl Names,
    counters: &mut Counters,
) -> Value {
    let mut whole = Map::new();
    let mut pods = vec![];
    for (_, summary) in summaries {
        for part in OF_MACHINES {
            if let Some(amounts @ Value::Object(_)) = summary.get("node").and_then(|node| node.get(part)) {
                add(whole.entry(part).or_insert_with(|| json!({})), amounts);
            }
        }
        pods.extend(items(summary.get("pods")).filter_map(|pod| renamed(pod, names)));
    }
    if let Some(sum) = whole.get_mut("cpu").and_then(|cpu| cpu.get_mut(CPU)) {
        let said = summaries.iter().filter_map(|(machine, summary)| {
            Some((*machine, summary.pointer("/node/cpu")?.get(CPU)?.as_f64()?))
        });
        *sum = whole_number(counters.add(CPU, said)).into();
    }
    whole.insert("nodeName".into(), node.into());
    json!({ "node": whole, "pods": pods })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is no number becomes 0, what is too much the most"
)]
const fn whole_number(value: f64) -> u64 {
    value as u64
}

/// A pod under the name it has on the host. None if it has none.
fn renamed(pod: &Value, names: &impl Names) -> Option<Value> {
    let reference = pod.get("podRef")?;
    let host = names(text(reference, "namespace")?, text(reference, "name")?)?;
    let mut pod = pod.clone();
    pod["podRef"] = json!({ "name": host.name, "namespace": host.namespace, "uid": host.uid });
    Some(pod)
}

/// Adds numbers to numbers; of times the latest stays.
fn add(sum: &mut Value, more: &Value) {
    let (Value::Object(sum), Value::Object(more)) = (sum, more) else { return };
    // Averages of pressure (`psi`) mean nothing when added.
    for (field, value) in more.iter().filter(|(field, _)| *field != "psi") {
        let Some(before) = sum.get_mut(field) else {
            sum.insert(field.clone(), value.clone());
            continue;
        };
        match (&*before, value) {
            (Value::Number(a), Value::Number(b)) => {
                let (a, b) = (a.as_u64().unwrap_or(0), b.as_u64().unwrap_or(0));
                *before = a.saturating_add(b).into();
            }
            (Value::String(a), Value::String(b)) if b > a => *before = value.clone(),
            (Value::Object(_), Value::Object(_)) => add(before, value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::HostName, *};

    #[test]
    fn machines_are_added_up_and_strangers_left_out() {
        let summary = |cpu: u64, time: &str, pod: &str| {
            json!({
                "node": {"nodeName": "x", "network": {"rxBytes": 1},
                         "cpu": {"time": time, "usageNanoCores": cpu, "usageCoreNanoSeconds": cpu * 100}},
                "pods": [{"podRef": {"name": pod, "namespace": "shop", "uid": "m"}, "cpu": {"usageNanoCores": 1}},
                         {"podRef": {}}, 7],
            })
        };
        let ours = |_: &str, pod: &str| {
            (pod == "web").then(|| HostName { namespace: "shop".into(), name: "web".into(), uid: "h".into() })
        };
        let mut counters = Counters::default();
        let (one, two) = (summary(5, "2026-01-01", "web"), summary(6, "2026-01-02", "db"));
        let merged = merge_summaries("member1", &[("one", one), ("two", two)], &ours, &mut counters);
        assert_eq!(
            merged,
            json!({
                "node": {"nodeName": "member1", "cpu":
                         {"time": "2026-01-02", "usageNanoCores": 11, "usageCoreNanoSeconds": 1100}},
                "pods": [{"podRef": {"name": "web", "namespace": "shop", "uid": "h"}, "cpu": {"usageNanoCores": 1}}],
            })
        );
        // One is late.
        let merged =
            merge_summaries("member1", &[("one", summary(6, "2026-01-03", "web"))], &ours, &mut counters);
        assert_eq!(merged["node"]["cpu"]["usageCoreNanoSeconds"], 1200);
    }
}
