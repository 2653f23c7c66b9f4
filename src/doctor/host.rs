//! The host: whether Federlet is there, and whether its nodes answer.

use std::collections::{BTreeMap, BTreeSet};

use federlet_provider::{
    clusters::{SERVED_BY, live_replicas},
    join::account::ACCOUNT,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{certificates::v1::CertificateSigningRequest, core::v1::Node},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::{accounts, certificate, clock, finding::Finding, webhook};
use crate::{clusters, host::answered};

/// The host in findings.
pub(super) const HOST: &str = "host";

/// The oldest host that the charts install on, and that tests run.
const OLDEST: u32 = 34;

/// What checks of members need to know of the host.
pub(super) struct Host {
    /// How far its clock is ahead of ours.
    pub(super) ahead: SignedDuration,
    /// Whether it is told to obey policies.
    pub(super) obeys: bool,
}

/// Looks at it. Without it nothing else can be looked at.
pub(super) async fn look(client: &Client, url: &http::Uri) -> (Vec<Finding>, Option<Host>) {
    let version = match client.apiserver_version().await {
        Ok(version) => version,
        Err(error) => {
            let why = answered("the API server", &error).to_string();
            let advice = "check --kubeconfig and whether you reach it: `kubectl version`";
            return (vec![Finding::wrong(HOST, "API server", why, advice)], None);
        }
    };
    let mut findings = vec![of_version(HOST, &version.git_version, &version.minor, OLDEST)];
    let advice = "renew the serving certificate of the host's API server";
    findings.extend(certificate::of_server(HOST, "API server's certificate", url, advice).await);
    findings.push(definitions(client).await);
    findings.push(replicas(client).await);
    // What cannot be looked at, the look at the webhook tells.
    let obeys = webhook::is_registered(client).await.unwrap_or_default();
    findings.extend(rights(client, obeys).await);
    findings.extend(requests(client).await);
    findings.extend(webhook::look(client).await);
    let ahead = clock::ahead(client).await.unwrap_or_default();
    (findings, Some(Host { ahead, obeys }))
}

/// Whether a version is known to work.
pub(super) fn of_version(place: &str, version: &str, minor: &str, oldest: u32) -> Finding {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    match digits.parse::<u32>() {
        Ok(minor) if minor < oldest => {
            let found = format!("{version} is older than 1.{oldest}");
            Finding::notice(place, "version", found, "upgrade it: nobody tests Federlet with it")
        }
        _ => Finding::good(place, "version", version),
    }
}

async fn definitions(client: &Client) -> Finding {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    match api.get_opt("clusters.cluster.karmada.io").await {
        Ok(Some(_)) => Finding::good(HOST, "definitions", "it knows what a Cluster is"),
        Ok(None) => Finding::wrong(
            HOST,
            "definitions",
            "it does not know what a Cluster is",
            "`federlet join` brings the definitions, and so does the chart",
        ),
        Err(error) => unknown("definitions", &error),
    }
}

async fn replicas(client: &Client) -> Finding {
    match live_replicas(client).await {
        Ok(live) if live.is_empty() => {
            let members = clusters::read(client, None).await.unwrap_or_default();
            if !members.is_empty()
                && members.iter().all(|member| member.annotations().contains_key(SERVED_BY))
            {
                return Finding::good(HOST, "federlet serve", "each member has one of its own");
            }
            let advice = "start one: nodes of members are served by it";
            Finding::wrong(HOST, "federlet serve", "none runs", advice)
        }
        Ok(live) if live.len() == 1 => Finding::good(HOST, "federlet serve", format!("runs: {}", live[0])),
        Ok(live) => {
            Finding::good(HOST, "federlet serve", format!("{} replicas: {}", live.len(), live.join(", ")))
        }
        Err(error) => unknown("federlet serve", &error),
    }
}

/// Whether the account of an installation may do what it must. Where there is none, somebody runs it otherwise.
async fn rights(client: &Client, obeys: bool) -> Option<Finding> {
    Some(match accounts::shared(client, obeys).await {
        Ok(lacking) if lacking.as_ref()?.is_empty() => {
            Finding::good(HOST, "rights", "federlet may do all that it must")
        }
        Ok(lacking) => Finding::wrong(
            HOST,
            "rights",
            format!("the account {ACCOUNT} may not: {}", lacking?.join(", ")),
            "apply provider/rbac/host.yaml, or upgrade the chart",
        ),
        Err(error) => unknown("rights", &error),
    })
}

/// Requests for serving certificates that nobody approved: without one there is no `kubectl logs`.
async fn requests(client: &Client) -> Option<Finding> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let only = ListParams::default().fields("spec.signerName=kubernetes.io/kubelet-serving");
    let all = match api.list(&only).await {
        Ok(all) => all.items,
        Err(error) => return Some(unknown("certificate requests", &error)),
    };
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = match nodes.list_metadata(&ListParams::default().labels("type=virtual-kubelet")).await {
        Ok(nodes) => nodes.items.iter().map(ResourceExt::name_any).collect(),
        Err(error) => return Some(unknown("certificate requests", &error)),
    };
    let waiting = waiting(&all, &nodes, Timestamp::now());
    (!waiting.is_empty()).then(|| {
        Finding::wrong(
            HOST,
            "certificate requests",
            format!("not approved: {}", waiting.join(", ")),
            "`kubectl certificate approve` them; `federlet serve` approves those of its own nodes by itself",
        )
    })
}

/// The requests that nodes wait for: the last one of each node that there is. Whoever was killed before it was answered has
/// made another since.
fn waiting(requests: &[CertificateSigningRequest], nodes: &BTreeSet<String>, now: Timestamp) -> Vec<String> {
    let mut last: BTreeMap<String, &CertificateSigningRequest> = BTreeMap::new();
    for request in requests {
        let name = request.name_any();
        let node =
            name.strip_prefix("federlet-").and_then(|rest| rest.rsplit_once('-')).map(|(node, _)| node);
        let Some(node) = node.filter(|node| nodes.contains(*node)) else { continue };
        let made = |request: &CertificateSigningRequest| request.creation_timestamp().map(|time| time.0);
        let entry = last.entry(node.to_owned()).or_insert(request);
        if made(request) > made(entry) {
            *entry = request;
        }
    }
    let waits = |request: &&&CertificateSigningRequest| {
        let decided = request.status.as_ref().and_then(|status| status.conditions.as_ref());
        let age = request.creation_timestamp().map(|time| now.duration_since(time.0).as_secs());
        decided.is_none_or(Vec::is_empty) && age.is_some_and(|age| age > 30)
    };
    last.values().filter(waits).map(|request| request.name_any()).collect()
}

pub(super) fn unknown(check: &'static str, error: &kube::Error) -> Finding {
    let why = answered("the host", error).to_string();
    Finding::notice(HOST, check, format!("could not be looked at: {why}"), "look with an account that may")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn only_what_a_node_still_waits_for_is_wrong() {
        let request = |name: &str, at: &str, approved: bool| -> CertificateSigningRequest {
            let conditions =
                if approved { json!([{"type": "Approved", "status": "True"}]) } else { json!([]) };
            serde_json::from_value(json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:{at}:00Z")},
                "spec": {"request": "", "signerName": "kubernetes.io/kubelet-serving"},
                "status": {"conditions": conditions},
            }))
            .unwrap()
        };
        let requests = [
            request("federlet-m-1-aaaaa", "01", false),
            request("federlet-m-1-bbbbb", "02", true),
            request("federlet-m-2-ccccc", "03", false),
            request("federlet-gone-ddddd", "04", false),
            request("federlet-m-3-eeeee", "10", false),
            request("csr-of-somebody", "05", false),
        ];
        let nodes = ["m-1", "m-2", "m-3"].map(str::to_owned).into();
        let now = "2026-01-01T00:10:10Z".parse().unwrap();
        assert_eq!(waiting(&requests, &nodes, now), ["federlet-m-2-ccccc"]);
    }

    #[test]
    fn old_versions_are_told() {
        assert_eq!(of_version("m", "v1.27.3-gke.1", "27+", 28).verdict, Verdict::Notice);
        assert_eq!(of_version("m", "v1.35.4", "35", 28).verdict, Verdict::Good);
    }
}
