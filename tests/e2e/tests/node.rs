//! A virtual node on a real host: what people do with it, and what happens to it.
//!
//! `callers` to `workloads` are the tests. The rest is what they are made of: `federlet node` as a process of its own
//! (`process`), or nodes in this process (`embedded`) with a provider that does as a test says (`scripted`, on a `stage`)
//! or that passes streams on to a real pod (`relay`).

mod node {
    mod callers;
    mod certificates;
    mod crash;
    mod endings;
    mod health;
    mod insistence;
    mod limits;
    mod many;
    mod outage;
    mod registration;
    mod starting;
    mod statuses;
    mod streams;
    mod telemetry;
    mod updates;
    mod usage;
    mod workloads;

    mod authority;
    mod embedded;
    mod link;
    mod pretend;
    mod process;
    mod relay;
    mod scripted;
    mod stage;
    mod tokens;

    use federlet_e2e::{audit, objects};
}
