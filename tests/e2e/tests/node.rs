//! A virtual node on a real host: what people do with it, and what happens to it.
//!
//! `workloads` to `telemetry` are the tests; the rest is what they are made of: `federlet node` as a process of its own
//! (`process`), or nodes in this process (`embedded`) with a provider that does as a test says (`scripted`) or that
//! passes streams on to a real pod (`relay`).

mod node {
    mod callers;
    mod crash;
    mod registration;
    mod starting;
    mod streams;
    mod workloads;

    mod audit;
    mod authority;
    mod embedded;
    mod objects;
    mod own;
    mod process;
    mod relay;
    mod scripted;
}
