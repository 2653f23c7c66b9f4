//! One member: what its Cluster says, its credentials, the way there, and whether it is itself.

use std::{collections::BTreeMap, sync::Arc};

use federlet_node::metrics::Metrics;
use federlet_provider::{
    api::{Cluster, SyncMode},
    clusters::{REACHABLE, READY},
    errors::brief,
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
    certificate, clock,
    finding::Finding,
    host::{Host, of_version},
    rights::lacking,
};
use crate::host::answered;

/// Looks at one.
pub(super) async fn look(client: &Client, host: &Host, cluster: &Cluster) -> Vec<Finding> {
    let name = cluster.name_any();
    let mut findings = vec![condition(cluster), node(client, &name).await];
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
        let advice = format!("`federlet join {name}` again: it asks for a new one");
        findings.push(certificate::judge(&name, "token", ends, Timestamp::now(), &advice));
    }
    findings.extend(server_certificate(&name, &cluster.spec.api_endpoint).await);
    let access = Access::new(way, Arc::new(Metrics::default()));
    let facts = match access.facts().await {
        Ok(facts) => facts,
        Err(trouble) => {
            findings.push(unreachable(&name, &trouble));
            return findings;
        }
    };
    let minor = facts.version.split('.').nth(1).unwrap_or_default().to_owned();
    findings.push(of_version(&name, &facts.version, &minor));
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
    findings.push(rights(&name, &direct).await);
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

/// Whether the host reaches the kubelet API of the node, as `kubectl logs` must.
async fn node(client: &Client, name: &str) -> Finding {
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.get_opt(name).await {
        Ok(Some(_)) => {}
        Ok(None) => {
            return Finding::wrong(name, "node", "the host has no such node", "its Cluster says why");
        }
        Err(error) => {
            let why = answered("the host", &error).to_string();
            return Finding::notice(name, "node", why, "look with an account that may");
        }
    }
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
    let again = format!("`federlet join {name}` again, or correct the Secret");
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

async fn server_certificate(name: &str, endpoint: &str) -> Option<Finding> {
    let address: http::Uri = endpoint.parse().ok()?;
    let host = address.host()?.trim_matches(['[', ']']).to_owned();
    let ends = certificate::ends(&host, address.port_u16().unwrap_or(443)).await?;
    let advice = "renew the serving certificate of the member's API server";
    Some(certificate::judge(name, "API server's certificate", ends, Timestamp::now(), advice))
}

fn unreachable(name: &str, trouble: &Trouble) -> Finding {
    let advice = match trouble.reason {
        TroubleReason::NotReachable => {
            "is spec.apiEndpoint right, and is there a way from here to it? A firewall, a VPN?"
        }
        TroubleReason::NameNotFound => "correct the name in spec.apiEndpoint, or the DNS",
        TroubleReason::CertificateNotTrusted => {
            "the authority in the Secret (caBundle) did not sign the API server's certificate: join again"
        }
        TroubleReason::Unauthorized => "the token is over, revoked, or of another cluster: join again",
        TroubleReason::Forbidden => "the account lacks a right: join again",
        TroubleReason::IdentityMismatch => "correct the address: another cluster answers",
        TroubleReason::NotHealthy => "look at the member's own API server",
    };
    Finding::wrong(name, "API server", trouble.message.clone(), advice)
}

async fn rights(name: &str, member: &Client) -> Finding {
    let may = |attributes| async {
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(member.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    };
    match lacking(MEMBER_RIGHTS, may).await {
        Ok(lacking) if lacking.is_empty() => {
            Finding::good(name, "rights", "our account may do all that it must")
        }
        Ok(lacking) => Finding::wrong(
            name,
            "rights",
            format!("our account may not: {}", lacking.join(", ")),
            format!("`federlet join {name}` again: it brings the role up to date"),
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
    let bytes: k8s_openapi::ByteString = serde_json::from_value(padded.into()).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&bytes.0).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
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
