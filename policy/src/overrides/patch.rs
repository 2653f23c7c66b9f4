//! Any change of any field, as one JSON patch: all of it or none.

use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, jsonptr::PointerBuf,
};
use serde_json::Value;

use super::OverrideError;
use crate::api::{PatchOperator, PlaintextOverrider};

pub(super) fn apply(object: &mut Value, changes: &[PlaintextOverrider]) -> Result<(), OverrideError> {
    let changes = changes.iter().map(|change| (change.path.as_str(), change.operator, change.value.as_ref()));
    apply_all(object, changes)
}

/// Applies operations in order; if one fails, nothing has changed.
pub(super) fn apply_all<'a>(
    document: &mut Value,
    changes: impl Iterator<Item = (&'a str, PatchOperator, Option<&'a Value>)>,
) -> Result<(), OverrideError> {
    let patch = Patch(
        changes.map(|(path, operator, value)| operation(path, operator, value)).collect::<Result<_, _>>()?,
    );
    json_patch::patch(document, &patch)?;
    Ok(())
}

fn operation(
    path: &str,
    operator: PatchOperator,
    value: Option<&Value>,
) -> Result<PatchOperation, OverrideError> {
    let pointer = PointerBuf::parse(path)
        .map_err(|error| OverrideError::Pointer { path: path.to_owned(), source: error.decompose().0 })?;
    let value = || value.cloned().ok_or_else(|| OverrideError::NoValue(path.to_owned()));
    Ok(match operator {
        PatchOperator::Add => PatchOperation::Add(AddOperation { path: pointer, value: value()? }),
        PatchOperator::Replace => {
            PatchOperation::Replace(ReplaceOperation { path: pointer, value: value()? })
        }
        PatchOperator::Remove => PatchOperation::Remove(RemoveOperation { path: pointer }),
    })
}
