//! Which nodes of a member make a region.

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

/// Requirements on labels, all of which must hold. Never empty: a region that selects everything is a mistake.
#[derive(Clone, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Why some text does not select nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It says nothing, and would mean every node.
    #[error("a region needs at least one label, such as location=beijing")]
    Empty,
    /// One part is not a requirement.
    #[error(
        "{0:?} does not select by a label: write key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
    )]
    Requirement(String),
}

impl Operator {
    const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

impl Selector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Value) -> bool {
        self.selects(|key| labels.get(key).and_then(Value::as_str))
    }

    /// Whether an object is selected whose labels this function knows.
    pub fn selects<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = label(&requirement.key);
            let listed = value.is_some_and(|value| requirement.values.iter().any(|v| v == value));
            match requirement.operator {
                Operator::In => listed,
                Operator::NotIn => !listed,
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }

    /// As `matchExpressions` of a node affinity.
    pub fn expressions(&self) -> Vec<Value> {
        let expression = |r: &Requirement| {
            let mut json = json!({ "key": r.key, "operator": r.operator.as_str() });
            if !r.values.is_empty() {
                json["values"] = json!(r.values);
            }
            json
        };
        self.0.iter().map(expression).collect()
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    /// Reads what `kubectl get -l` reads.
    fn from_str(selector: &str) -> Result<Self, SelectorError> {
        let parts = split(selector);
        if parts.iter().all(|part| part.trim().is_empty()) {
            return Err(SelectorError::Empty);
        }
        parts.into_iter().map(requirement).collect::<Result<_, _>>().map(Self)
    }
}

/// Splits at commas that are not between parentheses.
fn split(selector: &str) -> Vec<&str> {
    let (mut parts, mut start, mut inside) = (vec![], 0, false);
    for (at, character) in selector.char_indices() {
        match character {
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[start..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let part = part.trim();
    let wrong = || SelectorError::Requirement(part.chars().take(80).collect());
    let made = |key: &str, operator, values: Vec<&str>| {
        let values: Vec<String> = values.into_iter().map(|v| v.trim().to_owned()).collect();
        if is_key(key.trim()) && values.iter().all(|value| is_value(value)) {
            Ok(Requirement { key: key.trim().to_owned(), operator, values })
        } else {
            Err(wrong())
        }
    };
    if let Some(list) = part.strip_suffix(')') {
        let (head, list) = list.split_once('(').ok_or_else(wrong)?;
        let (key, word) = head.trim().rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
        let operator = match word {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            _ => return Err(wrong()),
        };
        return made(key, operator, list.split(',').collect());
    }
    if let Some((key, value)) = part.split_once("!=") {
        return made(key, Operator::NotIn, vec![value]);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return made(key, Operator::In, vec![value]);
    }
    match part.strip_prefix('!') {
        Some(key) => made(key, Operator::DoesNotExist, vec![]),
        None => made(part, Operator::Exists, vec![]),
    }
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let dns = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    !name.is_empty()
        && is_value(name)
        && prefix.is_none_or(|prefix| !prefix.is_empty() && prefix.len() <= 253 && prefix.bytes().all(dns))
}

fn is_value(value: &str) -> bool {
    value.is_empty() || crate::names::is_label_value(value)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, r) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { "," } else { "" })?;
            match (r.operator, r.values.as_slice()) {
                (Operator::In, [value]) => write!(f, "{}={value}", r.key)?,
                (Operator::NotIn, [value]) => write!(f, "{}!={value}", r.key)?,
                (Operator::In, values) => write!(f, "{} in ({})", r.key, values.join(","))?,
                (Operator::NotIn, values) => write!(f, "{} notin ({})", r.key, values.join(","))?,
                (Operator::Exists, _) => f.write_str(&r.key)?,
                (Operator::DoesNotExist, _) => write!(f, "!{}", r.key)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Selector {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn selects_as_kubectl_does() {
        let beijing = json!({ "location": "beijing", "node-role.kubernetes.io/edge": "" });
        let bare = json!({});
        for (text, here, there) in [
            ("location=beijing", true, false),
            ("location==beijing", true, false),
            ("location!=beijing", false, true),
            ("location in (shanghai, beijing)", true, false),
            ("location notin (beijing)", false, true),
            ("location", true, false),
            ("!location", false, true),
            ("location=beijing,node-role.kubernetes.io/edge=", true, false),
            ("location=beijing,tier in (a,b)", false, false),
        ] {
            assert_eq!(
                (selector(text).matches(&beijing), selector(text).matches(&bare)),
                (here, there),
                "{text}"
            );
        }
    }

    #[test]
    fn prints_what_it_read() {
        for text in ["a=b", "a!=b", "a in (b,c)", "a notin (b,c)", "a,!b", "x.io/a=b,c"] {
            assert_eq!(selector(text).to_string(), text);
        }
        assert_eq!(
            selector("a in (b)").expressions(),
            [json!({"key": "a", "operator": "In", "values": ["b"]})]
        );
        assert_eq!(selector("!a").expressions(), [json!({"key": "a", "operator": "DoesNotExist"})]);
    }

    #[test]
    fn what_selects_nothing_or_everything_is_refused() {
        for bad in [
            "",
            " ",
            ",",
            "a=b,",
            "=b",
            "a in b",
            "a in (b",
            "a like (b)",
            "a b",
            "-a=b",
            "a=b c",
            "A/=x",
            "a>1",
        ] {
            assert!(bad.parse::<Selector>().is_err(), "{bad:?}");
        }
    }
}
