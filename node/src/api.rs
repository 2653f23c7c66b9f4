//! The kubelet's HTTPS API, which the host's API server, metrics collectors and people with the right call.
//!
//! [`Kubelets`] listens for all nodes of the process. A request goes through [`Authentication`] (who is it),
//! [`Route`] (what is it), [`Authorization`] (may it) and then to the provider of its node. Nothing of a request
//! reaches a provider before its sender is known and allowed.

mod answer;
mod authn;
mod authz;
mod cache;
mod certificate;
mod client_ca;
mod csr;
mod handle;
mod kubelets;
mod nodes;
mod relay;
mod route;
mod server;
mod stall;
mod streams;
mod tls;

pub use authn::{Authentication, NoAuthentication, User};
pub use authz::{Attributes, Authorization};
pub use certificate::{CertificateError, ServingCertificate, ServingNames};
pub use client_ca::{ClientCa, ClientCaError};
pub use csr::CertificateRequests;
pub use handle::ApiSettings;
pub use kubelets::{Kubelets, KubeletsError};
pub use relay::copy_until_either_ends;
pub use route::{Route, RouteError, RoutePod};
