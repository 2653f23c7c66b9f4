//! What must hold for whatever is written into policies. Every function panics if it does not.

use federlet_policy::{
    api::{ImageComponent, OverrideSpec, PatchOperator},
    labels,
    overrides::{self, Policy, image::Image},
};
use serde_json::{Value, json};

/// An image reference, and a change of a part of it: `how` begins with the part and the operation.
pub fn image(text: &str, how: &str, value: &str) {
    let Ok(image) = text.parse::<Image>() else { return };
    assert_eq!(image.to_string(), text, "what is read is written the same");
    let component = match how.as_bytes().first().map_or(0, |byte| byte % 3) {
        0 => ImageComponent::Registry,
        1 => ImageComponent::Repository,
        _ => ImageComponent::Tag,
    };
    let operator = match how.as_bytes().get(1).map_or(0, |byte| byte % 3) {
        0 => PatchOperator::Add,
        1 => PatchOperator::Replace,
        _ => PatchOperator::Remove,
    };
    let mut changed = image.clone();
    if changed.change(component, operator, value).is_err() {
        return;
    }
    let kept = (&changed.registry, &changed.repository, &changed.tag, &changed.digest);
    let (registry, repository, tag, digest) = (&image.registry, &image.repository, &image.tag, &image.digest);
    let expected = match component {
        ImageComponent::Registry => (kept.0, repository, tag, digest),
        ImageComponent::Repository => (registry, kept.1, tag, digest),
        ImageComponent::Tag => (registry, repository, kept.2, kept.3),
    };
    assert_eq!(kept, expected, "only one part changes");
    if component == ImageComponent::Tag {
        assert!(changed.tag.is_empty() || changed.digest.is_empty(), "one or the other");
    }
    // In an object, only what is an image reference again gets through.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": text}]}});
    let change = json!({"component": component, "operator": operator, "value": value});
    if let Some(changed) = overridden(&pod, &json!({ "imageOverrider": [change] })) {
        let found = changed.pointer("/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default();
        assert!(found.parse::<Image>().is_ok(), "{found:?}");
    }
}

/// A patch of a document, both as JSON: it applies whole or not at all, and always the same way.
pub fn patch(document: &str, patch: &str) {
    let (Ok(document), Ok(patch)) =
        (serde_json::from_str::<Value>(document), serde_json::from_str::<Value>(patch))
    else {
        return;
    };
    let overriders = json!({ "plaintext": patch });
    if let Some(changed) = overridden(&document, &overriders) {
        assert_eq!(overridden(&document, &overriders), Some(changed));
    }
    // A document as a text in a field is changed the same way.
    let text = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"text": document.to_string()}});
    let renamed = patch.as_array().into_iter().flatten().map(|change| {
        json!({"subPath": change.get("path"), "operator": change.get("operator"), "value": change.get("value")})
    });
    let inside =
        json!({"fieldOverrider": [{"fieldPath": "/data/text", "json": renamed.collect::<Vec<_>>()}]});
    if let (Some(outside), Some(inside)) = (overridden(&document, &overriders), overridden(&text, &inside)) {
        let found = inside.pointer("/data/text").and_then(Value::as_str).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Value>(found).ok(), Some(outside));
    }
}

/// A label selector and labels, both as JSON: what selects is valid, and selects by each of its parts.
pub fn selector(selector: &str, given: &str) {
    let (Ok(selector), Ok(given)) = (serde_json::from_str(selector), serde_json::from_str(given)) else {
        return;
    };
    if !labels::selects(&selector, &given) {
        return;
    }
    assert_eq!(labels::check(&selector), Ok(()));
    for (key, value) in selector.match_labels.iter().flatten() {
        assert_eq!(given.get(key), Some(value));
    }
    for one in selector.match_expressions.iter().flatten() {
        let listed = given.get(&one.key).is_some_and(|value| one.values.iter().flatten().any(|v| v == value));
        let holds = match one.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => given.contains_key(&one.key),
            _ => !given.contains_key(&one.key),
        };
        assert!(holds, "{one:?}");
    }
}

/// The object as an override makes it, if the override is one and applies.
fn overridden(object: &Value, overriders: &Value) -> Option<Value> {
    let spec: OverrideSpec =
        serde_json::from_value(json!({ "overrideRules": [{ "overriders": overriders }] })).ok()?;
    let cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "a"}, "spec": {},
    }))
    .ok()?;
    let policy = Policy { namespace: None, name: "p", spec: &spec };
    overrides::render(object, &cluster, [policy]).ok().map(|rendered| rendered.object)
}
