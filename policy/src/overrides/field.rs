//! Changes inside a JSON or YAML text that a field holds, such as a file in a ConfigMap.
//!
//! The text is written anew: comments and the order of keys are lost.

use serde_json::Value;

use super::{OverrideError, patch};
use crate::{api::FieldOverrider, yaml};

pub(super) fn apply(object: &mut Value, change: &FieldOverrider) -> Result<(), OverrideError> {
    let path = change.field_path.as_str();
    let Some(Value::String(text)) = object.pointer_mut(path) else {
        return Err(OverrideError::NoText(path.to_owned()));
    };
    let fail = |format, message: String| OverrideError::Text { path: path.to_owned(), format, message };
    if !change.json.is_empty() {
        let mut document: Value =
            serde_json::from_str(text).map_err(|error| fail("JSON", error.to_string()))?;
        patch_document(&mut document, &change.json)?;
        *text = document.to_string();
    }
    if !change.yaml.is_empty() {
        let mut document = yaml::read(text).map_err(|error| fail("YAML", error))?;
        patch_document(&mut document, &change.yaml)?;
        *text = serde_saphyr::to_string(&document).map_err(|error| fail("YAML", error.to_string()))?;
    }
    Ok(())
}

fn patch_document(document: &mut Value, changes: &[crate::api::FieldPatch]) -> Result<(), OverrideError> {
    patch::apply_all(
        document,
        changes.iter().map(|change| (change.sub_path.as_str(), change.operator, change.value.as_ref())),
    )
}
