use std::sync::Arc;

use serde_json::Value;

/// A JSON value at rest, in a fraction of the room that it takes to be looked at.
///
/// Parsed JSON takes several times the room of its text, and the text of a pod repeats itself. Most objects are looked
/// at a few times in their life, so making them smaller is worth the time it takes: some microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedJson(Arc<[u8]>);

impl PackedJson {
    /// Packs a value. Equal values are packed equally.
    pub fn new(value: &Value) -> Self {
        // A JSON value has string keys only, so writing it cannot fail.
        let text = serde_json::to_vec(value).unwrap_or_default();
        Self(lz4_flex::block::compress_prepend_size(&text).into())
    }

    /// The value.
    pub fn open(&self) -> Value {
        // What was packed here can be opened here.
        let text = lz4_flex::block::decompress_size_prepended(&self.0).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_comes_out_as_it_went_in_and_takes_less_room() {
        let container = json!({"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": "1"}}});
        let value = json!({"spec": {"containers": vec![container; 8]}, "é": null, "n": [1, 2.5, -3]});
        let packed = PackedJson::new(&value);
        assert_eq!(packed.open(), value);
        assert_eq!(packed, PackedJson::new(&value));
        assert!(packed.0.len() * 3 < value.to_string().len(), "{} bytes", packed.0.len());
        assert_eq!(PackedJson::new(&Value::Null).open(), Value::Null);
    }
}
