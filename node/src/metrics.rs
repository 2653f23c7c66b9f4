//! What the process tells Prometheus.

mod serve;

pub(crate) use serve::OPEN_METRICS;
pub use serve::serve;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use crate::contract::{NodeName, Phase};

/// Seconds from a millisecond to two minutes: a local create is at the one end, a member far away at the other.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// Every metric of the process. Cheap to share behind an `Arc`; there are no globals.
pub struct Metrics {
    registry: Registry,
    queue_depth: Family<OfNode, Gauge>,
    queue_wait: Seconds<OfNode>,
    operations: Seconds<OfOperation>,
    requests: Family<OfRequest, Counter>,
    pods: Family<OfPhase, Gauge>,
    streams: Family<OfStream, Gauge>,
    ready: Family<OfNode, Gauge>,
    ping_age: Family<OfNode, Gauge<f64, std::sync::atomic::AtomicU64>>,
    pings: Mutex<HashMap<NodeName, Instant>>,
    has_begun: AtomicBool,
    operations_of: Mutex<HashMap<NodeName, HashSet<OfOperation>>>,
    admissions: Seconds<OfAdmission>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOperation {
    node: String,
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequest {
    part: &'static str,
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPhase {
    node: String,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStream {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAdmission {
    webhook: &'static str,
    result: &'static str,
}

impl From<&NodeName> for OfNode {
    fn from(node: &NodeName) -> Self {
        Self { node: node.to_string() }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("federlet"),
            queue_depth: Family::default(),
            queue_wait: Family::new_with_constructor(seconds),
            operations: Family::new_with_constructor(seconds),
            requests: Family::default(),
            pods: Family::default(),
            streams: Family::default(),
            ready: Family::default(),
            ping_age: Family::default(),
            pings: Mutex::default(),
            has_begun: AtomicBool::default(),
            operations_of: Mutex::default(),
            admissions: Family::new_with_constructor(seconds),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", build);
        let depth = self.queue_depth.clone();
        registry.register("pod_queue_depth", "Pods that wait to be looked at", depth);
        let wait = self.queue_wait.clone();
        registry.register_with_unit(
            "pod_queue_wait",
            "How long pods waited to be looked at",
            Unit::Seconds,
            wait,
        );
        let operations = self.operations.clone();
        let help = "What was done with pods: create, update and delete at the provider, status and remove on the host";
        registry.register_with_unit("pod_operation", help, Unit::Seconds, operations);
        let requests = self.requests.clone();
        registry.register("api_requests", "Requests to API servers, by part, verb and answer", requests);
        registry.register("pods", "Pods bound to the node, by phase on the host", self.pods.clone());
        registry.register(
            "streams_open",
            "Logs, execs, attaches and port-forwards now open",
            self.streams.clone(),
        );
        registry.register("node_ready", "Whether the node reports Ready", self.ready.clone());
        let age = self.ping_age.clone();
        registry.register_with_unit(
            "ping_age",
            "How long ago the provider last answered",
            Unit::Seconds,
            age,
        );
        let admissions = self.admissions.clone();
        let help = "How long the host's API server waited for an answer about an object";
        registry.register_with_unit("admission", help, Unit::Seconds, admissions);
    }

    pub(crate) fn queue_depth(&self, node: &NodeName, depth: usize) {
        self.queue_depth.get_or_create(&node.into()).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    pub(crate) fn queue_wait(&self, node: &NodeName, wait: Duration) {
        self.queue_wait.get_or_create(&node.into()).observe(wait.as_secs_f64());
    }

    pub(crate) fn operation(
        &self,
        node: &NodeName,
        operation: &'static str,
        result: &'static str,
        took: Duration,
    ) {
        let labels = OfOperation { node: node.to_string(), operation, result };
        self.operations.get_or_create(&labels).observe(took.as_secs_f64());
        let mut known = self.operations_of.lock();
        let known = known.entry(node.clone()).or_default();
        if !known.contains(&labels) {
            known.insert(labels);
        }
    }

    pub(crate) fn request(&self, part: &'static str, verb: &'static str, code: &str) {
        self.requests.get_or_create(&OfRequest { part, verb, code: code.to_owned() }).inc();
    }

    pub(crate) fn pods(&self, node: &NodeName, phase: &'static str, change: i64) {
        self.pods.get_or_create(&OfPhase { node: node.to_string(), phase }).inc_by(change);
    }

    /// A webhook answered.
    pub fn admission(&self, webhook: &'static str, result: &'static str, took: Duration) {
        self.admissions.get_or_create(&OfAdmission { webhook, result }).observe(took.as_secs_f64());
    }

    /// Counts a stream for as long as the returned guard lives.
    pub(crate) fn stream(&self, kind: &'static str) -> OpenStream {
        let gauge = self.streams.get_or_create_owned(&OfStream { kind });
        gauge.inc();
        OpenStream(gauge)
    }

    pub(crate) fn ready(&self, node: &NodeName, ready: bool) {
        self.ready.get_or_create(&node.into()).set(ready.into());
    }

    pub(crate) fn pinged(&self, node: &NodeName) {
        self.pings.lock().insert(node.clone(), Instant::now());
    }

    /// A node that is served no more has nothing to tell.
    pub(crate) fn forget(&self, node: &NodeName) {
        let of_node = OfNode::from(node);
        self.queue_depth.remove(&of_node);
        self.queue_wait.remove(&of_node);
        self.ready.remove(&of_node);
        self.pings.lock().remove(node);
        self.ping_age.remove(&of_node);
        for phase in Phase::ALL {
            self.pods.remove(&OfPhase { node: node.to_string(), phase: phase.as_str() });
        }
        for operation in self.operations_of.lock().remove(node).unwrap_or_default() {
            self.operations.remove(&operation);
        }
    }

    /// From now on the process does its work: `/readyz` says so.
    pub fn begun(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// All of it in the text format that Prometheus reads.
    pub fn encode(&self) -> String {
        for (node, last) in self.pings.lock().iter() {
            self.ping_age.get_or_create(&node.into()).set(last.elapsed().as_secs_f64());
        }
        let mut text = String::new();
        // Writing to a string fails only if a metric cannot be written at all, which its type rules out.
        if let Err(error) = text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "cannot write metrics");
        }
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// An open stream, as long as it lives.
#[derive(Debug)]
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_written() {
        let (metrics, node) = (Metrics::default(), NodeName::new("member1").unwrap());
        metrics.operation(&node, "create", "ok", Duration::from_millis(3));
        metrics.request("pods", "patch", "200");
        metrics.pinged(&node);
        let open = metrics.stream("exec");
        assert!(metrics.encode().contains("federlet_streams_open{kind=\"exec\"} 1"));
        drop(open);
        let text = metrics.encode();
        for line in [
            "federlet_streams_open{kind=\"exec\"} 0",
            "federlet_api_requests_total{part=\"pods\",verb=\"patch\",code=\"200\"} 1",
            "federlet_pod_operation_seconds_count{node=\"member1\",operation=\"create\",result=\"ok\"} 1",
            "federlet_build_info{version=",
            "federlet_ping_age_seconds{node=\"member1\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    /// A dashboard or an alert about something that nobody counts would stay silent for ever.
    #[test]
    fn dashboards_and_alerts_name_what_is_counted() {
        let (metrics, node) = (Metrics::default(), NodeName::new("member1").unwrap());
        // What was never counted is not written.
        metrics.operation(&node, "create", "ok", Duration::ZERO);
        metrics.request("pods", "patch", "200");
        metrics.queue_depth(&node, 1);
        metrics.queue_wait(&node, Duration::ZERO);
        metrics.pods(&node, "Running", 1);
        metrics.ready(&node, true);
        metrics.pinged(&node);
        metrics.admission("pods", "allowed", Duration::ZERO);
        let _open = metrics.stream("exec");
        let text = metrics.encode();
        let kinds: Vec<(&str, &str)> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
        let known = |name: &str| {
            kinds.iter().any(|(base, kind)| {
                let rest = name.strip_prefix(base);
                match *kind {
                    "counter" => rest == Some("_total"),
                    "info" => rest == Some("_info"),
                    "histogram" => matches!(rest, Some("" | "_bucket" | "_count" | "_sum")),
                    _ => rest == Some(""),
                }
            })
        };
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        for file in ["charts/federlet/files/dashboard.json", "docs/operations.md"] {
            let said = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
            let mut found = 0;
            for part in said.split("federlet_").skip(1) {
                let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(part.len());
                let name = format!("federlet_{}", &part[..end]);
                assert!(known(&name), "{file} names {name}, which nobody counts");
                found += 1;
            }
            assert!(found > 3, "{file}");
        }
    }

    #[test]
    fn a_node_that_went_is_not_spoken_of() {
        let (metrics, node) = (Metrics::default(), NodeName::new("member1").unwrap());
        metrics.operation(&node, "create", "ok", Duration::from_millis(3));
        metrics.queue_depth(&node, 1);
        metrics.queue_wait(&node, Duration::ZERO);
        metrics.pods(&node, "Running", 1);
        metrics.ready(&node, true);
        metrics.pinged(&node);
        assert!(metrics.encode().contains("member1"));
        metrics.forget(&node);
        assert!(!metrics.encode().contains("member1"), "{}", metrics.encode());
    }
}
