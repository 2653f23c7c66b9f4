//! `federlet join`: a cluster, or a region of one, becomes a node of the host.

mod again;
mod args;
mod run;
mod wait;

pub(crate) use args::JoinArgs;
