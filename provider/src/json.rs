//! Walking JSON that may be anything.

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// The three lists of containers in a pod's spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The items of a list; of anything else, none.
pub(crate) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// The items of a list, to change them.
pub(crate) fn items_mut(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// The members of an object; of anything else, none.
pub(crate) fn members(object: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    object.and_then(Value::as_object).into_iter().flatten()
}

/// A field that is text and not empty.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Whether a field is `true`.
pub(crate) fn is_true(object: Option<&Value>) -> bool {
    object.and_then(Value::as_bool).unwrap_or(false)
}

/// Every container of a spec.
pub(crate) fn containers(spec: &Object) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS.into_iter().flat_map(|list| items(spec.get(list)))
}

/// Does something with every container of a spec.
pub(crate) fn each_container(spec: &mut Object, mut change: impl FnMut(&mut Object)) {
    for list in CONTAINER_LISTS {
        items_mut(spec.get_mut(list)).filter_map(Value::as_object_mut).for_each(&mut change);
    }
}

/// The list of that name in an object, made if it is not there or not a list.
pub(crate) fn list_mut<'a>(object: &'a mut Object, field: &str) -> &'a mut Vec<Value> {
    let slot = object.entry(field).or_insert_with(|| Value::Array(vec![]));
    if !slot.is_array() {
        *slot = Value::Array(vec![]);
    }
    match slot {
        Value::Array(list) => list,
        _ => unreachable!("it was made a list above"),
    }
}

/// The object of that name in an object, made if it is not there or not an object.
pub(crate) fn object_mut<'a>(object: &'a mut Object, field: &str) -> &'a mut Object {
    let slot = object.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(object) => object,
        _ => unreachable!("it was made an object above"),
    }
}

/// Adds what is not there yet.
pub(crate) fn push_new(list: &mut Vec<Value>, item: Value) {
    if !list.contains(&item) {
        list.push(item);
    }
}
