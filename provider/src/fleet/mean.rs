//! The usage of a pod: the mean of what its copies use, so that who divides by the number of pods is right.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use crate::{
    json::{items, text},
    usage::{Sample, samples},
};

/// A pod, as far as usage needs to name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Parent {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// The pod that a pod of the host is a copy of, by namespace and name.
pub(super) type Parents<'a> = &'a dyn Fn(&str, &str) -> Option<Parent>;

/// Names one series of a pod: the metric and its other labels.
type Series = (Parent, String, Vec<(String, String)>);

/// What is counted up, summed over time.
///
/// The mean of counters would jump whenever a copy comes or goes, as if it had been used at once. So each counter grows
/// by the mean of what the copies grew that were there before.
#[derive(Debug, Default)]
pub(super) struct Counters(HashMap<Series, Counter>);

#[derive(Clone, Debug, Default)]
struct Counter {
    value: f64,
    last: BTreeMap<String, f64>,
}

impl Counters {
    fn grow(&mut self, series: &Series, now: &BTreeMap<String, f64>) -> f64 {
        let Some(counter) = self.0.get_mut(series) else {
            let value = mean(now.values().copied());
            self.0.insert(series.clone(), Counter { value, last: now.clone() });
            return value;
        };
        let grown = now.iter().filter_map(|(cluster, value)| Some(value - counter.last.get(cluster)?));
        counter.value += mean(grown.filter(|grown| *grown >= 0.0));
        counter.last.clone_from(now);
        counter.value
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// The metrics of pods from those of their copies, by cluster.
pub(super) fn mean_metrics(
    texts: &BTreeMap<String, String>,
    parents: Parents<'_>,
    counters: &mut Counters,
) -> String {
    let mut families: BTreeMap<String, (Vec<String>, BTreeMap<Series, Found>)> = BTreeMap::new();
    for (cluster, text) in texts {
        for sample in samples(text) {
            match sample {
                Sample::About { name, line } => {
                    let about = &mut families.entry(name.to_owned()).or_default().0;
                    if about.len() < 2 && !about.iter().any(|known| known == line) {
                        about.push(line.to_owned());
                    }
                }
                Sample::Value { name, labels, value, time } => {
                    let label = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
                    let (Some(namespace), Some(pod)) = (label("namespace"), label("pod")) else { continue };
                    let Some(parent) = parents(namespace, pod) else { continue };
                    let others = labels.iter().filter(|(key, _)| !["namespace", "pod"].contains(key));
                    let others =
                        others.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
                    let family = &mut families.entry(name.to_owned()).or_default().1;
                    let found = family.entry((parent, name.to_owned(), others)).or_default();
                    found.values.insert(cluster.clone(), value);
                    found.time = found.time.max(time);
                }
            }
        }
    }
    let known: std::collections::HashSet<Series> =
        families.values().flat_map(|(_, family)| family.keys().cloned()).collect();
    counters.0.retain(|series, _| known.contains(series));
    let mut written = String::new();
    for (name, (about, family)) in families.into_iter().filter(|(_, (_, family))| !family.is_empty()) {
        about.iter().for_each(|line| written += &format!("{line}\n"));
        for (series, found) in family {
            let value = if name.ends_with("_total") {
                counters.grow(&series, &found.values)
            } else if name.ends_with("_start_time_seconds") {
                found.values.values().copied().fold(f64::INFINITY, f64::min)
            } else {
                mean(found.values.values().copied())
            };
            let (parent, _, others) = &series;
            let mut labels: Vec<String> =
                others.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
            labels.push(format!("namespace=\"{}\"", parent.namespace));
            labels.push(format!("pod=\"{}\"", parent.name));
            let time = if found.time > 0 { format!(" {}", found.time) } else { String::new() };
            written += &format!("{name}{{{}}} {value}{time}\n", labels.join(","));
        }
    }
    written
}

#[derive(Debug, Default)]
struct Found {
    values: BTreeMap<String, f64>,
    time: i64,
}

/// The summary of the node from those of the nodes of clusters.
pub(super) fn mean_summary(node: &str, summaries: &[Value], parents: Parents<'_>) -> Value {
    let mut pods: BTreeMap<Parent, Vec<&Value>> = BTreeMap::new();
    for pod in summaries.iter().flat_map(|summary| items(summary.get("pods"))) {
        let reference = &pod["podRef"];
        let named = text(reference, "namespace").zip(text(reference, "name"));
        if let Some(parent) = named.and_then(|(namespace, name)| parents(namespace, name)) {
            pods.entry(parent).or_default().push(pod);
        }
    }
    let pods: Vec<Value> = pods
        .into_iter()
        .map(|(parent, copies)| {
            let mut pod = mean_of(&copies);
            pod["podRef"] = json!({ "name": parent.name, "namespace": parent.namespace, "uid": parent.uid });
            pod
        })
        .collect();
    json!({ "node": { "nodeName": node }, "pods": pods })
}

/// Numbers are the mean, times the latest; lists are lists of things with a name.
fn mean_of(values: &[&Value]) -> Value {
    let numbers: Vec<u64> = values.iter().filter_map(|value| value.as_u64()).collect();
    if !numbers.is_empty() {
        let sum: u128 = numbers.iter().map(|number| u128::from(*number)).sum();
        return u64::try_from(sum / numbers.len() as u128).unwrap_or(u64::MAX).into();
    }
    if values.iter().any(|value| value.is_object()) {
        let mut fields: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
        for (key, value) in values.iter().filter_map(|value| value.as_object()).flatten() {
            fields.entry(key).or_default().push(value);
        }
        let merged: Map<String, Value> =
            fields.into_iter().map(|(key, values)| (key.clone(), mean_of(&values))).collect();
        return Value::Object(merged);
    }
    if values.iter().any(|value| value.is_array()) {
        let mut named: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for item in values.iter().flat_map(|value| items(Some(value))) {
            named.entry(text(item, "name").unwrap_or_default()).or_default().push(item);
        }
        return named.into_values().map(|items| mean_of(&items)).collect();
    }
    let latest = values.iter().filter_map(|value| value.as_str()).max();
    latest.map_or_else(|| values.first().map(|value| (*value).clone()).unwrap_or_default(), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parents(namespace: &str, pod: &str) -> Option<Parent> {
        let name = pod.strip_suffix("-a").or_else(|| pod.strip_suffix("-b"))?;
        Some(Parent { namespace: namespace.into(), name: name.into(), uid: "p1".into() })
    }

    fn said(cluster: &str, cpu: f64, memory: u64) -> (String, String) {
        let labels = format!("container=\"app\",namespace=\"shop\",pod=\"web-{cluster}\"");
        let text = format!(
            "# TYPE container_cpu_usage_seconds_total counter\ncontainer_cpu_usage_seconds_total{{{labels}}} {cpu} 1000\n\
             container_memory_working_set_bytes{{{labels}}} {memory} 1000\nnode_cpu_usage_seconds_total 7 1000\n\
             container_memory_working_set_bytes{{container=\"x\",namespace=\"shop\",pod=\"other\"}} 9 1000\n"
        );
        (cluster.to_owned(), text)
    }

    fn cpu(text: &str) -> f64 {
        let line = text.lines().find(|line| line.starts_with("container_cpu")).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_pod_uses_the_mean_of_its_copies() {
        let mut counters = Counters::default();
        let text =
            mean_metrics(&[said("a", 10.0, 100), said("b", 30.0, 300)].into(), &parents, &mut counters);
        assert_eq!(
            text,
            "# TYPE container_cpu_usage_seconds_total counter\n\
             container_cpu_usage_seconds_total{container=\"app\",namespace=\"shop\",pod=\"web\"} 20 1000\n\
             container_memory_working_set_bytes{container=\"app\",namespace=\"shop\",pod=\"web\"} 200 1000\n"
        );
    }

    #[test]
    fn a_counter_does_not_jump_when_a_copy_comes_or_goes() {
        let mut counters = Counters::default();
        let mut at = |said: &[(String, String)]| {
            cpu(&mean_metrics(&said.iter().cloned().collect(), &parents, &mut counters))
        };
        assert_eq!(at(&[said("a", 10.0, 1), said("b", 30.0, 1)]), 20.0);
        assert_eq!(at(&[said("a", 12.0, 1)]), 22.0, "what is left grew by two");
        assert_eq!(at(&[said("a", 14.0, 1), said("b", 90.0, 1)]), 24.0, "what comes back did not grow yet");
        assert_eq!(at(&[said("a", 16.0, 1), said("b", 94.0, 1)]), 27.0);
        assert_eq!(at(&[said("a", 0.0, 1), said("b", 96.0, 1)]), 29.0, "a restart takes nothing back");
    }

    #[test]
    fn a_summary_has_the_mean_too() {
        let summary = |pod: &str, cores: u64, time: &str| {
            json!({"pods": [{"podRef": {"namespace": "shop", "name": pod}, "cpu": {"usageNanoCores": cores, "time": time},
                "containers": [{"name": "app", "memory": {"workingSetBytes": cores}}]}]})
        };
        let merged = mean_summary(
            "fleet",
            &[
                summary("web-a", 10, "2026-01-01"),
                summary("web-b", 30, "2026-01-02"),
                summary("x", 5, "2026-01-03"),
            ],
            &parents,
        );
        assert_eq!(
            merged["pods"],
            json!([{"podRef": {"namespace": "shop", "name": "web", "uid": "p1"},
                "cpu": {"usageNanoCores": 20, "time": "2026-01-02"},
                "containers": [{"name": "app", "memory": {"workingSetBytes": 20}}]}])
        );
    }
}
