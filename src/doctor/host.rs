//! The host: whether Federlet is there, and whether its nodes answer.

use federlet_provider::{
    clusters::live_replicas,
    join::{SYSTEM_NAMESPACE, account::ACCOUNT},
    rights::HOST_RIGHTS,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        certificates::v1::CertificateSigningRequest,
        core::v1::ServiceAccount,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};

use super::{clock, finding::Finding, rights::lacking};
use crate::host::answered;

/// The host in findings.
const HOST: &str = "host";

/// The oldest that is known to work.
const OLDEST: u32 = 28;

/// What checks of members need to know of the host.
pub(super) struct Host {
    /// How far its clock is ahead of ours.
    pub(super) ahead: SignedDuration,
}

/// Looks at it. Without it nothing else can be looked at.
pub(super) async fn look(client: &Client) -> (Vec<Finding>, Option<Host>) {
    let version = match client.apiserver_version().await {
        Ok(version) => version,
        Err(error) => {
            let why = answered("the API server", &error).to_string();
            let advice = "check --kubeconfig and whether you reach it: `kubectl version`";
            return (vec![Finding::wrong(HOST, "API server", why, advice)], None);
        }
    };
    let mut findings = vec![of_version(HOST, &version.git_version, &version.minor)];
    findings.push(definitions(client).await);
    findings.push(replicas(client).await);
    findings.extend(rights(client).await);
    findings.extend(requests(client).await);
    findings.extend(webhooks(client).await);
    let ahead = clock::ahead(client).await.unwrap_or_default();
    (findings, Some(Host { ahead }))
}

/// Whether a version is known to work.
pub(super) fn of_version(place: &str, version: &str, minor: &str) -> Finding {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    match digits.parse::<u32>() {
        Ok(minor) if minor < OLDEST => {
            let found = format!("{version} is older than 1.{OLDEST}");
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
        Ok(live) if live.is_empty() => Finding::wrong(
            HOST,
            "federlet serve",
            "none runs",
            "start one: nodes of members are served by it",
        ),
        Ok(live) if live.len() == 1 => Finding::good(HOST, "federlet serve", format!("runs: {}", live[0])),
        Ok(live) => {
            Finding::good(HOST, "federlet serve", format!("{} replicas: {}", live.len(), live.join(", ")))
        }
        Err(error) => unknown("federlet serve", &error),
    }
}

/// Whether the account of an installation may do what it must. Where there is none, somebody runs it otherwise.
async fn rights(client: &Client) -> Option<Finding> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    accounts.get_opt(ACCOUNT).await.ok()??;
    let user = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{ACCOUNT}");
    let ask = |attributes| may(client, &user, attributes);
    Some(match lacking(HOST_RIGHTS, ask).await {
        Ok(lacking) if lacking.is_empty() => {
            Finding::good(HOST, "rights", "federlet may do all that it must")
        }
        Ok(lacking) => Finding::wrong(
            HOST,
            "rights",
            format!("the account {ACCOUNT} may not: {}", lacking.join(", ")),
            "apply provider/rbac/host.yaml, or upgrade the chart",
        ),
        Err(error) => unknown("rights", &error),
    })
}

async fn may(client: &Client, user: &str, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let groups = [
        "system:serviceaccounts",
        &format!("system:serviceaccounts:{SYSTEM_NAMESPACE}"),
        "system:authenticated",
    ];
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(groups.map(str::to_owned).into()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Requests for serving certificates that nobody approved: without one there is no `kubectl logs`.
async fn requests(client: &Client) -> Option<Finding> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let only = ListParams::default().fields("spec.signerName=kubernetes.io/kubelet-serving");
    let all = match api.list(&only).await {
        Ok(all) => all.items,
        Err(error) => return Some(unknown("certificate requests", &error)),
    };
    let now = Timestamp::now();
    let waits = |request: &&CertificateSigningRequest| {
        let decided = request.status.as_ref().and_then(|status| status.conditions.as_ref());
        let age = request.creation_timestamp().map(|time| now.duration_since(time.0).as_secs());
        request.name_any().starts_with("federlet-")
            && decided.is_none_or(Vec::is_empty)
            && age.is_some_and(|age| age > 30)
    };
    let waiting: Vec<String> = all.iter().filter(waits).map(ResourceExt::name_any).collect();
    (!waiting.is_empty()).then(|| {
        Finding::wrong(
            HOST,
            "certificate requests",
            format!("not approved: {}", waiting.join(", ")),
            "`kubectl certificate approve` them; `federlet serve` approves those of its own nodes by itself",
        )
    })
}

/// Our webhooks: those without an authority to trust would refuse every pod.
async fn webhooks(client: &Client) -> Vec<Finding> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mut findings = vec![];
    for found in mutating.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default() {
        let ways: Vec<_> = found.webhooks.iter().flatten().map(|hook| &hook.client_config).collect();
        findings.extend(webhook(&found.name_any(), &ways));
    }
    for found in validating.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default() {
        let ways: Vec<_> = found.webhooks.iter().flatten().map(|hook| &hook.client_config).collect();
        findings.extend(webhook(&found.name_any(), &ways));
    }
    findings
}

fn webhook(name: &str, ways: &[&WebhookClientConfig]) -> Option<Finding> {
    let is_ours = name.starts_with("federlet");
    let trusted = ways.iter().all(|way| way.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty()));
    is_ours.then(|| {
        if trusted {
            return Finding::good(HOST, "webhook", name);
        }
        let advice = "restart `federlet serve`: it writes its authority there";
        Finding::wrong(HOST, "webhook", format!("{name} has no authority to trust"), advice)
    })
}

fn unknown(check: &'static str, error: &kube::Error) -> Finding {
    let why = answered("the host", error).to_string();
    Finding::notice(HOST, check, format!("could not be looked at: {why}"), "look with an account that may")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn old_versions_are_told() {
        assert_eq!(of_version("m", "v1.27.3-gke.1", "27+").verdict, Verdict::Notice);
        assert_eq!(of_version("m", "v1.35.4", "35").verdict, Verdict::Good);
    }
}
