//! The webhook: whether it is registered whole, whether anybody is behind it, and whether the host is answered.

use federlet_provider::{errors::brief, join::SYSTEM_NAMESPACE};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ServiceReference, ValidatingWebhookConfiguration,
            WebhookClientConfig,
        },
        core::v1::Secret,
        discovery::v1::EndpointSlice,
    },
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::json;

use super::{
    certificate,
    finding::Finding,
    host::{HOST, unknown},
};

/// The name of both registrations.
const NAME: &str = "federlet";
/// Where replicas keep the certificate.
const SECRET: &str = "federlet-webhook";
/// This finding.
const CHECK: &str = "webhook";

/// Looks at it. A host without one obeys no policies, which is wrong only if it has some.
pub(super) async fn look(client: &Client) -> Vec<Finding> {
    let ways = match registered(client).await {
        Ok(ways) => ways,
        Err(error) => return vec![unknown(CHECK, &error)],
    };
    let Some((steer, refuse)) = ways else { return unheard(client).await.into_iter().collect() };
    if let Some(wrong) = incomplete(&steer, &refuse) {
        return vec![wrong];
    }
    let ways = [steer, refuse].concat();
    let mut findings = vec![];
    if let Some(service) = ways.iter().find_map(|way| way.service.as_ref()) {
        findings.extend(unserved(client, service).await);
    }
    findings.extend(certificates(client, &ways).await);
    findings.push(asked(client).await);
    findings
}

/// Whether there is one.
pub(super) async fn is_registered(client: &Client) -> Result<bool, kube::Error> {
    Ok(registered(client).await?.is_some())
}

/// How the host calls what changes objects, and what refuses them.
type Ways = (Vec<WebhookClientConfig>, Vec<WebhookClientConfig>);

/// How the host calls it, by registration. None if neither is there.
async fn registered(client: &Client) -> Result<Option<Ways>, kube::Error> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating = mutating.get_opt(NAME).await?;
    let validating = validating.get_opt(NAME).await?;
    if mutating.is_none() && validating.is_none() {
        return Ok(None);
    }
    let steer = mutating.into_iter().flat_map(|found| found.webhooks.unwrap_or_default());
    let refuse = validating.into_iter().flat_map(|found| found.webhooks.unwrap_or_default());
    let steer = steer.map(|hook| hook.client_config).collect();
    Ok(Some((steer, refuse.map(|hook| hook.client_config).collect())))
}

/// At least so many questions there are: about pods and about new policies, and about policies before they are stored.
const HOOKS: (usize, usize) = (2, 1);

fn incomplete(steer: &[WebhookClientConfig], refuse: &[WebhookClientConfig]) -> Option<Finding> {
    let mut ways = steer.iter().chain(refuse);
    let found = if steer.len() < HOOKS.0 || refuse.len() < HOOKS.1 {
        "its registration is not filled in: policies are not obeyed"
    } else if ways.any(|way| bundle(way).is_none()) {
        "its registration has no authority to trust: pods that policies concern are refused"
    } else {
        return None;
    };
    let advice = "`federlet serve` writes it: does one run, with --webhook-service or --webhook-url? Its log says why not";
    Some(Finding::wrong(HOST, CHECK, found, advice))
}

fn bundle(way: &WebhookClientConfig) -> Option<&ByteString> {
    way.ca_bundle.as_ref().filter(|bundle| !bundle.0.is_empty())
}

/// Policies that nobody obeys are told of.
async fn unheard(client: &Client) -> Option<Finding> {
    for kind in ["PropagationPolicy", "ClusterPropagationPolicy"] {
        let found = policies(client, kind, None).list_metadata(&ListParams::default().limit(1)).await;
        if found.is_ok_and(|found| !found.items.is_empty()) {
            let advice = "start `federlet serve` with --webhook-service or --webhook-url, or set policies.enabled of the chart";
            return Some(Finding::notice(
                HOST,
                CHECK,
                "none is registered: the policies that there are have no effect",
                advice,
            ));
        }
    }
    None
}

/// A Service that leads nowhere.
async fn unserved(client: &Client, service: &ServiceReference) -> Option<Finding> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &service.namespace);
    let of_it = ListParams::default().labels(&format!("kubernetes.io/service-name={}", service.name));
    let found = match slices.list(&of_it).await {
        Ok(found) => found.items,
        Err(error) => return Some(unknown(CHECK, &error)),
    };
    let ready = |slice: &EndpointSlice| {
        let each = slice.endpoints.as_deref().unwrap_or_default();
        each.iter().filter_map(|endpoint| endpoint.conditions.as_ref()).any(|how| how.ready != Some(false))
    };
    let service = format!("{}/{}", service.namespace, service.name);
    (!found.iter().any(ready)).then(|| {
        let found = format!("nobody is behind Service {service}: pods that policies concern are refused");
        let advice = format!("`kubectl get pods -n {SYSTEM_NAMESPACE}`: is one of `federlet serve` Ready?");
        Finding::wrong(HOST, CHECK, found, advice)
    })
}

/// How long its certificate lasts, and whether the host was told who signed it.
async fn certificates(client: &Client, ways: &[WebhookClientConfig]) -> Vec<Finding> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let data = match secrets.get_opt(SECRET).await {
        Ok(secret) => secret.and_then(|secret| secret.data).unwrap_or_default(),
        Err(error) => return vec![unknown("webhook's certificate", &error)],
    };
    let mut findings = vec![];
    let advice = "restart `federlet serve`: it renews it by itself; its log says why not";
    if let Some(ends) = data.get("tls.crt").and_then(|pem| certificate::pem_ends(&pem.0)) {
        findings.push(certificate::judge(HOST, "webhook's certificate", ends, Timestamp::now(), advice));
    }
    if let Some(authority) = data.get("ca.crt")
        && ways.iter().filter_map(bundle).any(|bundle| bundle != authority)
    {
        let found =
            format!("the authority in its registration is not the one of Secret {SYSTEM_NAMESPACE}/{SECRET}");
        findings.push(Finding::wrong(HOST, CHECK, found, advice));
    }
    findings
}

/// What only the host can say: whether it is answered. A policy is shown to it and not stored.
async fn asked(client: &Client) -> Finding {
    let resource = resource("PropagationPolicy");
    let mut policy = DynamicObject::new("federlet-doctor", &resource).within(SYSTEM_NAMESPACE);
    policy.data = json!({"spec": {
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "federlet-doctor"}],
        "placement": {},
    }});
    let try_it = PostParams { dry_run: true, ..PostParams::default() };
    match policies(client, "PropagationPolicy", Some(SYSTEM_NAMESPACE)).create(&try_it, &policy).await {
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Finding::wrong(
            HOST,
            CHECK,
            format!("the host is not answered: {}", brief(&kube::Error::Api(status))),
            "pods that policies concern are refused: does the host's API server reach `federlet serve` there?",
        ),
        Err(error @ kube::Error::Api(_)) if is_forbidden(&error) => unknown(CHECK, &error),
        // Refused or not, somebody answered.
        Ok(_) | Err(kube::Error::Api(_)) => Finding::good(HOST, CHECK, "the host asks, and is answered"),
        Err(error) => unknown(CHECK, &error),
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden() && !status.message.contains("admission webhook"))
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", kind))
}

fn policies(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(kind)),
        None => Api::all_with(client.clone(), &resource(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_whole_with_all_its_parts_and_an_authority() {
        let way = |bundle: &str| WebhookClientConfig {
            ca_bundle: Some(ByteString(bundle.as_bytes().to_vec())),
            ..WebhookClientConfig::default()
        };
        let found = |steer: &[&str], refuse: &[&str]| {
            let ways = |bundles: &[&str]| bundles.iter().map(|bundle| way(bundle)).collect::<Vec<_>>();
            incomplete(&ways(steer), &ways(refuse)).map(|finding| finding.found)
        };
        assert_eq!(found(&["a", "a"], &["a"]), None);
        assert_eq!(found(&["a", "a", "a"], &["a"]), None);
        assert!(found(&[], &[]).unwrap().contains("not filled in"));
        assert!(found(&["a", "a", "a"], &[]).unwrap().contains("not filled in"));
        assert!(found(&["a", ""], &["a"]).unwrap().contains("no authority"));
    }
}
