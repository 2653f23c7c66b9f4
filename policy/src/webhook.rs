//! The host's API server asks: may this object be, and how?
//!
//! Pods are steered (`pods`), policies are checked (`policies`). The certificate makes and renews itself
//! (`certificate`), and so does the registration at the host (`register`).

mod certificate;
mod keeper;
mod pods;
mod policies;
mod register;
mod review;
mod server;

pub use self::{
    keeper::Keeper,
    pods::Pods,
    register::{InvalidTarget, Registration, Target},
    server::{Webhooks, serve},
};
