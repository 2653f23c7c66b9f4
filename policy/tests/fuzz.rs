//! The fuzz targets of `fuzz/` for policies, driven by proptest, so that they hold on every machine and never rot.

#![allow(missing_docs, reason = "proptest writes the functions")]

#[allow(unreachable_pub, clippy::panic, reason = "elsewhere it is fuzzed, and to panic is its purpose")]
#[path = "../../fuzz/src/policy.rs"]
mod fuzz;

use proptest::prelude::*;
use serde_json::{Value, json};

/// Mostly references, sometimes anything.
fn reference() -> impl Strategy<Value = String> {
    let digest = "sha256:[0-9a-f]{64}";
    let whole = (
        "([a-z]{1,4}(\\.[a-z]{2})?(:[0-9]{2,4})?/)?",
        "[a-z0-9]{1,5}([._/-][a-z0-9]{1,4}){0,2}",
        "(:[A-Za-z0-9_.-]{1,6})?",
    );
    let tagged = whole.prop_map(|(registry, path, tag)| format!("{registry}{path}{tag}"));
    prop_oneof![4 => tagged, 1 => ("[a-z]{1,4}", digest).prop_map(|(name, digest)| format!("{name}@{digest}")), 1 => "[a-z:/@.]{0,12}"]
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (0..9).prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn change() -> impl Strategy<Value = Value> {
    let operator = prop::sample::select(vec!["add", "remove", "replace"]);
    ("(/([a-c]|[0-3]|-|~1|~)){0,3}", operator, prop::option::of(document()))
        .prop_map(|(path, operator, value)| json!({"path": path, "operator": operator, "value": value}))
}

fn requirement() -> impl Strategy<Value = Value> {
    let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Like"]);
    ("[a-c]|-", operator, prop::collection::vec("[xyz]?", 0..3))
        .prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn images(text in reference(), how in "[a-f]{2}", value in prop_oneof![3 => reference(), 1 => "[A-Za-z0-9:/@._-]{0,9}"]) {
        fuzz::image(&text, &how, &value);
    }

    #[test]
    fn patches(document in document(), patch in prop::collection::vec(change(), 0..4)) {
        fuzz::patch(&document.to_string(), &json!(patch).to_string());
    }

    #[test]
    fn selectors(
        equal in prop::collection::btree_map("[a-c]", "[xyz]?", 0..3),
        expressions in prop::collection::vec(requirement(), 0..3),
        labels in prop::collection::btree_map("[a-c]", "[xyz]?", 0..4),
    ) {
        let selector = json!({"matchLabels": equal, "matchExpressions": expressions});
        fuzz::selector(&selector.to_string(), &json!(labels).to_string());
    }
}
