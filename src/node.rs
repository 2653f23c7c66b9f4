//! `federlet node`: one virtual node.

mod args;
mod kubelet;
mod run;

pub(crate) use args::NodeArgs;
