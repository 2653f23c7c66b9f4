//! The fuzz targets of `fuzz/`, driven by proptest, so that they hold on every machine and never rot.

#![allow(missing_docs, reason = "proptest writes the functions")]

#[allow(unreachable_pub, clippy::panic, reason = "elsewhere it is a library, and to panic is its purpose")]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use proptest::prelude::*;

/// Mostly what an API server could say, sometimes anything.
fn path() -> impl Strategy<Value = String> {
    let first = prop::sample::select(vec![
        "exec",
        "attach",
        "portForward",
        "containerLogs",
        "pods",
        "runningpods",
        "stats",
        "metrics",
        "logs",
        "run",
    ]);
    let segment = prop_oneof![4 => "[a-z0-9.-]{1,8}", 1 => "(%[0-9a-f]{2}|[^/]){0,4}"];
    let known = (first, prop::collection::vec(segment, 0..5))
        .prop_map(|(first, rest)| format!("/{first}/{}", rest.join("/")));
    prop_oneof![6 => known, 1 => "\\PC{0,60}"]
}

fn query() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "command",
        "input",
        "output",
        "error",
        "tty",
        "port",
        "follow",
        "previous",
        "timestamps",
        "sinceSeconds",
        "sinceTime",
        "tailLines",
        "limitBytes",
        "stream",
    ]);
    let value = prop_oneof![
        3 => prop::sample::select(vec!["1", "0", "true", "false", "", "10", "80,443", "all", "Stdout", "-1",
                                        "2026-01-31T12:00:00.123456789%2B08:00"]).prop_map(str::to_owned),
        1 => "[^&]{0,12}",
    ];
    let pairs =
        prop::collection::vec((name, value).prop_map(|(name, value)| format!("{name}={value}")), 0..8);
    prop_oneof![8 => pairs.prop_map(|pairs| pairs.join("&")), 1 => "\\PC{0,60}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_is_asked(method in prop_oneof![4 => "GET|POST", 1 => "[A-Z]{1,7}"], path in path(), query in query()) {
        fuzz::request(&method, &path, &query);
    }

    #[test]
    fn every_word_of_an_exec_arrives(
        (namespace, pod, container) in ("[a-z0-9-]{1,9}", "\\PC{0,9}", "[a-z]{1,9}"),
        words in prop::collection::vec("(\\PC|[\\x00-\\x1f]){0,20}", 0..6),
        flags in any::<[bool; 4]>(),
    ) {
        fuzz::exec(&namespace, &pod, &container, &words, flags);
    }
}
