//! Approves the requests of our own nodes for serving certificates.
//!
//! Kubernetes approves none by itself: nobody there can know whether an address belongs to a node. We do, for the nodes
//! that this process serves. Everything in a request is compared with what we would have asked for ourselves; what is
//! not exactly that is left to others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
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
use tokio::{sync::Notify, time::Instant};
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

    fn vouches_for(&self, node: &NodeName, asked: &BTreeSet<IpAddr>) -> bool {
        let addresses = self.0.addresses.lock();
        addresses.get(node).is_some_and(|own| !asked.is_empty() && asked.is_subset(own))
    }
}

/// A request that we could have made ourselves: for a node, by that node. Whether the node is ours is another question,
/// and the answer may change: a request may be seen before its node is served here.
#[derive(Clone)]
struct Candidate {
    request: CertificateSigningRequest,
    node: NodeName,
    addresses: BTreeSet<IpAddr>,
    /// It could not be approved, and is left alone until then.
    rests_until: Option<Instant>,
}

impl Candidate {
    /// `ourselves` is as whom we make requests where we may not act as the node.
    fn read(request: CertificateSigningRequest, ourselves: &str) -> Option<Self> {
        let spec = &request.spec;
        let Asked { common_name, organizations, addresses } = Asked::read(&spec.request.0)?;
        let node = NodeName::new(common_name.strip_prefix("system:node:")?).ok()?;
        let by_node = spec.username.as_deref() == Some(&common_name)
            && spec.groups.iter().flatten().any(|group| group == "system:nodes");
        let by_us = !ourselves.is_empty() && spec.username.as_deref() == Some(ourselves);
        let usages: BTreeSet<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
        let as_ours = spec.signer_name == SIGNER
            && (by_node || by_us)
            && organizations == ["system:nodes"]
            && usages == BTreeSet::from(["digital signature", "server auth"]);
        as_ours.then_some(Self { request, node, addresses, rests_until: None })
    }
}

/// Requests that nobody decided on yet, and that are ours or may become so.
#[derive(Default)]
struct Waiting(BTreeMap<String, Candidate>);

impl Waiting {
    fn hear(&mut self, event: watcher::Event<CertificateSigningRequest>, vouched: &Vouched, ourselves: &str) {
        let request = match event {
            // All that there are come now.
            watcher::Event::Init => return self.0.clear(),
            watcher::Event::InitDone => return,
            watcher::Event::Delete(request) => return drop(self.0.remove(&request.name_any())),
            watcher::Event::InitApply(request) | watcher::Event::Apply(request) => request,
        };
        let name = request.name_any();
        self.0.remove(&name);
        if is_decided(&request) {
            return;
        }
        // However many others ask, there is room for ours.
        let candidate = Candidate::read(request, ourselves).filter(|candidate| {
            self.0.len() < WAITING_LIMIT || vouched.vouches_for(&candidate.node, &candidate.addresses)
        });
        if let Some(candidate) = candidate {
            self.0.insert(name, candidate);
        }
    }

    /// Takes out those that are to be approved now.
    fn take_ours(&mut self, vouched: &Vouched, now: Instant) -> Vec<Candidate> {
        let is_due = |candidate: &Candidate| {
            candidate.rests_until.is_none_or(|until| until <= now)
                && vouched.vouches_for(&candidate.node, &candidate.addresses)
        };
        let due: Vec<String> =
            self.0.iter().filter(|(_, one)| is_due(one)).map(|(name, _)| name.clone()).collect();
        due.iter().filter_map(|name| self.0.remove(name)).collect()
    }

    /// One that could not be approved is tried again.
    fn put_back(&mut self, candidate: Candidate, until: Instant) {
        let name = candidate.request.name_any();
        self.0.insert(name, Candidate { rests_until: Some(until), ..candidate });
    }

    /// When the first of these is to be tried.
    fn next(&self) -> Option<Instant> {
        self.0.values().filter_map(|candidate| candidate.rests_until).min()
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
    let mut requests = watcher(api.clone(), config).default_backoff().boxed();
    let mut waiting = Waiting::default();
    loop {
        let next = waiting.next();
        let rested = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = vouched.0.added.notified() => {}
            () = rested => {}
            event = requests.next() => match event {
                Some(Ok(event)) => waiting.hear(event, &vouched, &ourselves),
                Some(Err(error)) => tracing::debug!(%error, "watching certificate requests failed, trying again"),
                None => return,
            },
        }
        for candidate in waiting.take_ours(&vouched, Instant::now()) {
            if !approve(&api, &candidate.request).await {
                waiting.put_back(candidate, Instant::now() + AGAIN);
            }
        }
    }
}

/// How soon a request that could not be approved is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Requests of kubelets that nobody approves pile up in some clusters.
const WAITING_LIMIT: usize = 1000;

fn is_decided(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|all| !all.is_empty())
}

/// False if it has to be tried again.
async fn approve(api: &Api<CertificateSigningRequest>, request: &CertificateSigningRequest) -> bool {
    let name = request.name_any();
    let yes = json!({
        "type": "Approved", "status": "True", "reason": "FederletServesThisNode",
        "message": "the process that serves this node approved its serving certificate",
        "lastUpdateTime": Time(Timestamp::now()),
    });
    // Whatever changed about the request since, we have not seen.
    let version = request.resource_version();
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": [yes] } });
    let Err(error) = api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(patch)).await else {
        tracing::info!(request = name, "approved the serving certificate of a node of ours");
        return true;
    };
    tracing::warn!(
        request = name,
        error = brief(&error),
        "cannot approve the serving certificate of a node of ours; approve it with `kubectl certificate approve {name}`"
    );
    is_an_answer(&error)
}

/// Whether the host decided, and would decide the same again. One that changed meanwhile comes again by itself.
fn is_an_answer(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

impl std::fmt::Debug for Vouched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vouched").field("nodes", &*self.0.addresses.lock()).finish()
    }
}

#[cfg(test)]
mod tests;
