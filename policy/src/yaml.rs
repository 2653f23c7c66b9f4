//! YAML as Kubernetes reads it.

use serde_json::Value;

/// Reads one document; nothing is `null`. The error is one line.
pub fn read(text: &str) -> Result<Value, String> {
    // `0644` is a number of eights.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    serde_saphyr::from_str_with_options::<Option<Value>>(text, options)
        .map(Option::unwrap_or_default)
        .map_err(|error| error.to_string().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_texts_stay_what_they_are() {
        for (text, expected) in [
            ("0644", json!(420)),
            ("0o644", json!(420)),
            ("644", json!(644)),
            ("1.50", json!(1.5)),
            ("\"0644\"", json!("0644")),
            ("v0644", json!("v0644")),
            ("", json!(null)),
        ] {
            assert_eq!(read(text), Ok(expected), "{text:?}");
        }
        assert!(!read("a: [1").unwrap_err().contains('\n'));
    }
}
