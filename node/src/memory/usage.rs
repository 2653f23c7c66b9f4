use std::fmt::Write;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::containers::Run;
use crate::{
    contract::{MetricsKind, Pod},
    decide::seconds,
};

/// What the pods use. Containers that only pretend to run take no CPU; a pod takes the memory in which it is written down,
/// and each of its containers an equal part of it.
pub(super) struct Usage {
    pods: Vec<PodUsage>,
    now: Timestamp,
}

struct PodUsage {
    pod: Pod,
    began: Timestamp,
    containers: Vec<String>,
    bytes_each: usize,
}

impl PodUsage {
    fn bytes(&self) -> usize {
        self.bytes_each * self.containers.len()
    }
}

impl Usage {
    /// Of those that run.
    pub(super) fn of(pods: Vec<(Pod, Run)>, now: Timestamp) -> Self {
        let running = pods.into_iter().filter(|(_, run)| run.ended.is_none());
        let mut pods: Vec<PodUsage> = running
            .map(|(pod, run)| {
                let listed = pod.spec()["containers"].as_array().into_iter().flatten();
                let containers: Vec<String> =
                    listed.filter_map(|c| c["name"].as_str().map(str::to_owned)).collect();
                let bytes_each = pod.json().to_string().len() / containers.len().max(1);
                PodUsage { pod, began: run.began, containers, bytes_each }
            })
            .collect();
        pods.sort_by(|a, b| a.pod.key().cmp(b.pod.key()));
        Self { pods, now }
    }

    fn bytes(&self) -> usize {
        self.pods.iter().map(PodUsage::bytes).sum()
    }

    /// As `/stats/summary`.
    pub(super) fn summary(&self) -> Value {
        let now = seconds(self.now);
        let cpu = || json!({"time": now, "usageNanoCores": 0, "usageCoreNanoSeconds": 0});
        let memory = |bytes: usize| json!({"time": now, "usageBytes": bytes, "workingSetBytes": bytes});
        let pods = self.pods.iter().map(|usage| {
            let key = usage.pod.key();
            let containers = usage.containers.iter().map(|name| {
                json!({"name": name, "startTime": seconds(usage.began), "cpu": cpu(),
                       "memory": memory(usage.bytes_each)})
            });
            json!({
                "podRef": {"name": key.name(), "namespace": key.namespace(), "uid": usage.pod.uid()},
                "startTime": seconds(usage.began), "cpu": cpu(), "memory": memory(usage.bytes()),
                "containers": containers.collect::<Vec<_>>(),
            })
        });
        let pods: Vec<Value> = pods.collect();
        json!({"node": {"cpu": cpu(), "memory": memory(self.bytes())}, "pods": pods})
    }

    /// In the words of either endpoint.
    pub(super) fn metrics(&self, kind: MetricsKind) -> String {
        let mut text = Text::default();
        let (cpu, memory) = ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes");
        // cAdvisor's names for a container are the runtime's, and there is no runtime here.
        let more = match kind {
            MetricsKind::Resource => "",
            MetricsKind::Cadvisor => r#",id="",image="",name="""#,
        };
        let containers = || {
            self.pods.iter().flat_map(move |usage| {
                let key = usage.pod.key();
                usage.containers.iter().map(move |name| {
                    let (namespace, pod) = (key.namespace(), key.name());
                    let labels = format!(r#"container="{name}"{more},namespace="{namespace}",pod="{pod}""#);
                    (labels, usage)
                })
            })
        };
        text.family(cpu, "counter", containers().map(|(labels, _)| (labels, 0)));
        text.family(memory, "gauge", containers().map(|(labels, usage)| (labels, usage.bytes_each as i64)));
        let began = containers().map(|(labels, usage)| (labels, usage.began.as_second()));
        text.family("container_start_time_seconds", "gauge", began);
        if kind == MetricsKind::Resource {
            let pods = || {
                self.pods.iter().map(|usage| {
                    let key = usage.pod.key();
                    (format!(r#"namespace="{}",pod="{}""#, key.namespace(), key.name()), usage.bytes() as i64)
                })
            };
            text.family("pod_cpu_usage_seconds_total", "counter", pods().map(|(labels, _)| (labels, 0)));
            text.family("pod_memory_working_set_bytes", "gauge", pods());
            text.family("node_cpu_usage_seconds_total", "counter", [(String::new(), 0)].into_iter());
            let all = [(String::new(), self.bytes() as i64)];
            text.family("node_memory_working_set_bytes", "gauge", all.into_iter());
            text.family("resource_scrape_error", "gauge", [(String::new(), 0)].into_iter());
        }
        text.0
    }
}

/// Prometheus' text format. Names of pods and containers are DNS labels, so nothing in them needs escaping.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, samples: impl Iterator<Item = (String, i64)>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        for (labels, value) in samples {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Usage {
        let pod = |name: &str| {
            let containers = json!([{"name": "a"}, {"name": "b"}]);
            let metadata = json!({"namespace": "n", "name": name, "uid": name});
            Pod::try_from(json!({"metadata": metadata, "spec": {"containers": containers}})).unwrap()
        };
        let began = Run::begin(Timestamp::UNIX_EPOCH);
        let ended = Run { ended: Some((Timestamp::UNIX_EPOCH, 0)), ..began };
        Usage::of(vec![(pod("q"), began), (pod("p"), began), (pod("over"), ended)], Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_parts_make_up_the_whole() {
        let summary = usage().summary();
        let bytes = |value: &Value| value["memory"]["workingSetBytes"].as_u64().unwrap();
        let pods = summary["pods"].as_array().unwrap();
        assert_eq!(pods.iter().map(|pod| &pod["podRef"]["name"]).collect::<Vec<_>>(), ["p", "q"]);
        assert_eq!(pods.iter().map(bytes).sum::<u64>(), bytes(&summary["node"]));
        let containers = pods[0]["containers"].as_array().unwrap();
        assert_eq!(containers.iter().map(bytes).sum::<u64>(), bytes(&pods[0]));
        assert!(bytes(&pods[0]) > 50);
    }

    #[test]
    fn both_endpoints_name_the_same_containers() {
        let resource = usage().metrics(MetricsKind::Resource);
        assert!(
            resource.contains(r#"container_cpu_usage_seconds_total{container="a",namespace="n",pod="p"} 0"#)
        );
        assert!(resource.contains("\nnode_memory_working_set_bytes "), "{resource}");
        let cadvisor = usage().metrics(MetricsKind::Cadvisor);
        let line =
            r#"container_start_time_seconds{container="b",id="",image="",name="",namespace="n",pod="q"} 0"#;
        assert!(cadvisor.contains(line), "{cadvisor}");
        assert!(!cadvisor.contains("node_"));
    }
}
