//! Nothing that a member says is believed to be short, or even text.

use serde_json::Value;

use crate::json::Object;

/// The longest message: what Kubernetes grants a container's last words.
const TEXT_LIMIT: usize = 4096;
/// The longest reason.
const WORD_LIMIT: usize = 128;
/// The longest list, and the most members of an object. A pod's containers are counted separately.
const ITEMS_LIMIT: usize = 128;
/// How deep a value may go.
const DEPTH_LIMIT: usize = 12;
/// The most that one field of the status may take as JSON.
const FIELD_LIMIT: usize = 64 * 1024;

/// Text without control characters, cut to what a person reads.
pub(crate) fn text(text: &str) -> String {
    let mut kept = String::with_capacity(text.len().min(TEXT_LIMIT));
    for character in text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')) {
        if kept.len() + character.len_utf8() > TEXT_LIMIT {
            kept.push('…');
            break;
        }
        kept.push(character);
    }
    kept
}

/// A reason: one word.
pub(crate) fn word(word: &str) -> String {
    word.chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
        .take(WORD_LIMIT)
        .collect()
}

/// A value with every text and every list in it bounded.
pub(super) fn value(any: &Value) -> Value {
    bounded(any, DEPTH_LIMIT)
}

fn bounded(any: &Value, depth: usize) -> Value {
    match any {
        Value::String(long) => text(long).into(),
        Value::Array(_) | Value::Object(_) if depth == 0 => Value::Null,
        Value::Array(list) => list.iter().take(ITEMS_LIMIT).map(|item| bounded(item, depth - 1)).collect(),
        Value::Object(object) => {
            let entries = object.iter().take(ITEMS_LIMIT).filter(|(key, _)| key.len() <= 316);
            Value::Object(entries.map(|(key, item)| (key.clone(), bounded(item, depth - 1))).collect())
        }
        other => other.clone(),
    }
}

/// Fields whose type the API server insists on, and fields too large to keep.
pub(super) fn fields(status: &mut Object) {
    for (field, clean) in [("reason", word as fn(&str) -> String), ("message", text)] {
        match status.remove(field) {
            Some(Value::String(said)) if !said.is_empty() => {
                status.insert(field.to_owned(), clean(&said).into());
            }
            _ => {}
        }
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        if status.get(list).is_some_and(|value| !value.is_array()) {
            status.remove(list);
        }
    }
    status
        .retain(|field, value| field.ends_with("ontainerStatuses") || value.to_string().len() <= FIELD_LIMIT);
}

/// Whether this is a time as API servers write it: `2026-11-16T04:44:31Z`, with or without a fraction.
pub(crate) fn is_time(value: &Value) -> bool {
    let Some(time) = value.as_str().and_then(|time| time.strip_suffix('Z')) else { return false };
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let digits = |part: &str, from: u32, to: u32| {
        part.len() == 2
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse().is_ok_and(|n: u32| (from..=to).contains(&n))
    };
    let Some((date, clock)) = seconds.split_once('T') else { return false };
    let date: Vec<&str> = date.split('-').collect();
    let clock: Vec<&str> = clock.split(':').collect();
    let [year, month, day] = date[..] else { return false };
    let [hour, minute, second] = clock[..] else { return false };
    year.len() == 4
        && year.bytes().all(|b| b.is_ascii_digit())
        && digits(month, 1, 12)
        && digits(day, 1, 31)
        && digits(hour, 0, 23)
        && digits(minute, 0, 59)
        && digits(second, 0, 59)
        && !fraction.is_empty()
        && fraction.len() <= 9
        && fraction.bytes().all(|b| b.is_ascii_digit())
}
