//! What an override policy must say.

use super::{Violation, Violations, affinity, selectors};
use crate::{
    api::{FieldOverrider, OverrideSpec, Overriders, PatchOperator},
    labels,
};

/// Says what is wrong with an override policy. `namespace` is that of an OverridePolicy.
#[must_use]
pub fn overrides(namespace: Option<&str>, spec: &OverrideSpec) -> Vec<Violation> {
    let mut found = Violations::default();
    selectors(namespace, &spec.resource_selectors, &mut found);
    let rules = !spec.override_rules.is_empty();
    found.unless(
        !rules || spec.target_cluster.is_none(),
        "spec.targetCluster",
        "overrideRules and targetCluster can't co-exist",
    );
    found.unless(
        !rules || spec.overriders.as_ref().is_none_or(|former| *former == Overriders::default()),
        "spec.overriders",
        "overrideRules and overriders can't co-exist",
    );
    if let Some(target) = &spec.target_cluster {
        affinity(target, "spec.targetCluster", &mut found);
    }
    if let Some(former) = &spec.overriders {
        overriders(former, "spec.overriders", &mut found);
    }
    for (index, rule) in spec.override_rules.iter().enumerate() {
        let path = format!("spec.overrideRules[{index}]");
        if let Some(target) = &rule.target_cluster {
            affinity(target, &format!("{path}.targetCluster"), &mut found);
        }
        overriders(&rule.overriders, &format!("{path}.overriders"), &mut found);
    }
    found.0
}

fn overriders(overriders: &Overriders, path: &str, found: &mut Violations) {
    for (index, image) in overriders.image_overrider.iter().enumerate() {
        if let Some(predicate) = &image.predicate {
            pointer(&predicate.path, &format!("{path}.imageOverrider[{index}].predicate.path"), found);
        }
    }
    for (index, patch) in overriders.plaintext.iter().enumerate() {
        pointer(&patch.path, &format!("{path}.plaintext[{index}].path"), found);
    }
    for (list, name) in [
        (&overriders.labels_overrider, "labelsOverrider"),
        (&overriders.annotations_overrider, "annotationsOverrider"),
    ] {
        for (index, change) in list.iter().enumerate() {
            for (key, text) in &change.value {
                let path = format!("{path}.{name}[{index}].value");
                if let Err(error) = labels::check_key(key) {
                    found.add(path.clone(), error.to_string());
                }
                if name == "labelsOverrider"
                    && let Err(error) = labels::check_value(text)
                {
                    found.add(path, error.to_string());
                }
            }
        }
    }
    for (index, field) in overriders.field_overrider.iter().enumerate() {
        self::field(field, &format!("{path}.fieldOverrider[{index}]"), found);
    }
}

fn field(field: &FieldOverrider, path: &str, found: &mut Violations) {
    pointer(&field.field_path, &format!("{path}.fieldPath"), found);
    match (field.json.is_empty(), field.yaml.is_empty()) {
        (false, false) => found.add(path, "FieldOverrider has both YAML and JSON set. Only one is allowed"),
        (true, true) => found.add(path, "FieldOverrider must have either JSON or YAML set"),
        _ => {}
    }
    for (index, patch) in field.json.iter().chain(&field.yaml).enumerate() {
        let path = format!("{path}[{index}]");
        pointer(&patch.sub_path, &format!("{path}.subPath"), found);
        value(patch.operator, patch.value.is_some(), &path, found);
    }
}

fn value(operator: PatchOperator, given: bool, path: &str, found: &mut Violations) {
    match (operator, given) {
        (PatchOperator::Add | PatchOperator::Replace, false) => {
            found.add(format!("{path}.value"), "value is required for add or replace operation");
        }
        (PatchOperator::Remove, true) => {
            found.add(format!("{path}.value"), "value is not allowed for remove operation");
        }
        _ => {}
    }
}

fn pointer(text: &str, path: &str, found: &mut Violations) {
    if let Err(error) = json_patch::jsonptr::Pointer::parse(text) {
        found.add(path, format!("not a JSON pointer: {error}"));
    }
}
