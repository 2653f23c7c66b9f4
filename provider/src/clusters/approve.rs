//! Approves the requests of our own nodes for serving certificates.
//!
//! Kubernetes approves none by itself: nobody there can know whether an address belongs to a node. We do, for the nodes
//! that this process serves. Everything in a request is compared with what we would have asked for ourselves; what is
//! not exactly that is left to others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use federlet_node::contract::NodeName;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::certificates::v1::CertificateSigningRequest, apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509CertificationRequest};

use crate::errors::brief;

const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// The nodes that this process serves, and where: for these it vouches.
#[derive(Clone, Default)]
pub struct Vouched(Arc<Nodes>);

#[derive(Default)]
struct Nodes {
    addresses: Mutex<BTreeMap<NodeName, BTreeSet<IpAddr>>>,
    added: Notify,
}

impl Vouched {
    pub(super) fn add(&self, node: NodeName, addresses: BTreeSet<IpAddr>) {
        self.0.addresses.lock().insert(node, addresses);
        self.0.added.notify_one();
    }

    pub(super) fn remove(&self, node: &NodeName) {
        self.0.addresses.lock().remove(node);
    }

    /// Whether we would have made this request ourselves: for a node of ours, for its own addresses.
    ///
    /// `ourselves` is as whom we make requests where we may not act as the node.
    fn is_ours(&self, request: &CertificateSigningRequest, ourselves: &str) -> bool {
        let spec = &request.spec;
        let Some(asked) = Asked::read(&spec.request.0) else { return false };
        let Some(node) = asked.common_name.strip_prefix("system:node:").and_then(|n| NodeName::new(n).ok())
        else {
            return false;
        };
        let by_node = spec.username.as_deref() == Some(&asked.common_name)
            && spec.groups.iter().flatten().any(|group| group == "system:nodes");
        let by_us = !ourselves.is_empty() && spec.username.as_deref() == Some(ourselves);
        let usages: BTreeSet<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
        let addresses = self.0.addresses.lock().get(&node).cloned();
        spec.signer_name == SIGNER
            && (by_node || by_us)
            && asked.organizations == ["system:nodes"]
            && usages == BTreeSet::from(["digital signature", "server auth"])
            && addresses.is_some_and(|own| !asked.addresses.is_empty() && asked.addresses.is_subset(&own))
    }
}

/// For whom a certificate is asked.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    common_name: String,
    organizations: Vec<String>,
    addresses: BTreeSet<IpAddr>,
}

impl Asked {
    /// None if it asks for anything beside a name, an organization and addresses.
    fn read(pem: &[u8]) -> Option<Self> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem).ok()?;
        let (_, request) = X509CertificationRequest::from_der(&der).ok()?;
        let subject = &request.certification_request_info.subject;
        let names: Vec<String> = subject
            .iter_common_name()
            .map(|name| name.as_str().map(str::to_owned))
            .collect::<Result<_, _>>()
            .ok()?;
        let organizations: Vec<String> = subject
            .iter_organization()
            .map(|name| name.as_str().map(str::to_owned))
            .collect::<Result<_, _>>()
            .ok()?;
        let [common_name] = &names[..] else { return None };
        if subject.iter_attributes().count() != names.len() + organizations.len() {
            return None;
        }
        let mut addresses = BTreeSet::new();
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(san) = extension else { continue };
            for name in &san.general_names {
                let GeneralName::IPAddress(bytes) = name else { return None };
                addresses.insert(address(bytes)?);
            }
        }
        Some(Self { common_name: common_name.clone(), organizations, addresses })
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Approves until told to stop. `ourselves` is the user that this process is.
pub(super) async fn run(client: Client, vouched: Vouched, ourselves: String, stop: CancellationToken) {
    let api: Api<CertificateSigningRequest> = Api::all(client);
    let config = watcher::Config::default().fields(&format!("spec.signerName={SIGNER}")).timeout(45);
    let mut requests = watcher(api.clone(), config).default_backoff().applied_objects().boxed();
    // A request may be seen before its node is served here.
    let mut waiting: BTreeMap<String, CertificateSigningRequest> = BTreeMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = vouched.0.added.notified() => {}
            request = requests.next() => match request {
                Some(Ok(request)) if is_decided(&request) => drop(waiting.remove(&request.name_any())),
                Some(Ok(request)) => {
                    if waiting.len() < WAITING_LIMIT {
                        waiting.insert(request.name_any(), request);
                    }
                }
                Some(Err(error)) => tracing::debug!(%error, "watching certificate requests failed, trying again"),
                None => return,
            },
        }
        let ours: Vec<String> = waiting
            .iter()
            .filter(|(_, request)| vouched.is_ours(request, &ourselves))
            .map(|(n, _)| n.clone())
            .collect();
        for name in ours {
            if let Some(request) = waiting.remove(&name) {
                approve(&api, &request).await;
            }
        }
    }
}

/// Requests of kubelets that nobody approves pile up in some clusters.
const WAITING_LIMIT: usize = 1000;

fn is_decided(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|all| !all.is_empty())
}

async fn approve(api: &Api<CertificateSigningRequest>, request: &CertificateSigningRequest) {
    let name = request.name_any();
    let yes = json!({
        "type": "Approved", "status": "True", "reason": "FederletServesThisNode",
        "message": "the process that serves this node approved its serving certificate",
        "lastUpdateTime": Time(Timestamp::now()),
    });
    // Whatever changed about the request since, we have not seen.
    let version = request.resource_version();
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": [yes] } });
    match api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => tracing::info!(request = name, "approved the serving certificate of a node of ours"),
        Err(error) => tracing::warn!(
            request = name,
            error = brief(&error),
            "cannot approve the serving certificate of a node of ours; approve it with `kubectl certificate approve {name}`"
        ),
    }
}

impl std::fmt::Debug for Vouched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vouched").field("nodes", &*self.0.addresses.lock()).finish()
    }
}

#[cfg(test)]
mod tests;
