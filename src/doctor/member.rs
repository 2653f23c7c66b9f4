//! One member: what its Cluster says, its credentials, the way there, and whether it is itself.

use std::{collections::BTreeMap, sync::Arc};

use federlet_node::metrics::Metrics;
use federlet_provider::{
    api::{Cluster, SyncMode},
    clusters::{REACHABLE, READY, SERVED_BY, any_live},
    errors::brief,
    join::SYSTEM_NAMESPACE,
    member::{Access, Trouble, TroubleReason, Way},
    rights::MEMBER_RIGHTS,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    authorization::v1::{SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::{Node, Secret},
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::{
    accounts, certificate, clock,
    finding::Finding,
    host::{Host, of_version},
    renew,
    rights::{lacking, questions},
};
use crate::host::answered;

/// The oldest member that is meant to work.
const OLDEST: u32 = 28;

/// Looks at one.
pub(super) async fn look(client: &Client, host: &Host, cluster: &Cluster) -> Vec<Finding> {
    let name = cluster.name_any();
    let mut findings = vec![condition(cluster)];
    findings.extend(own_process(client, host, cluster).await);
    findings.extend(node(client, &name).await);
    if cluster.spec.sync_mode == SyncMode::Pull {
        return findings;
    }
    let way = match way(client, cluster).await {
        Ok(way) => way,
        Err(finding) => {
            findings.push(*finding);
            return findings;
        }
    };
    if let Some(ends) = way.token.as_ref().and_then(|token| token_ends(token.as_bytes())) {
        findings.push(certificate::judge(
            &name,
            "token",
            ends,
            Timestamp::now(),
            &renew::credentials(cluster),
        ));
    }
    let own = way.endpoint.identity.as_ref().and_then(|identity| decoded(&identity.certificate));
    if let Some(ends) = own.and_then(|pem| certificate::pem_ends(&pem)) {
        let (now, advice) = (Timestamp::now(), renew::credentials(cluster));
        findings.push(certificate::judge(&name, "client certificate", ends, now, &advice));
    }
    let advice = "renew the serving certificate of the member's API server";
    findings
        .extend(certificate::of_server(&name, "API server's certificate", &way.endpoint.url, advice).await);
    let access = Access::new(way, Arc::new(Metrics::default()));
    let facts = match access.facts().await {
        Ok(facts) => facts,
        Err(trouble) => {
            findings.push(unreachable(cluster, &trouble));
            return findings;
        }
    };
    let minor = facts.version.split('.').nth(1).unwrap_or_default().to_owned();
    findings.push(of_version(&name, &facts.version, &minor, OLDEST));
    if !cluster.spec.id.is_empty() && cluster.spec.id != facts.id {
        findings.push(Finding::wrong(
            &name,
            "identity",
            format!("another cluster answers at {}", cluster.spec.api_endpoint),
            format!("correct the address; if the member was replaced, `federlet unjoin {name} --force` and join the new one"),
        ));
        return findings;
    }
    let Ok(direct) = access.unchecked("doctor") else { return findings };
    if let Some(ahead) = clock::ahead(&direct).await {
        findings.push(clock::judge(&name, ahead - host.ahead));
    }
    findings.push(rights(cluster, &direct).await);
    findings
}

/// What the controller says about it.
fn condition(cluster: &Cluster) -> Finding {
    let name = cluster.name_any();
    let status = cluster.status.clone().unwrap_or_default();
    let of = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind).cloned();
    let bad =
        of(REACHABLE).filter(|c| c.status == "False").or_else(|| of(READY).filter(|c| c.status != "True"));
    match (bad, of(READY)) {
        (Some(bad), _) => Finding::wrong(
            &name,
            "Cluster",
            format!("{} ({})", bad.message, bad.reason),
            "the reason is explained in docs/joining.md; what follows may tell more",
        ),
        (None, Some(_)) => Finding::good(&name, "Cluster", "is Ready"),
        (None, None) => Finding::wrong(
            &name,
            "Cluster",
            "nobody has looked at it yet",
            "does `federlet serve` run, and does it reach the host?",
        ),
    }
}

/// A member with a process of its own is served by no other.
async fn own_process(client: &Client, host: &Host, cluster: &Cluster) -> Option<Finding> {
    cluster.annotations().get(SERVED_BY).filter(|name| !name.is_empty())?;
    let name = cluster.name_any();
    let check = "federlet serve";
    Some(match any_live(client, cluster).await {
        Ok(true) => match accounts::own(client, cluster, host.obeys).await {
            Ok(None) => Finding::good(&name, check, "its own runs"),
            Ok(Some(lacking)) if lacking.is_empty() => {
                Finding::good(&name, check, "its own runs, and may do all that it must")
            }
            Ok(Some(lacking)) => Finding::wrong(
                &name,
                check,
                format!("the account {} may not: {}", accounts::own_name(cluster), lacking.join(", ")),
                "upgrade the release of chart federlet, and then that of this member",
            ),
            Err(error) => {
                let why = answered("the host", &error).to_string();
                Finding::notice(&name, check, why, "look with an account that may")
            }
        },
        Ok(false) => Finding::wrong(
            &name,
            check,
            "its own does not run, and no other serves it",
            format!(
                "look at Deployment federlet-{name}: `kubectl describe pods -n {SYSTEM_NAMESPACE} -l app.kubernetes.io/name=federlet-member`"
            ),
        ),
        Err(error) => {
            let why = answered("the host", &error).to_string();
            Finding::notice(&name, check, why, "look with an account that may")
        }
    })
}

/// The node: whether the host reaches its kubelet API, and how long the certificate of that lasts.
async fn node(client: &Client, name: &str) -> Vec<Finding> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = match nodes.get_opt(name).await {
        Ok(Some(node)) => node,
        Ok(None) => {
            return vec![Finding::wrong(name, "node", "the host has no such node", "its Cluster says why")];
        }
        Err(error) => {
            let why = answered("the host", &error).to_string();
            return vec![Finding::notice(name, "node", why, "look with an account that may")];
        }
    };
    let mut findings = vec![kubelet(client, name).await];
    if let Some(address) = kubelet_address(&node) {
        let advice =
            "`federlet serve` asks for a new one by itself: `kubectl get csr` tells whether that is approved";
        findings.extend(certificate::of_server(name, "kubelet API's certificate", &address, advice).await);
    }
    findings
}

/// Where API servers call it.
fn kubelet_address(node: &Node) -> Option<http::Uri> {
    let status = node.status.as_ref()?;
    let address = status.addresses.as_ref()?.iter().find(|address| address.type_ == "InternalIP")?;
    let port = status.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref()?.port;
    let ip: std::net::IpAddr = address.address.parse().ok()?;
    let port = u16::try_from(port).ok()?;
    format!("https://{}", std::net::SocketAddr::new(ip, port)).parse().ok()
}

/// Whether the host reaches the kubelet API of the node, as `kubectl logs` must.
async fn kubelet(client: &Client, name: &str) -> Finding {
    let path = format!("/api/v1/nodes/{name}/proxy/healthz");
    let Ok(request) = http::Request::get(path).body(vec![]) else {
        return Finding::notice(name, "kubelet API", "cannot be asked", "is its name right?");
    };
    match client.request_text(request).await {
        Ok(_) => Finding::good(name, "kubelet API", "the host reaches it"),
        Err(kube::Error::Api(status)) if status.code == 403 => Finding::notice(
            name,
            "kubelet API",
            format!("you may not ask: {}", brief(&kube::Error::Api(status))),
            "look with an account that may `get nodes/proxy`",
        ),
        Err(error) => Finding::wrong(
            name,
            "kubelet API",
            format!("the host does not reach it: {}", brief(&error)),
            "`kubectl logs` and `exec` fail: is --address of `federlet serve` where the host's API server reaches it?",
        ),
    }
}

async fn way(client: &Client, cluster: &Cluster) -> Result<Way, Box<Finding>> {
    let name = cluster.name_any();
    let again = format!("{}, or correct the Secret", renew::credentials(cluster));
    let wrong = |found: String| Box::new(Finding::wrong(&name, "credentials", found, again.clone()));
    let Some(reference) = &cluster.spec.secret_ref else {
        return Err(wrong("the Cluster names no Secret".into()));
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &reference.namespace);
    let secret = match secrets.get_opt(&reference.name).await {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            return Err(wrong(format!("there is no Secret {}/{}", reference.namespace, reference.name)));
        }
        Err(error) => {
            let why = answered("the host", &error).to_string();
            let advice = "look with an account that may read the Secret";
            return Err(Box::new(Finding::notice(&name, "credentials", why, advice)));
        }
    };
    let keys: BTreeMap<String, Vec<u8>> =
        secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    Way::read(&cluster.spec, &keys).map_err(|error| wrong(error.to_string()))
}

fn unreachable(cluster: &Cluster, trouble: &Trouble) -> Finding {
    let again = renew::credentials(cluster);
    let advice = match trouble.reason {
        TroubleReason::NotReachable => {
            "is spec.apiEndpoint right, and is there a way from here to it? A firewall, a VPN?".to_owned()
        }
        TroubleReason::NameNotFound => "correct the name in spec.apiEndpoint, or the DNS".to_owned(),
        TroubleReason::CertificateNotTrusted => {
            format!("the authority in the Secret did not sign the API server's certificate: {again}")
        }
        TroubleReason::Unauthorized => {
            format!("what is in the Secret is over, revoked, or of another cluster: {again}")
        }
        TroubleReason::Forbidden => format!("the account lacks a right: {}", renew::rights(cluster)),
        TroubleReason::IdentityMismatch => "correct the address: another cluster answers".to_owned(),
        TroubleReason::NotHealthy => "look at the member's own API server".to_owned(),
    };
    Finding::wrong(&cluster.name_any(), "API server", trouble.message.clone(), advice)
}

async fn rights(cluster: &Cluster, member: &Client) -> Finding {
    let name = &cluster.name_any();
    let may = |attributes| async {
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(member.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    };
    match lacking(questions(MEMBER_RIGHTS), may).await {
        Ok(lacking) if lacking.is_empty() => {
            Finding::good(name, "rights", "our account may do all that it must")
        }
        Ok(lacking) => Finding::wrong(
            name,
            "rights",
            format!("our account may not: {}", lacking.join(", ")),
            renew::rights(cluster),
        ),
        Err(error) => {
            let advice = "look at the member's own API server";
            Finding::wrong(name, "rights", format!("could not be looked at: {}", brief(&error)), advice)
        }
    }
}

/// When a token ends, if it says so: the middle part of a JSON web token, after the word `Bearer`.
fn token_ends(bearer: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(bearer).ok()?;
    let payload = text.split_whitespace().last()?.split('.').nth(1)?;
    let standard: String = payload
        .chars()
        .map(|c| {
            if c == '-' {
                '+'
            } else if c == '_' {
                '/'
            } else {
                c
            }
        })
        .collect();
    let padded = format!("{standard}{}", "=".repeat((4 - standard.len() % 4) % 4));
    let claims: serde_json::Value = serde_json::from_slice(&decoded(&padded)?).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

/// What a text in base64 means.
fn decoded(base64: &str) -> Option<Vec<u8>> {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(base64.into()).ok()?;
    Some(bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_token_is_read() {
        // {"exp":1800000000}
        let token = b"Bearer e30.eyJleHAiOjE4MDAwMDAwMDB9.sig";
        assert_eq!(token_ends(token).unwrap().as_second(), 1_800_000_000);
        assert_eq!(token_ends(b"Bearer nonsense"), None);
        assert_eq!(token_ends(b""), None);
    }
}
