//! Fields of a definition, one row each.

use anyhow::Context;
use serde_json::Value;

use super::cell;

/// A section about one kind.
pub(super) fn markdown(definition: &str) -> anyhow::Result<String> {
    let definition: Value = serde_saphyr::from_str(definition)?;
    let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let version = &definition["spec"]["versions"][0];
    let schema = version.pointer("/schema/openAPIV3Schema").context("a definition without a schema")?;
    let short = definition["spec"]["names"]["shortNames"].as_array();
    let short: Vec<&str> = short.into_iter().flatten().filter_map(Value::as_str).collect();
    let short = if short.is_empty() { String::new() } else { format!(" (`{}`)", short.join("`, `")) };
    let mut page = format!(
        "## {} `{}/{}`{short}\n\n{}\n\n| field | type | |\n| --- | --- | --- |\n",
        text("/spec/names/kind"),
        text("/spec/group"),
        version["name"].as_str().unwrap_or_default(),
        schema["description"].as_str().unwrap_or_default(),
    );
    for part in ["spec", "status"] {
        if let Some(schema) = schema["properties"].get(part) {
            walk(part, schema, false, &mut page);
        }
    }
    page.push('\n');
    Ok(page)
}

fn walk(path: &str, schema: &Value, required: bool, page: &mut String) {
    let said = schema["description"].as_str().unwrap_or_default();
    let default = schema.get("default").map(|value| format!(" Default `{value}`.")).unwrap_or_default();
    let choice = schema["enum"].as_array().map(|all| {
        let all: Vec<String> = all.iter().filter_map(Value::as_str).map(|one| format!("`{one}`")).collect();
        format!(" One of {}.", all.join(", "))
    });
    let must = if required { " Required." } else { "" };
    *page += &format!(
        "| `{path}` | {} | {}{}{default}{must} |\n",
        kind(schema),
        cell(said),
        choice.unwrap_or_default()
    );
    within(path, schema, page);
    for (field, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let Some(inner) = schema.get(field) {
            within(&format!("{path}{mark}"), inner, page);
        }
    }
}

/// The fields of an object.
fn within(path: &str, schema: &Value, page: &mut String) {
    let needed: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), inner, needed.contains(&name.as_str()), page);
    }
}

fn kind(schema: &Value) -> String {
    let of = |schema: &Value| schema["type"].as_str().unwrap_or("any").to_owned();
    match (schema["type"].as_str(), schema.get("items"), schema.get("additionalProperties")) {
        (Some("array"), Some(items), _) => format!("list of {}", of(items)),
        (Some("object"), _, Some(values)) if values.is_object() => format!("map of {}", of(values)),
        _ => of(schema),
    }
}
