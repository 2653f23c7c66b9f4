//! Policies are checked before they are stored, with the messages that Karmada's users know.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::review::{Answer, Request};
use crate::{
    api::{OverrideSpec, PropagationSpec},
    claim::Claim,
    effect::{overrides_without_effect, without_effect},
    validate::{self, Violation},
};

/// Gives a new propagation policy the id that its claims carry.
pub(super) fn identify(request: &Request) -> Answer {
    let label =
        if request.kind.kind == "PropagationPolicy" { Claim::NAMESPACED_ID } else { Claim::CLUSTER_ID };
    let has = request.object.pointer("/metadata/labels").is_some_and(|labels| labels.get(label).is_some());
    if request.operation != "CREATE" || has || !request.object["metadata"].is_object() {
        return Answer::Yes;
    }
    let mut object = request.object.clone();
    // A question has an id of its own, which is as random as one that we could make.
    object["metadata"]["labels"][label] = request.uid.clone().into();
    Answer::As(Box::new(object))
}

/// Says what is wrong with a policy.
pub(super) fn check(request: &Request) -> Answer {
    let going = request.object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if going {
        return Answer::Yes;
    }
    let namespace = Some(request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let found = match request.kind.kind.as_str() {
        "PropagationPolicy" | "ClusterPropagationPolicy" => propagation(request, namespace),
        "OverridePolicy" | "ClusterOverridePolicy" => overrides(request, namespace),
        _ => Ok(vec![]),
    };
    match found {
        Ok(found) if found.is_empty() => noting(request),
        Ok(found) => Answer::No(found.iter().map(Violation::to_string).collect::<Vec<_>>().join("; ")),
        Err(error) => Answer::No(format!("spec: {error}")),
    }
}

/// What has no effect is taken, and said.
fn noting(request: &Request) -> Answer {
    let notes = match request.kind.kind.as_str() {
        "PropagationPolicy" | "ClusterPropagationPolicy" => {
            read(&request.object).map(|spec| without_effect(&spec)).unwrap_or_default()
        }
        "OverridePolicy" | "ClusterOverridePolicy" => {
            read(&request.object).map(|spec| overrides_without_effect(&spec)).unwrap_or_default()
        }
        _ => vec![],
    };
    if notes.is_empty() { Answer::Yes } else { Answer::Noting(notes) }
}

fn propagation(request: &Request, namespace: Option<&str>) -> Result<Vec<Violation>, serde_json::Error> {
    let mut spec: PropagationSpec = read(&request.object)?;
    validate::default_propagation(namespace, &mut spec);
    let mut found = validate::propagation(namespace, &spec);
    if request.operation == "UPDATE" {
        // One that could not be read has nothing that must stay.
        if let Ok(old) = read(&request.old_object) {
            found.extend(validate::propagation_update(&old, &spec));
        }
        for label in Claim::LABELS {
            let of =
                |object: &Value| Some(object.pointer("/metadata/labels")?.get(label)?.as_str()?.to_owned());
            let (old, new) = (of(&request.old_object), of(&request.object));
            // One that was made while nobody gave ids may get one.
            if old.is_some() {
                found.extend(validate::permanent_id_update(label, old.as_deref(), new.as_deref()));
            }
        }
    }
    Ok(found)
}

fn overrides(request: &Request, namespace: Option<&str>) -> Result<Vec<Violation>, serde_json::Error> {
    let mut spec: OverrideSpec = read(&request.object)?;
    validate::default_namespaces(namespace, &mut spec.resource_selectors);
    Ok(validate::overrides(namespace, &spec))
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(object.get("spec").cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::webhook::review::Kind;

    fn request(kind: &str, operation: &str, object: Value, old: Value) -> Request {
        Request {
            uid: "id".into(),
            kind: Kind { kind: kind.into() },
            namespace: if kind.starts_with("Cluster") { String::new() } else { "shop".into() },
            operation: operation.into(),
            object,
            old_object: old,
        }
    }

    fn policy(spec: Value) -> Value {
        let mut spec = spec;
        spec["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    #[test]
    fn karmadas_messages_come_back() {
        let no = |answer: Answer| match answer {
            Answer::No(why) => why,
            other => panic!("{other:?}"),
        };
        let both = policy(
            json!({"placement": {"clusterAffinity": {}, "clusterAffinities": [{"affinityName": "a"}]}}),
        );
        let why = no(check(&request("PropagationPolicy", "CREATE", both, Value::Null)));
        assert!(why.contains("clusterAffinities cannot co-exist with clusterAffinity"), "{why}");
        let mut elsewhere = policy(json!({}));
        elsewhere["spec"]["resourceSelectors"][0]["namespace"] = "other".into();
        let why = no(check(&request("PropagationPolicy", "CREATE", elsewhere.clone(), Value::Null)));
        assert!(why.contains("namespace of resource selector must be the same"), "{why}");
        assert_eq!(
            check(&request("ClusterPropagationPolicy", "CREATE", elsewhere, Value::Null)),
            Answer::Yes
        );
        let (old, new) = (policy(json!({"schedulerName": "a"})), policy(json!({"schedulerName": "b"})));
        let why = no(check(&request("PropagationPolicy", "UPDATE", new, old)));
        assert!(why.contains("the schedulerName should not be updated"), "{why}");
        let why = no(check(&request(
            "OverridePolicy",
            "CREATE",
            json!({"spec": {"overrideRules": 1}}),
            Value::Null,
        )));
        assert!(why.starts_with("spec: "), "{why}");
    }

    #[test]
    fn what_has_no_effect_is_taken_and_said() {
        let Answer::Noting(notes) = check(&request(
            "ClusterPropagationPolicy",
            "CREATE",
            policy(json!({"association": true})),
            Value::Null,
        )) else {
            panic!("nothing was said");
        };
        assert_eq!(notes, ["spec.association has no effect: use propagateDeps"]);
    }

    #[test]
    fn an_id_is_given_once_and_stays() {
        let Answer::As(with) =
            identify(&request("PropagationPolicy", "CREATE", policy(json!({})), Value::Null))
        else {
            panic!("no id");
        };
        assert_eq!(with["metadata"]["labels"][Claim::NAMESPACED_ID], "id");
        assert_eq!(
            identify(&request("PropagationPolicy", "CREATE", (*with).clone(), Value::Null)),
            Answer::Yes
        );
        let mut other = (*with).clone();
        other["metadata"]["labels"][Claim::NAMESPACED_ID] = "another".into();
        let changed = check(&request("PropagationPolicy", "UPDATE", other, (*with).clone()));
        assert!(matches!(changed, Answer::No(why) if why.contains("is immutable")));
        assert_eq!(check(&request("PropagationPolicy", "UPDATE", (*with).clone(), *with)), Answer::Yes);
    }
}
