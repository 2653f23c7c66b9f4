#![no_main]

use libfuzzer_sys::fuzz_target;

// Its words are separated by line breaks, so that a corpus can be read and written by people.
fuzz_target!(|text: &str| {
    let mut words = text.splitn(3, '\n');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    federlet_fuzz::request(method, path, words.next().unwrap_or_default());
});
