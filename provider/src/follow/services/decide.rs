//! What a Service of the host is in the member, without asking anybody.

use serde_json::{Value, json};

use crate::{
    copy::{CopyError, CopyPlan, keep_theirs, metadata},
    json::{Object, items, items_mut, members, text},
    marks,
    names::MemberNamespace,
    target::{Anchor, Target},
};

/// Fields that belong to the host's network: its addresses, its families, its load balancers.
const HOSTS_FIELDS: [&str; 9] = [
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "externalIPs",
    "externalName",
    "loadBalancerIP",
    "loadBalancerClass",
    "healthCheckNodePort",
];

/// Fields that only a Service with node ports or a load balancer may have.
const OUTSIDE_FIELDS: [&str; 3] =
    ["externalTrafficPolicy", "allocateLoadBalancerNodePorts", "loadBalancerSourceRanges"];

/// Fields that the member's API server fills in where we say nothing.
const DEFAULTED: [&str; 10] = [
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "healthCheckNodePort",
    "allocateLoadBalancerNodePorts",
    "internalTrafficPolicy",
    "externalTrafficPolicy",
    "sessionAffinity",
    "type",
];

/// Fields that it keeps as they are: it chose them, and most of them cannot be changed.
const ALLOCATED: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

/// The labels by which a Service selects its pods; none if it stays on the host whatever it selects.
pub(super) fn selector(service: &Value) -> Option<Vec<(Box<str>, Box<str>)>> {
    let named = |field: &str| service.get("metadata").and_then(|metadata| text(metadata, field));
    let of_the_api_server = named("namespace") == Some("default") && named("name") == Some("kubernetes");
    let kept = marks::annotation(service, marks::FOLLOW) == Some("false");
    let external = kind(service) == "ExternalName";
    if of_the_api_server || kept || external {
        return None;
    }
    let pairs = members(service.pointer("/spec/selector"));
    let selector: Option<Vec<_>> =
        pairs.map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect();
    // Without a selector it is not about pods, or about pods that somebody else knows.
    selector.filter(|selector| !selector.is_empty())
}

/// Whether labels are selected.
pub(super) fn selects(selector: &[(Box<str>, Box<str>)], labels: &Value) -> bool {
    selector.iter().all(|(key, value)| labels.get(&**key).and_then(Value::as_str) == Some(value))
}

fn kind(service: &Value) -> &str {
    service.get("spec").and_then(|spec| text(spec, "type")).unwrap_or("ClusterIP")
}

fn is_headless(service: &Value) -> bool {
    service.get("spec").and_then(|spec| text(spec, "clusterIP")) == Some("None")
}

/// Whether other clusters can reach it: then it has ports on every node.
fn is_outside(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// The Service that stands for one of the host's in the member.
pub(super) fn desired(
    service: &Value,
    namespace: &MemberNamespace,
    target: &Target,
    anchor: &Anchor,
) -> Result<Value, CopyError> {
    let name = service.get("metadata").and_then(|metadata| text(metadata, "name")).unwrap_or_default();
    let mut spec: Object = members(service.get("spec"))
        .filter(|(field, _)| !HOSTS_FIELDS.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let wanted = match kind(service) {
        // One address for the world is enough, unless somebody says otherwise.
        "LoadBalancer" if marks::annotation(service, marks::SERVICE_TYPE) != Some("LoadBalancer") => {
            "ClusterIP"
        }
        other => other,
    };
    spec.insert("type".into(), wanted.into());
    if is_headless(service) {
        spec.insert("clusterIP".into(), "None".into());
    }
    for port in items_mut(spec.get_mut("ports")).filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
    let mut copy = json!({ "apiVersion": "v1", "kind": "Service", "spec": spec });
    if !is_outside(&copy)
        && let Some(spec) = copy["spec"].as_object_mut()
    {
        OUTSIDE_FIELDS.iter().for_each(|field| drop(spec.remove(*field)));
    }
    copy["metadata"] = metadata(service, name, namespace, target, anchor)?;
    Ok(copy)
}

/// Plans how what is in the member becomes the Service that should be.
pub(super) fn plan(desired: &Value, current: Option<&Value>, target: &Target) -> CopyPlan {
    let Some(current) = current else { return CopyPlan::Create };
    if !marks::is_ours(current, &target.host, &target.node) {
        return CopyPlan::Foreign;
    }
    // What a policy sent is the policy's to change.
    if marks::is_propagated(current) {
        return CopyPlan::Nothing;
    }
    // An address cannot be taken away from a Service, nor given to one without.
    if is_headless(desired) != is_headless(current) {
        let uid = current.get("metadata").and_then(|metadata| text(metadata, "uid")).unwrap_or_default();
        return CopyPlan::Recreate { uid: uid.to_owned() };
    }
    let mut replacement = desired.clone();
    keep_theirs(&mut replacement, current);
    keep_allocated(&mut replacement, current);
    if is_same(&replacement, current) { CopyPlan::Nothing } else { CopyPlan::Replace(replacement) }
}

/// Keeps the addresses and ports that the member chose.
fn keep_allocated(replacement: &mut Value, current: &Value) {
    for field in ALLOCATED {
        if let Some(value) = current.pointer(&format!("/spec/{field}")) {
            replacement["spec"][field] = value.clone();
        }
    }
    // A Service that is not reachable from outside any more must not hold on to its ports.
    if !is_outside(replacement) || !is_outside(current) {
        return;
    }
    let local = |service: &Value| {
        kind(service) == "LoadBalancer"
            && service.get("spec").and_then(|spec| text(spec, "externalTrafficPolicy")) == Some("Local")
    };
    if let Some(port) =
        current.pointer("/spec/healthCheckNodePort").filter(|_| local(replacement) && local(current))
    {
        replacement["spec"]["healthCheckNodePort"] = port.clone();
    }
    for port in items_mut(replacement.pointer_mut("/spec/ports")) {
        let there = items(current.pointer("/spec/ports")).find(|other| same_port(port, other));
        if let Some(node_port) = there.and_then(|there| there.get("nodePort")) {
            port["nodePort"] = node_port.clone();
        }
    }
}

fn same_port(a: &Value, b: &Value) -> bool {
    let protocol = |port: &Value| text(port, "protocol").unwrap_or("TCP").to_owned();
    a.get("port") == b.get("port") && protocol(a) == protocol(b)
}

/// Whether replacing would change anything.
fn is_same(replacement: &Value, current: &Value) -> bool {
    let metadata = ["labels", "annotations"].iter().all(|field| {
        let at = |object: &Value| object.pointer(&format!("/metadata/{field}")).cloned().unwrap_or_default();
        at(replacement) == at(current)
    });
    let spec = |object: &Value| object.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    let (wanted, there) = (spec(replacement), spec(current));
    let ports = {
        let list = |spec: &Object| items(spec.get("ports")).cloned().collect::<Vec<_>>();
        let (wanted, there) = (list(&wanted), list(&there));
        wanted.len() == there.len()
            && wanted.iter().zip(&there).all(|(wanted, there)| {
                fields_are_same(
                    wanted.as_object(),
                    there.as_object(),
                    &["nodePort", "protocol", "targetPort"],
                )
            })
    };
    let without_ports = |mut spec: Object| {
        spec.remove("ports");
        spec
    };
    let (wanted, there) = (without_ports(wanted), without_ports(there));
    metadata && ports && fields_are_same(Some(&wanted), Some(&there), &DEFAULTED)
}

/// Whether all that is wanted is there, and nothing else but what the API server fills in.
fn fields_are_same(wanted: Option<&Object>, there: Option<&Object>, defaulted: &[&str]) -> bool {
    let (Some(wanted), Some(there)) = (wanted, there) else { return wanted.is_none() && there.is_none() };
    wanted.iter().all(|(field, value)| there.get(field) == Some(value))
        && there.keys().all(|field| wanted.contains_key(field) || defaulted.contains(&field.as_str()))
}

#[cfg(test)]
mod tests;
