//! What a template says about machines is about the machines of its cluster, as it is in Karmada.
//!
//! The host's scheduler knows only nodes that are clusters: two replicas that must not share a machine could not share a
//! cluster. So all of it is taken off the pod and kept in an annotation, from which translation puts it back in the
//! member.

use federlet_provider::marks::CONSTRAINTS;
use serde_json::{Map, Value, json};

/// Moves the constraints of a pod into the annotation.
pub(crate) fn move_away(pod: &mut Value) {
    let mut kept: Map<String, Value> = federlet_provider::marks::annotation(pod, CONSTRAINTS)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["nodeSelector", "affinity", "topologySpreadConstraints"] {
        if let Some(value) = spec.remove(field).filter(|value| !is_empty(value)) {
            kept.insert(field.into(), value);
        }
    }
    // On the network of its machine a pod must name its ports, or the API server refuses it.
    if spec.get("hostNetwork").and_then(Value::as_bool) != Some(true) {
        let ports = host_ports(spec);
        if !ports.is_empty() {
            kept.insert("hostPorts".into(), Value::Array(ports));
        }
    }
    if kept.is_empty() {
        return;
    }
    let annotations = &mut pod["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[CONSTRAINTS] = Value::Object(kept).to_string().into();
}

/// Makes the pod again what it was before its constraints were moved.
pub(crate) fn put_back(pod: &mut Value) {
    let kept = federlet_provider::marks::annotation(pod, CONSTRAINTS);
    let kept = kept.map_or(Ok(Map::new()), serde_json::from_str);
    let Ok(mut kept) = kept else { return };
    if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(CONSTRAINTS);
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // These say how the host's scheduler was steered, and nothing else.
    spec.remove("nodeSelector");
    spec.remove("affinity");
    for field in ["nodeSelector", "affinity", "topologySpreadConstraints"] {
        spec.extend(kept.remove(field).map(|value| (field.to_owned(), value)));
    }
    for port in kept.get("hostPorts").and_then(Value::as_array).into_iter().flatten() {
        for list in ["initContainers", "containers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            let container = containers.into_iter().find(|one| one.get("name") == port.get("container"));
            let ports = container.and_then(|one| one.get_mut("ports")).and_then(Value::as_array_mut);
            let same = |one: &&mut Value| {
                one.get("containerPort") == port.get("containerPort") && protocol(one) == protocol(port)
            };
            if let Some(one) = ports.into_iter().flatten().find(same) {
                one["hostPort"] = port.get("hostPort").cloned().unwrap_or_default();
            }
        }
    }
}

/// The protocol of a port, which need not say that it is the usual one.
fn protocol(port: &Value) -> &str {
    port.get("protocol").and_then(Value::as_str).unwrap_or("TCP")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn host_ports(spec: &mut Map<String, Value>) -> Vec<Value> {
    let mut kept = vec![];
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers {
            let name = container.get("name").cloned().unwrap_or_default();
            let ports = container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
            for port in ports.filter_map(Value::as_object_mut) {
                let Some(host) = port.remove("hostPort").filter(|port| port.as_u64() != Some(0)) else {
                    continue;
                };
                kept.push(json!({
                    "container": name, "containerPort": port.get("containerPort"),
                    "protocol": port.get("protocol").cloned().unwrap_or("TCP".into()), "hostPort": host,
                }));
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_back_all_that_was_moved() {
        let before = json!({
            "metadata": {"name": "dns"},
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname"}],
                "initContainers": [{"name": "first", "ports": [{"containerPort": 53, "hostPort": 5300}]}],
                "containers": [{"name": "dns", "ports": [
                    {"containerPort": 53, "hostPort": 53},
                    {"containerPort": 53, "protocol": "UDP", "hostPort": 1053},
                    {"containerPort": 80, "protocol": "TCP"},
                ]}],
            },
        });
        let mut pod = before.clone();
        move_away(&mut pod);
        assert!(pod.pointer("/spec/containers/0/ports/1/hostPort").is_none());
        put_back(&mut pod);
        assert_eq!(pod["spec"], before["spec"]);
    }
}
