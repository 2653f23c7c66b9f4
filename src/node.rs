//! `federlet node`: one virtual node.

mod args;
mod run;

pub(crate) use args::NodeArgs;
