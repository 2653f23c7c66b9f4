//! The Prometheus text format of `/metrics/resource` and `/metrics/cadvisor`.

use std::{collections::BTreeMap, fmt::Write};

use super::{Counters, Names};

/// What a machine says of itself, and that can be added up. Whatever else has no pod is about one machine alone.
const OF_MACHINES: [&str; 3] = [CPU, "node_memory_working_set_bytes", "node_swap_usage_bytes"];
/// And of that, what only ever rises.
const CPU: &str = "node_cpu_usage_seconds_total";

/// One metric with all that belongs to it, which the format wants in one place.
#[derive(Default)]
struct Family<'a> {
    /// What it means and what it is: said once.
    about: Vec<String>,
    /// Samples of pods.
    samples: Vec<String>,
    /// What each machine says, by its name, and the time of the latest one.
    machines: Vec<(&'a str, f64)>,
    time: i64,
}

/// The metrics of all machines, each with its name, as those of one node.
pub fn merge_metrics<'a>(
    texts: impl IntoIterator<Item = (&'a str, &'a str)>,
    names: &impl Names,
    counters: &mut Counters,
) -> String {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    for (machine, text) in texts {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            take(&mut families, machine, line, names);
        }
    }
    let mut merged = String::new();
    for (name, family) in families {
        let Family { about, samples, machines, time } = family;
        if samples.is_empty() && machines.is_empty() {
            continue;
        }
        for line in about.iter().chain(&samples) {
            merged.push_str(line);
            merged.push('\n');
        }
        if !machines.is_empty() {
            let sum = match name {
                CPU => counters.add(CPU, machines),
                _ => machines.iter().map(|(_, value)| value).sum(),
            };
            let time = if time > 0 { format!(" {time}") } else { String::new() };
            // Writing to a string cannot fail.
            let _ = writeln!(merged, "{name} {sum}{time}");
        }
    }
    merged
}

fn take<'a>(
    families: &mut BTreeMap<&'a str, Family<'a>>,
    machine: &'a str,
    line: &'a str,
    names: &impl Names,
) {
    if let Some(comment) = line.strip_prefix('#') {
        let mut words = comment.split_whitespace();
        if let (Some("HELP" | "TYPE"), Some(name)) = (words.next(), words.next()) {
            let about = &mut families.entry(name).or_default().about;
            if about.len() < 2 && !about.iter().any(|known| known == line) {
                about.push(line.to_owned());
            }
        }
        return;
    }
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let Some(labels) = rest.strip_prefix('{') else {
        if OF_MACHINES.contains(&name)
            && let Some((value, time)) = sample(rest)
        {
            let family = families.entry(name).or_default();
            family.machines.push((machine, value));
            family.time = family.time.max(time);
        }
        return;
    };
    let Some((labels, after)) = read_labels(labels) else { return };
    let label = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
    let (Some(namespace), Some(pod)) = (label("namespace"), label("pod")) else { return };
    let Some(host) = names(namespace, pod) else { return };
    let written: Vec<String> = labels
        .iter()
        .map(|(key, value)| match *key {
            "namespace" => format!("namespace=\"{}\"", host.namespace),
            "pod" => format!("pod=\"{}\"", host.name),
            _ => format!("{key}=\"{value}\""),
        })
        .collect();
    families.entry(name).or_default().samples.push(format!("{name}{{{}}}{after}", written.join(",")));
}

/// One line of metrics.
pub(crate) enum Sample<'a> {
    /// What a metric means, or what it is.
    About {
        /// The metric.
        name: &'a str,
        /// The whole line.
        line: &'a str,
    },
    /// A value of a metric with labels. They stand as they are, still escaped.
    Value {
        /// The metric.
        name: &'a str,
        /// Its labels.
        labels: Vec<(&'a str, &'a str)>,
        /// Its value.
        value: f64,
        /// When it was so, in milliseconds; zero if it does not say.
        time: i64,
    },
}

/// The lines of metrics that have labels, and what is said about them.
pub(crate) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().map(str::trim).filter_map(|line| {
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.split_whitespace();
            return match (words.next(), words.next()) {
                (Some("HELP" | "TYPE"), Some(name)) => Some(Sample::About { name, line }),
                _ => None,
            };
        }
        let (name, labels) = line.split_once('{')?;
        let (labels, rest) = read_labels(labels)?;
        let (value, time) = sample(rest)?;
        Some(Sample::Value { name, labels, value, time })
    })
}

/// A value and its time.
fn sample(rest: &str) -> Option<(f64, i64)> {
    let mut words = rest.split_whitespace();
    let value: f64 = words.next()?.parse().ok().filter(|value: &f64| value.is_finite())?;
    Some((value, words.next().and_then(|time| time.parse().ok()).unwrap_or(0)))
}

/// Labels as they stand, still escaped, and what comes after the closing brace.
fn read_labels(mut text: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    let mut labels = vec![];
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(after) = text.strip_prefix('}') {
            return Some((labels, after));
        }
        let (key, rest) = text.split_once("=\"")?;
        let mut escaped = false;
        let end = rest.char_indices().find_map(|(at, character)| {
            if escaped {
                escaped = false;
                return None;
            }
            escaped = character == '\\';
            (character == '"').then_some(at)
        })?;
        labels.push((key.trim(), &rest[..end]));
        text = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::{super::HostName, *};

    fn ours(namespace: &str, pod: &str) -> Option<HostName> {
        (namespace == "shop-x" && pod.starts_with("web")).then(|| HostName {
            namespace: "shop".into(),
            name: pod.into(),
            uid: "1".into(),
        })
    }

    #[test]
    fn machines_are_added_up_and_pods_get_the_hosts_names() {
        let one = "# HELP node_cpu_usage_seconds_total Cumulative cpu time\n# TYPE node_cpu_usage_seconds_total counter\n\
                   node_cpu_usage_seconds_total 10.5 1000\nscrape_error 0\n\
                   container_memory_working_set_bytes{container=\"c\",namespace=\"shop-x\",pod=\"web-1\"} 5 1000\n\
                   container_memory_working_set_bytes{container=\"c\",namespace=\"kube-system\",pod=\"dns\"} 7 1000\n";
        let two = "# HELP node_cpu_usage_seconds_total Cumulative cpu time\n# TYPE node_cpu_usage_seconds_total counter\n\
                   node_cpu_usage_seconds_total 2 2000\n\
                   container_memory_working_set_bytes{container=\"a,}\\\"b\",namespace=\"shop-x\",pod=\"web-2\"} 6 2000\n";
        let merged = merge_metrics([("one", one), ("two", two)], &ours, &mut Counters::default());
        assert_eq!(
            merged,
            "container_memory_working_set_bytes{container=\"c\",namespace=\"shop\",pod=\"web-1\"} 5 1000\n\
             container_memory_working_set_bytes{container=\"a,}\\\"b\",namespace=\"shop\",pod=\"web-2\"} 6 2000\n\
             # HELP node_cpu_usage_seconds_total Cumulative cpu time\n# TYPE node_cpu_usage_seconds_total counter\n\
             node_cpu_usage_seconds_total 12.5 2000\n"
        );
    }

    #[test]
    fn what_is_not_a_metric_is_left_out() {
        for bad in [
            "",
            "x",
            "x{",
            "x{a=\"b} 1",
            "x{namespace=\"shop-x\"} 1",
            "node_cpu_usage_seconds_total NaN",
            "# TYPE",
        ] {
            let merged = merge_metrics([("one", bad)], &ours, &mut Counters::default());
            assert_eq!(merged, "", "{bad}");
        }
    }

    #[test]
    fn a_kubelet_that_misses_a_turn_makes_no_processor_busy() {
        let said =
            |cpu: u64, memory: u64| format!("{CPU} {cpu} 1\nnode_memory_working_set_bytes {memory} 1\n");
        let mut counters = Counters::default();
        for (one, two, cpu, memory) in [
            (Some(said(9000, 5)), Some(said(10, 6)), 9010, 11),
            (None, Some(said(12, 6)), 9012, 6),
            (Some(said(9004, 5)), Some(said(14, 6)), 9018, 11),
        ] {
            let texts = [("one", &one), ("two", &two)];
            let texts = texts.iter().filter_map(|(machine, text)| Some((*machine, text.as_deref()?)));
            let merged = merge_metrics(texts, &ours, &mut counters);
            assert_eq!(merged, format!("{CPU} {cpu} 1\nnode_memory_working_set_bytes {memory} 1\n"));
        }
    }
}
