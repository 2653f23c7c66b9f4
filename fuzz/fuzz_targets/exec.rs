#![no_main]

use libfuzzer_sys::fuzz_target;

#[derive(Debug, arbitrary::Arbitrary)]
struct Exec {
    namespace: String,
    pod: String,
    container: String,
    words: Vec<String>,
    flags: [bool; 4],
}

fuzz_target!(|exec: Exec| {
    let Exec { namespace, pod, container, words, flags } = exec;
    federlet_fuzz::exec(&namespace, &pod, &container, &words, flags);
});
