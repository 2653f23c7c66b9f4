use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value, json};

use super::version::HostVersion;
use crate::{
    contract::{NodeName, NodeReport},
    decide::seconds,
};

/// Set to `true` on a Node by whoever removes it for good: it is not registered again when it is gone.
pub const LEAVING_ANNOTATION: &str = "federlet.io/leaving";

/// Labels that say of a node what its machine is.
const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";

/// What every virtual node has, whatever its provider says.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTemplate {
    /// Its name.
    pub name: NodeName,
    /// `kubernetes.io/os`, when the provider names none.
    pub os: String,
    /// `kubernetes.io/arch`, when the provider names none.
    pub arch: String,
    /// Taints to register with, beside the provider's.
    pub taints: Vec<Taint>,
    /// Where the API server reaches the kubelet API.
    pub address: Option<IpAddr>,
    /// And on which port.
    pub kubelet_port: u16,
    /// The host's version.
    pub host: HostVersion,
}

/// Whether the node is Ready, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the provider answers.
    pub ready: bool,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// The metadata that we own, for server-side apply. Labels of others stay; one that we stop to apply goes.
pub fn metadata_document(template: &NodeTemplate, report: &NodeReport) -> Value {
    let info = report.status.node_info.as_ref();
    let or =
        |theirs: Option<&String>, ours: &str| theirs.filter(|t| !t.is_empty()).map_or(ours, |t| t).to_owned();
    let os = or(info.map(|i| &i.operating_system), &template.os);
    let arch = or(info.map(|i| &i.architecture), &template.arch);
    let name = template.name.as_str();
    let mut labels: BTreeMap<String, String> = [
        // By this the cluster autoscaler knows to leave the node alone.
        ("type", "virtual-kubelet"),
        ("kubernetes.io/role", "agent"),
        ("kubernetes.io/hostname", name),
        (OS, &os),
        (ARCH, &arch),
        // A cloud's load balancer must not send traffic to a machine that does not exist.
        ("node.kubernetes.io/exclude-from-external-load-balancers", "true"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect();
    labels.retain(|label, _| !report.without.contains(label));
    labels.extend(report.labels.clone());
    let mut metadata = json!({"name": name, "labels": labels});
    if !report.annotations.is_empty() {
        metadata["annotations"] = json!(report.annotations);
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
}

/// Labels of Kubernetes' own that a node may set on itself.
const OWN_LABELS: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Takes away the labels that NodeRestriction does not let a node set on itself, and says which.
pub(super) fn leave_out_labels_of_others(metadata: &mut Value) -> Vec<String> {
    let Some(labels) = metadata.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) else {
        return vec![];
    };
    let not_own = |label: &str| {
        let domain = label.split_once('/').map_or("", |(domain, _)| domain);
        let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
        (within("kubernetes.io") || within("k8s.io"))
            && !(within("kubelet.kubernetes.io")
                || within("node.kubernetes.io")
                || OWN_LABELS.contains(&label))
    };
    let left_out: Vec<String> = labels.keys().filter(|label| not_own(label)).cloned().collect();
    labels.retain(|label, _| !left_out.contains(label));
    left_out
}

/// The status that we own, for server-side apply. Conditions of others stay.
///
/// `known` are the conditions that the host has, for the time since when each is as it is.
pub fn status_document(
    template: &NodeTemplate,
    report: &NodeReport,
    readiness: &Readiness,
    known: &[Value],
    now: Timestamp,
) -> Value {
    let mut status = match serde_json::to_value(&report.status) {
        Ok(Value::Object(status)) => status,
        _ => Map::new(),
    };
    status.insert("conditions".into(), conditions(&status, readiness, known, now));
    status.insert("addresses".into(), addresses(&status, template));
    status.insert("daemonEndpoints".into(), json!({"kubeletEndpoint": {"Port": template.kubelet_port}}));
    status.insert("nodeInfo".into(), node_info(&status, template, &report.without));
    match status.get_mut("declaredFeatures").and_then(Value::as_array_mut) {
        // The API server demands a sorted list without repeats.
        Some(features) if template.host.knows_declared_features() => {
            features.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            features.dedup();
        }
        _ => drop(status.remove("declaredFeatures")),
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": template.name.as_str()}, "status": status})
}

/// Whether the node is Ready and nothing else, to be merged into what the host has.
pub(super) fn readiness_document(readiness: &Readiness, known: &[Value], now: Timestamp) -> Value {
    let mut conditions = [ready_condition(readiness)];
    date(&mut conditions, known, now);
    json!({"status": {"conditions": conditions}})
}

/// What a node that complains of nothing says.
const CONTENT: [(&str, &str, &str); 4] = [
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "RouteCreated", "the provider takes care of its network"),
];

fn conditions(status: &Map<String, Value>, readiness: &Readiness, known: &[Value], now: Timestamp) -> Value {
    let reported = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    // Whether it is Ready the pings decide; a provider that cannot be reached would still say that it is.
    let mut all: Vec<Value> =
        reported.filter(|c| c["type"] != "Ready" && c["type"].is_string()).cloned().collect();
    for (kind, reason, message) in CONTENT {
        if !all.iter().any(|c| c["type"] == kind) {
            all.push(json!({"type": kind, "status": "False", "reason": reason, "message": message}));
        }
    }
    all.push(ready_condition(readiness));
    date(&mut all, known, now);
    all.into()
}

fn ready_condition(readiness: &Readiness) -> Value {
    let Readiness { ready, reason, message, since } = readiness;
    let status = if *ready { "True" } else { "False" };
    json!({"type": "Ready", "status": status, "reason": reason, "message": message,
           "lastTransitionTime": seconds(*since)})
}

/// Says of each condition since when it holds and that it holds now.
fn date(all: &mut [Value], known: &[Value], now: Timestamp) {
    for condition in all {
        let before =
            known.iter().find(|c| c["type"] == condition["type"] && c["status"] == condition["status"]);
        let since = before.map(|c| c["lastTransitionTime"].clone()).filter(|t| !t.is_null());
        if let Some(since) = since {
            condition["lastTransitionTime"] = since;
        } else if condition.get("lastTransitionTime").is_none_or(Value::is_null) {
            condition["lastTransitionTime"] = seconds(now).into();
        }
        condition["lastHeartbeatTime"] = seconds(now).into();
    }
}

fn addresses(status: &Map<String, Value>, template: &NodeTemplate) -> Value {
    let reported = status.get("addresses").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all: Vec<Value> = match template.address {
        // The kubelet API is ours, so the address is ours, whatever machines stand behind the node.
        Some(address) => vec![json!({"type": "InternalIP", "address": address.to_string()})],
        None => reported.clone(),
    };
    for address in reported {
        // Server-side apply keeps one address of a type.
        if !all.iter().any(|a| a["type"] == address["type"]) {
            all.push(address);
        }
    }
    all.into()
}

fn node_info(status: &Map<String, Value>, template: &NodeTemplate, without: &BTreeSet<String>) -> Value {
    let ours =
        |label: &str, value: &str| if without.contains(label) { String::new() } else { value.to_owned() };
    let version = template.host.kubelet_version();
    let runtime = format!("federlet://{}", env!("CARGO_PKG_VERSION"));
    let mut info = json!({
        "architecture": ours(ARCH, &template.arch), "operatingSystem": ours(OS, &template.os), "kubeletVersion": version,
        "containerRuntimeVersion": runtime, "kernelVersion": "", "kubeProxyVersion": "", "osImage": "",
        "bootID": "", "machineID": "", "systemUUID": "",
    });
    if let (Some(info), Some(reported)) =
        (info.as_object_mut(), status.get("nodeInfo").and_then(Value::as_object))
    {
        info.extend(
            reported.iter().filter(|(_, v)| *v != "" && !v.is_null()).map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    info
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};

    use super::*;

    fn template(host: HostVersion) -> NodeTemplate {
        NodeTemplate {
            name: NodeName::new("member1").unwrap(),
            os: "linux".into(),
            arch: "amd64".into(),
            taints: vec![],
            address: Some([10, 0, 0, 1].into()),
            kubelet_port: 10250,
            host,
        }
    }

    fn ready() -> Readiness {
        Readiness {
            ready: true,
            reason: "KubeletReady".into(),
            message: "m".into(),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    fn old() -> HostVersion {
        HostVersion::new("v1.35.4", "35")
    }

    fn condition<'a>(document: &'a Value, kind: &str) -> &'a Value {
        document["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap()
    }

    #[test]
    fn every_node_has_its_labels_and_the_provider_may_add_to_them() {
        let mut report = NodeReport::default();
        report.labels.insert("topology.kubernetes.io/region".into(), "beijing".into());
        let labels = metadata_document(&template(old()), &report)["metadata"]["labels"].clone();
        assert_eq!(labels["type"], "virtual-kubelet");
        assert_eq!(labels["kubernetes.io/hostname"], "member1");
        assert_eq!(labels["node.kubernetes.io/exclude-from-external-load-balancers"], "true");
        assert_eq!(labels["topology.kubernetes.io/region"], "beijing");
    }

    #[test]
    fn what_is_not_true_of_all_machines_is_not_said_of_the_node() {
        for (without, arch) in [(None, Some("amd64")), (Some(ARCH), None)] {
            let report = NodeReport {
                without: without.map(str::to_owned).into_iter().collect(),
                ..NodeReport::default()
            };
            let labels = metadata_document(&template(old()), &report)["metadata"]["labels"].clone();
            assert_eq!((labels.get(ARCH).and_then(Value::as_str), &labels[OS]), (arch, &json!("linux")));
            let status = status_document(&template(old()), &report, &ready(), &[], Timestamp::UNIX_EPOCH);
            let info = &status["status"]["nodeInfo"];
            assert_eq!(
                (info["architecture"].as_str(), &info["operatingSystem"]),
                (arch.or(Some("")), &json!("linux")),
                "the API server demands the field"
            );
        }
    }

    #[test]
    fn a_node_may_not_call_itself_everything() {
        let mut report = NodeReport::default();
        for label in
            ["node-role.kubernetes.io/edge", "team", "example.com/gpu", "node.kubernetes.io/instance-type"]
        {
            report.labels.insert(label.into(), "x".into());
        }
        let mut metadata = metadata_document(&template(old()), &report);
        let left_out = leave_out_labels_of_others(&mut metadata);
        assert_eq!(left_out, ["kubernetes.io/role", "node-role.kubernetes.io/edge"]);
        let labels = metadata["metadata"]["labels"].as_object().unwrap();
        assert!(
            ["team", "example.com/gpu", "node.kubernetes.io/instance-type"]
                .iter()
                .all(|l| labels.contains_key(*l))
        );
    }

    #[test]
    fn since_when_a_condition_holds_is_kept() {
        let known = [
            json!({"type": "MemoryPressure", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}),
            json!({"type": "DiskPressure", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}),
        ];
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let document = status_document(&template(old()), &NodeReport::default(), &ready(), &known, now);
        assert_eq!(condition(&document, "MemoryPressure")["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(condition(&document, "DiskPressure")["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(condition(&document, "Ready")["lastHeartbeatTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn the_provider_can_complain_but_not_claim_to_be_ready() {
        let says = |type_: &str, status: &str| NodeCondition {
            type_: type_.into(),
            status: status.into(),
            ..NodeCondition::default()
        };
        let conditions = Some(vec![says("Ready", "True"), says("DiskPressure", "True"), says("Own", "True")]);
        let report = NodeReport {
            status: NodeStatus { conditions, ..NodeStatus::default() },
            ..NodeReport::default()
        };
        let down = Readiness { ready: false, ..ready() };
        let document = status_document(&template(old()), &report, &down, &[], Timestamp::UNIX_EPOCH);
        assert_eq!(condition(&document, "Ready")["status"], "False");
        assert_eq!(condition(&document, "DiskPressure")["status"], "True");
        assert_eq!(condition(&document, "Own")["status"], "True");
        assert_eq!(document["status"]["conditions"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn features_are_declared_where_they_are_known() {
        let features = Some(vec!["Zeta".to_owned(), "Alpha".into(), "Zeta".into()]);
        let status = NodeStatus { declared_features: features, ..NodeStatus::default() };
        let report = NodeReport { status, ..NodeReport::default() };
        let document = |host| status_document(&template(host), &report, &ready(), &[], Timestamp::UNIX_EPOCH);
        assert_eq!(document(old())["status"].get("declaredFeatures"), None);
        let new = document(HostVersion::new("v1.36.3", "36"));
        assert_eq!(new["status"]["declaredFeatures"], json!(["Alpha", "Zeta"]));
    }
}
