//! How the host is told to ask us.

use serde_json::{Value, json};

use crate::stamp::COVERED;

/// Where the host's API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At this URL, without a path.
    Url(String),
    /// Behind this Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
}

/// A registration: where the webhook is, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Where the host's API server finds the webhook.
    pub target: Target,
    /// Whether somebody else made the registration and takes it away again, such as a chart. Then it is only filled in,
    /// and never made: one that comes back after its Deployment went would refuse pods for ever.
    pub given: bool,
}

/// Why a target is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// Not what an API server can call.
    #[error("{0:?} is not https://NAME[:PORT]")]
    Url(String),
    /// Not a Service.
    #[error("{0:?} is not NAMESPACE/NAME[:PORT]")]
    Service(String),
}

impl Target {
    /// Reads a URL.
    pub fn url(text: &str) -> Result<Self, InvalidTarget> {
        let invalid = || InvalidTarget::Url(text.to_owned());
        let url = text.trim_end_matches('/');
        let rest = url.strip_prefix("https://").ok_or_else(invalid)?;
        let uri: http::Uri = url.parse().map_err(|_| invalid())?;
        let plain = uri.host().is_some_and(|host| !host.is_empty()) && !rest.contains(['/', '?', '#', '@']);
        if plain { Ok(Self::Url(url.to_owned())) } else { Err(invalid()) }
    }

    /// Reads a Service.
    pub fn service(text: &str) -> Result<Self, InvalidTarget> {
        let invalid = || InvalidTarget::Service(text.to_owned());
        let (namespace, name) = text.split_once('/').ok_or_else(invalid)?;
        let (name, port) = match name.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| invalid())?),
            None => (name, 443),
        };
        if namespace.is_empty() || name.is_empty() || name.contains('/') {
            return Err(invalid());
        }
        Ok(Self::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
    }

    /// The names under which the webhook is called.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Url(url) => {
                let uri: Option<http::Uri> = url.parse().ok();
                let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
                vec![host.trim_matches(['[', ']']).to_owned()]
            }
            Self::Service { namespace, name, .. } => vec![format!("{name}.{namespace}.svc")],
        }
    }

    fn client(&self, path: &str, ca: &Value) -> Value {
        match self {
            Self::Url(url) => json!({ "url": format!("{url}{path}"), "caBundle": ca }),
            Self::Service { namespace, name, port } => json!({
                "service": { "namespace": namespace, "name": name, "port": port, "path": path }, "caBundle": ca,
            }),
        }
    }
}

/// The name of both registrations.
pub(super) const NAME: &str = "federlet";

fn hook(name: &str, client: &Value, rules: &Value, more: &Value) -> Value {
    let mut hook = json!({
        "name": name, "clientConfig": client, "rules": rules, "admissionReviewVersions": ["v1"],
        "sideEffects": "None", "timeoutSeconds": 5, "matchPolicy": "Equivalent",
    });
    if let (Some(hook), Value::Object(more)) = (hook.as_object_mut(), more) {
        hook.extend(more.clone());
    }
    hook
}

fn policies(kinds: &[&str], operations: &[&str]) -> Value {
    json!([{
        "apiGroups": ["policy.karmada.io"], "apiVersions": ["v1alpha1"], "resources": kinds, "operations": operations,
        "scope": "*",
    }])
}

/// Pods in namespaces that a policy covers, and new policies. `ca` is the authority in base64.
///
/// A pod that nobody could steer is refused, but only where a policy is; elsewhere nobody even asks.
///
/// Pods elsewhere that tolerate the nodes of clusters, which have one of `taints`, ask for room on one machine; whoever
/// cannot be asked changes nothing.
pub(super) fn mutating(target: &Target, ca: &Value, own_namespace: &str, taints: &[String]) -> Value {
    let (label, value) = COVERED;
    let never = [own_namespace, "kube-system", "kube-public", "kube-node-lease"];
    let not_ours = json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never });
    let covered = json!({
        "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "namespaceSelector": {
            "matchLabels": { label: value },
            "matchExpressions": [not_ours],
        },
    });
    let pods = json!([{
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced",
    }]);
    // A policy without an id is known by its UID: nothing is lost if nobody gives it one.
    let ids = json!({ "failurePolicy": "Ignore", "reinvocationPolicy": "Never" });
    let propagation = policies(&["propagationpolicies", "clusterpropagationpolicies"], &["CREATE"]);
    let mut hooks = vec![
        hook("pods.federlet.io", &target.client("/pods", ca), &pods, &covered),
        hook("policies.federlet.io", &target.client("/policies", ca), &propagation, &ids),
    ];
    if !taints.is_empty() {
        let uncovered = json!({
            "failurePolicy": "Ignore", "reinvocationPolicy": "Never", "timeoutSeconds": 2,
            "namespaceSelector": {
                "matchExpressions": [not_ours, { "key": label, "operator": "NotIn", "values": [value] }],
            },
            "matchConditions": [{ "name": "tolerates-clusters", "expression": tolerates(taints) }],
        });
        hooks.push(hook("room.federlet.io", &target.client("/room", ca), &pods, &uncovered));
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": NAME }, "webhooks": hooks,
    })
}

/// Whether a pod names one of these taints among those that it tolerates, in the host's language for such questions.
fn tolerates(taints: &[String]) -> String {
    format!(
        "has(object.spec.tolerations) && object.spec.tolerations.exists(one, has(one.key) && one.key in {})",
        json!(taints)
    )
}

/// Policies, before they are stored.
pub(super) fn validating(target: &Target, ca: &Value) -> Value {
    let all =
        ["propagationpolicies", "clusterpropagationpolicies", "overridepolicies", "clusteroverridepolicies"];
    let more = json!({ "failurePolicy": "Fail" });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": NAME },
        "webhooks": [
            hook("validate.federlet.io", &target.client("/validate", ca), &policies(&all, &["CREATE", "UPDATE"]), &more),
        ],
    })
}

/// Whether all that is wanted is there. What the API server fills in beside does not count.
pub(super) fn includes(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| includes(found, value)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| includes(found, wanted))
        }
        _ => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_named() {
        let url = Target::url("https://10.0.0.1:9443/").unwrap();
        assert_eq!(url.names(), ["10.0.0.1"]);
        assert_eq!(Target::url("https://[fd00::1]:9443").unwrap().names(), ["fd00::1"]);
        for bad in ["", "http://a", "https://", "https://a/b", "https://u@a", "https://a?b"] {
            assert!(Target::url(bad).is_err(), "{bad}");
        }
        let service = Target::service("federlet-system/federlet:9443").unwrap();
        assert_eq!(service.names(), ["federlet.federlet-system.svc"]);
        for bad in ["", "a", "/a", "a/", "a/b/c", "a/b:x"] {
            assert!(Target::service(bad).is_err(), "{bad}");
        }
        let client = service.client("/pods", &json!("YQ=="));
        assert_eq!(client["service"]["port"], 9443);
    }

    #[test]
    fn only_covered_namespaces_are_asked_about() {
        let all =
            mutating(&Target::url("https://a").unwrap(), &json!("YQ=="), "federlet-system", &["a/b".into()]);
        let room = &all["webhooks"][2];
        assert_eq!(
            (&room["failurePolicy"], &room["clientConfig"]["url"]),
            (&json!("Ignore"), &json!("https://a/room"))
        );
        assert!(
            room["matchConditions"][0]["expression"].as_str().unwrap().ends_with(r#"one.key in ["a/b"])"#)
        );
        let pods = &all["webhooks"][0];
        assert_eq!(pods["failurePolicy"], "Fail");
        assert_eq!(pods["namespaceSelector"]["matchLabels"]["federlet.io/policies"], "cover");
        assert_eq!(pods["clientConfig"]["url"], "https://a/pods");
        let mut found = all.clone();
        found["webhooks"][0]["objectSelector"] = json!({});
        assert!(includes(&found, &all));
        found["webhooks"][0]["clientConfig"]["caBundle"] = json!("other");
        assert!(!includes(&found, &all));
    }
}
