//! The template that a pod was made from, where nobody kept it.
//!
//! Pods of a stateful set or a daemon set belong to the set itself, whose template may be of a later revision by now. What
//! an override makes of that one must not reach a pod of an earlier one: its image would change without a rollout.

use serde_json::{Map, Value};

use crate::overrides::project::name_key;

/// The template with the values that the pod has, as far as it has them. What the pod has besides was put in by others or
/// was in its template alone, and stays the pod's own.
pub(super) fn as_made(template: &Value, pod: &Value) -> Value {
    match (template, pod) {
        _ if template == pod => template.clone(),
        (Value::Object(template), Value::Object(pod)) => {
            let shared = |(key, value): (&String, &Value)| {
                Some((key.clone(), as_made(value, pod.get(key).filter(|there| !there.is_null())?)))
            };
            Value::Object(template.iter().filter_map(shared).collect::<Map<_, _>>())
        }
        (Value::Array(template), Value::Array(pod)) => Value::Array(items(template, pod)),
        _ => pod.clone(),
    }
}

/// Items are found by their name where they have one. One that the pod does not have keeps its place, for overrides count.
fn items(template: &[Value], pod: &[Value]) -> Vec<Value> {
    if let Some(key) = name_key(&[template, pod]) {
        let same = |item: &Value| pod.iter().find(|there| there.get(key) == item.get(key));
        return template
            .iter()
            .map(|item| same(item).map_or_else(|| item.clone(), |there| as_made(item, there)))
            .collect();
    }
    // Others add to a list, and take nothing from it.
    let source = if template.iter().all(|item| pod.contains(item)) { template } else { pod };
    source.to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::Overriders, overrides, overrides::project::Projection};

    fn set(image: &str, args: &[&str]) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "db", "image": image, "args": args}],
                "tolerations": [{"key": "edge", "operator": "Exists"}]}}}})
    }

    /// A pod of a set, with what others put in.
    fn pod_of(set: &Value) -> Value {
        let mut pod = set["spec"]["template"].clone();
        pod["metadata"]["labels"]["controller-revision-hash"] = "db-1".into();
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "proxy", "image": "proxy:1"}));
        pod["spec"]["tolerations"].as_array_mut().unwrap().push(json!({"key": "other"}));
        pod["spec"]["volumes"] = json!([{"name": "token"}]);
        pod
    }

    fn overridden(set: &Value, pod: &Value, overriders: &Value) -> Value {
        let mut before = set.clone();
        before["spec"]["template"] = as_made(&set["spec"]["template"], pod);
        let mut after = before.clone();
        let overriders: Overriders = serde_json::from_value(overriders.clone()).unwrap();
        overrides::apply(&mut after, &overriders).unwrap();
        Projection::between(&before, &after).unwrap().apply(pod)
    }

    #[test]
    fn a_pod_of_an_earlier_revision_keeps_its_version() {
        let (former, now) = (set("app:1", &["old"]), set("app:2", &["new", "more"]));
        let mirror = json!({"imageOverrider": [{"component": "Registry", "operator": "add", "value": "eu.io"}],
            "argsOverrider": [{"containerName": "db", "operator": "add", "value": ["-x"]}]});
        for (of, image, args) in [
            (&former, "eu.io/app:1", json!(["old", "-x"])),
            (&now, "eu.io/app:2", json!(["new", "more", "-x"])),
        ] {
            let made = overridden(&now, &pod_of(of), &mirror);
            let container = &made["spec"]["containers"][1];
            assert_eq!((&container["image"], &container["args"]), (&json!(image), &args));
        }
    }

    #[test]
    fn what_others_put_into_a_pod_is_not_the_templates() {
        let now = set("app:1", &["a"]);
        let template = &now["spec"]["template"];
        assert_eq!(as_made(template, &pod_of(&now)), *template);
        // What the earlier template did not have is not made up.
        let mut former = pod_of(&now);
        former["spec"]["containers"][1].as_object_mut().unwrap().remove("args");
        assert_eq!(as_made(template, &former).pointer("/spec/containers/0/args"), None);
    }
}
