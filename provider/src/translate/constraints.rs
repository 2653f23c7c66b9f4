//! Where in the member the pod may run.
//!
//! What the user wrote about nodes was about the host's, and the host's scheduler has obeyed it: it does not go
//! along. What is about single machines (`kubernetes.io/hostname`) does, for there are machines in the member, and so does what
//! kind of machine it needs (`kubernetes.io/arch`, `kubernetes.io/os`).
//! Admission may have taken it off the pod and put it into an annotation; it comes back from there, with whatever
//! else the annotation says.

use serde_json::{Value, json};

use super::{Context, TranslateError, tolerations::tolerates_all};
use crate::{
    json::{Object, items, items_mut, list_mut, members, object_mut, push_new, text},
    marks,
    names::NamespaceMap,
};

const MACHINE: &str = "kubernetes.io/hostname";
/// What these say of the node they say of each machine behind it.
const KINDS: [&str; 2] = ["kubernetes.io/arch", "kubernetes.io/os"];
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const POD_AFFINITIES: [&str; 2] = ["podAffinity", "podAntiAffinity"];

pub(super) fn rewrite(spec: &mut Object, context: &mut Context<'_>) -> Result<(), TranslateError> {
    let kinds = kinds_of_machines(spec);
    spec.remove("nodeSelector");
    let mut affinity = match spec.remove("affinity") {
        Some(Value::Object(affinity)) => machines_only(affinity),
        _ => Object::new(),
    };
    let mut spread = match spec.remove("topologySpreadConstraints") {
        Some(Value::Array(spread)) => spread,
        _ => vec![],
    };
    spread.retain(is_about_machines);
    if let Some(kept) = marks::annotation(context.host.json, marks::CONSTRAINTS) {
        let kept: Object = serde_json::from_str(kept).map_err(TranslateError::Constraints)?;
        restore(kept, spec, &mut affinity, &mut spread);
    }
    let labels = context.host.metadata.get("labels").cloned().unwrap_or_default();
    let namespaces = &context.target.namespaces;
    for kind in POD_AFFINITIES {
        for list in [REQUIRED, PREFERRED] {
            for term in items_mut(affinity.get_mut(kind).and_then(|kind| kind.get_mut(list))) {
                let inner = if list == PREFERRED { term.get_mut("podAffinityTerm") } else { Some(term) };
                if let Some(term) = inner.and_then(Value::as_object_mut) {
                    map_namespaces(term, namespaces);
                    merge_label_keys(term, &labels);
                }
            }
        }
    }
    spread.iter_mut().filter_map(Value::as_object_mut).for_each(|c| merge_label_keys(c, &labels));
    if let Some(region) = &context.target.region {
        pin(&mut affinity, &[region.selector.expressions()]);
    }
    if tolerates_all(spec) {
        // It would be passed on by virtual nodes that the member has of its own, maybe in a circle.
        pin(
            &mut affinity,
            &[vec![json!({ "key": "type", "operator": "NotIn", "values": ["virtual-kubelet"] })]],
        );
    }
    kinds.iter().for_each(|alternatives| pin(&mut affinity, alternatives));
    if !affinity.is_empty() {
        spec.insert("affinity".into(), Value::Object(affinity));
    }
    if !spread.is_empty() {
        spec.insert("topologySpreadConstraints".into(), Value::Array(spread));
    }
    Ok(())
}

/// What a pod asks of the kind of its machine: lists of alternatives, of each of which one must hold.
///
/// The host's scheduler has seen to it, unless machines of another kind joined the member since.
fn kinds_of_machines(spec: &Object) -> Vec<Vec<Vec<Value>>> {
    let is_kind = |key: &str| KINDS.contains(&key);
    let selected: Vec<Value> = members(spec.get("nodeSelector"))
        .filter(|(key, _)| is_kind(key))
        .map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }))
        .collect();
    let required = spec.get("affinity").and_then(|affinity| affinity.get("nodeAffinity")?.get(REQUIRED));
    let of_term = |term: &Value| -> Vec<Value> {
        let asked = items(term.get("matchExpressions"));
        asked.filter(|asked| text(asked, "key").is_some_and(is_kind)).cloned().collect()
    };
    let terms = items(required.and_then(|required| required.get("nodeSelectorTerms"))).map(of_term).collect();
    // Where one alternative takes any machine, all of them together do.
    [vec![selected], terms]
        .into_iter()
        .filter(|all| !all.is_empty() && all.iter().all(|one| !one.is_empty()))
        .collect()
}

fn is_about_machines(term: &Value) -> bool {
    text(term, "topologyKey") == Some(MACHINE)
}

/// Of an affinity, the rules about pods on the same machine.
fn machines_only(mut affinity: Object) -> Object {
    affinity.remove("nodeAffinity");
    for kind in POD_AFFINITIES {
        let Some(rules) = affinity.get_mut(kind).and_then(Value::as_object_mut) else { continue };
        for (list, inner) in [(REQUIRED, ""), (PREFERRED, "/podAffinityTerm")] {
            if let Some(terms) = rules.get_mut(list).and_then(Value::as_array_mut) {
                terms.retain(|term| term.pointer(inner).is_some_and(is_about_machines));
            }
            if items(rules.get(list)).next().is_none() {
                rules.remove(list);
            }
        }
        if rules.is_empty() {
            affinity.remove(kind);
        }
    }
    affinity.retain(|_, rules| !rules.is_null());
    affinity
}

/// Puts back what the annotation kept: `nodeSelector`, `affinity`, `topologySpreadConstraints` as in a pod, and
/// `hostPorts`, a list of `container`, `containerPort`, `protocol`, `hostPort`.
fn restore(mut kept: Object, spec: &mut Object, affinity: &mut Object, spread: &mut Vec<Value>) {
    if let Some(selector) = kept.remove("nodeSelector").filter(Value::is_object) {
        spec.insert("nodeSelector".into(), selector);
    }
    if let Some(Value::Array(constraints)) = kept.remove("topologySpreadConstraints") {
        constraints.into_iter().for_each(|constraint| push_new(spread, constraint));
    }
    if let Some(Value::Object(kept)) = kept.remove("affinity") {
        for (kind, rules) in kept {
            let Value::Object(rules) = rules else { continue };
            let into = object_mut(affinity, &kind);
            for (list, terms) in rules {
                match terms {
                    Value::Array(terms) => {
                        let list = list_mut(into, &list);
                        terms.into_iter().for_each(|term| push_new(list, term));
                    }
                    other => drop(into.insert(list, other)),
                }
            }
        }
    }
    for kept in items(kept.get("hostPorts")) {
        let lists = ["containers", "initContainers"];
        let mut containers: Vec<&mut Value> = vec![];
        for (list, value) in spec.iter_mut() {
            if lists.contains(&list.as_str()) {
                containers.extend(items_mut(Some(value)));
            }
        }
        let container = containers.into_iter().find(|c| c.get("name") == kept.get("container"));
        let protocol = |port: &Value| text(port, "protocol").unwrap_or("TCP").to_owned();
        for port in items_mut(container.and_then(|container| container.get_mut("ports"))) {
            let Value::Object(_) = port else { continue };
            if port.get("containerPort") == kept.get("containerPort") && protocol(port) == protocol(kept) {
                port["hostPort"] = kept.get("hostPort").cloned().unwrap_or_default();
            }
        }
    }
}

/// Namespaces of other pods are where those pods are in the member. One that has no place there stays as it is and
/// matches nothing.
fn map_namespaces(term: &mut Object, map: &NamespaceMap) {
    for namespace in items_mut(term.get_mut("namespaces")) {
        if let Some(member) = namespace.as_str().and_then(|host| map.map(host).ok()) {
            *namespace = member.as_str().into();
        }
    }
    // A selector can name namespaces, too, by the label that every one of them has. Other labels are not brought along.
    let Some(selector) = term.get_mut("namespaceSelector") else { return };
    let mapped = |value: &mut Value| {
        if let Some(member) = value.as_str().and_then(|host| map.map(host).ok()) {
            *value = member.as_str().into();
        }
    };
    if let Some(value) = selector.get_mut("matchLabels").and_then(|labels| labels.get_mut(NAMESPACE_NAME)) {
        mapped(value);
    }
    for requirement in items_mut(selector.get_mut("matchExpressions")) {
        if text(requirement, "key") == Some(NAMESPACE_NAME) {
            items_mut(requirement.get_mut("values")).for_each(mapped);
        }
    }
}

/// Writes `matchLabelKeys` and `mismatchLabelKeys` out as requirements. The host's API server does it for some
/// kinds of rule and versions, and the member's would reject the result together with the keys.
fn merge_label_keys(term: &mut Object, labels: &Value) {
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let Some(Value::Array(keys)) = term.remove(field) else { continue };
        for key in keys.iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key).and_then(Value::as_str) {
                let requirement = json!({ "key": key, "operator": operator, "values": [value] });
                push_new(list_mut(object_mut(term, "labelSelector"), "matchExpressions"), requirement);
            }
        }
    }
}

/// Keeps the pod on nodes for which one of these holds, whatever else it asks for: terms are alternatives, so each one gets
/// the requirements. A nodeSelector would do as well, but KubeEdge deletes pods by theirs.
fn pin(affinity: &mut Object, alternatives: &[Vec<Value>]) {
    let required = object_mut(object_mut(affinity, "nodeAffinity"), REQUIRED);
    let terms = list_mut(required, "nodeSelectorTerms");
    if terms.is_empty() {
        terms.extend(alternatives.iter().map(|all| json!({ "matchExpressions": all })));
        return;
    }
    for term in std::mem::take(terms) {
        let asks = |field: &str| items(term.get(field)).next().is_some();
        // A term that asks for nothing matches no node. With something in it, it would match all of these.
        let Value::Object(whole) = &term else { continue };
        if !asks("matchExpressions") && !asks("matchFields") {
            terms.push(term);
            continue;
        }
        for all in alternatives {
            let mut narrower = whole.clone();
            let expressions = list_mut(&mut narrower, "matchExpressions");
            all.iter().for_each(|expression| push_new(expressions, expression.clone()));
            push_new(terms, Value::Object(narrower));
        }
    }
}
