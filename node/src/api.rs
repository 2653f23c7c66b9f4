//! The kubelet's HTTPS API, which the host's API server, metrics collectors and people with the right call.
//!
//! One listener serves all nodes of the process. A request goes through [`Authentication`] (who is it),
//! [`Authorization`] (may it), [`Route`] (what is it) and then to the provider of the pod's node. Nothing of a
//! request reaches a provider before the first two said yes.

mod answer;
mod authn;
mod authz;
mod cache;
mod certificate;
mod client_ca;
mod csr;
mod handle;
mod relay;
mod route;
mod server;
mod tls;

pub use authn::{Authentication, NoAuthentication, User};
pub use authz::{Attributes, Authorization};
pub use certificate::{CertificateError, ServingCertificate, ServingNames};
pub use client_ca::{ClientCa, ClientCaError};
pub use csr::CertificateRequests;
pub use handle::{ApiSettings, KubeletApi};
pub use relay::copy_until_either_ends;
pub use route::{Route, RouteError, RoutePod, Streams};
pub use server::serve;
