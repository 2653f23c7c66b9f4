#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target drives one of them")]
#[path = "../src/policy.rs"]
mod policy;

// Its words are separated by line breaks, so that a corpus can be read and written by people.
fuzz_target!(|text: &str| {
    let (selector, labels) = text.split_once('\n').unwrap_or((text, ""));
    policy::selector(selector, labels);
});
