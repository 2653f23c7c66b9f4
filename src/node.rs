//! `federlet node`: one virtual node.

mod args;
mod member;
mod run;

pub(crate) use args::NodeArgs;
