//! Label selectors, read strictly: an invalid one selects nothing.
//!
//! Kubernetes refuses a selector with an unknown operator, with `In` without values or with `Exists` with
//! values. Objects in a file or from an older host may still have one, and then matching too much would send
//! objects where nobody asked for them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Why a selector, a key or a value is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabel {
    /// The operator is none of the four.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// `In` and `NotIn` compare with something.
    #[error("for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    /// `Exists` and `DoesNotExist` compare with nothing.
    #[error("values set must be empty for exists and does not exist")]
    Values,
    /// Not a label key.
    #[error("{0:?} is not a valid label key")]
    Key(String),
    /// Not a label value.
    #[error("{0:?} is not a valid label value")]
    Value(String),
}

/// Whether a selector is valid and selects these labels. An empty selector selects everything.
#[must_use]
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    // Most selectors do not match, so whether they are valid is asked last.
    selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|requirement| holds(requirement, labels))
        && check(selector).is_ok()
}

fn holds(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let found = labels.get(&requirement.key);
    let listed = || found.is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        _ => false,
    }
}

/// Says what is wrong with a selector.
pub fn check(selector: &LabelSelector) -> Result<(), InvalidLabel> {
    for (key, value) in selector.match_labels.iter().flatten() {
        check_key(key)?;
        check_value(value)?;
    }
    for requirement in selector.match_expressions.iter().flatten() {
        check_key(&requirement.key)?;
        let values = requirement.values.as_deref().unwrap_or_default();
        match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => return Err(InvalidLabel::NoValues),
            "In" | "NotIn" => values.iter().try_for_each(|value| check_value(value))?,
            "Exists" | "DoesNotExist" if !values.is_empty() => return Err(InvalidLabel::Values),
            "Exists" | "DoesNotExist" => {}
            other => return Err(InvalidLabel::Operator(other.to_owned())),
        }
    }
    Ok(())
}

/// Says whether a key is one: an optional DNS subdomain and `/`, then a name of at most 63 characters.
pub fn check_key(key: &str) -> Result<(), InvalidLabel> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let valid = !name.is_empty() && is_name(name) && prefix.is_none_or(is_subdomain);
    if valid { Ok(()) } else { Err(InvalidLabel::Key(key.to_owned())) }
}

/// Says whether a value is one: empty, or a name of at most 63 characters.
pub fn check_value(value: &str) -> Result<(), InvalidLabel> {
    if value.is_empty() || is_name(value) { Ok(()) } else { Err(InvalidLabel::Value(value.to_owned())) }
}

/// At most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn selects_as_kubernetes_does() {
        let labels =
            BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), String::new())]);
        let expression = |key: &str, operator: &str, values: &[&str]| {
            selector(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        for (selector, expected) in [
            (selector(json!({})), true),
            (selector(json!({"matchLabels": {"app": "web"}})), true),
            (selector(json!({"matchLabels": {"app": "db"}})), false),
            (selector(json!({"matchLabels": {"zone": "a"}})), false),
            (expression("app", "In", &["db", "web"]), true),
            (expression("app", "In", &["db"]), false),
            (expression("zone", "In", &["a"]), false),
            (expression("zone", "NotIn", &["a"]), true),
            (expression("app", "NotIn", &["web"]), false),
            (expression("tier", "Exists", &[]), true),
            (expression("zone", "DoesNotExist", &[]), true),
            (expression("app", "DoesNotExist", &[]), false),
            // Invalid ones select nothing.
            (expression("app", "NotIn", &[]), false),
            (expression("zone", "DoesNotExist", &["a"]), false),
            (expression("app", "Like", &["web"]), false),
            (expression("-app", "DoesNotExist", &[]), false),
        ] {
            assert_eq!(selects(&selector, &labels), expected, "{selector:?}");
        }
    }

    #[test]
    fn keys_and_values() {
        for key in ["a", "app.kubernetes.io/name", "A_b.c-1", &"x".repeat(63)] {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        for key in ["", "/", "a/", "/a", "a/b/c", "-a", "a-", "Upper.io/a", "a..b/c", "ä", &"x".repeat(64)] {
            assert!(check_key(key).is_err(), "{key}");
        }
        assert_eq!(check_value(""), Ok(()));
        assert!(check_value("a b").is_err());
    }
}
