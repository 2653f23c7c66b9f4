//! Host pod to member pod.
//!
//! By deny-list, on JSON: what belongs to the host is taken out or rewritten, and everything else goes through as it
//! is, including fields that this code has never heard of. A function of its arguments: the same pod gives the same
//! pod, to the byte, so that a resync writes nothing.

mod applied;
mod constraints;
mod downward;
mod env;
mod fields;
mod metadata;
mod refuse;
mod tolerations;
mod volumes;

use std::fmt;

use serde_json::{Value, json};

pub use self::refuse::{Refusal, Refusals, not_allowed};
pub(crate) use self::{
    applied::{Applied, WHOLE, amount, resources},
    volumes::{ROOT_CA, is_api_access},
};
use crate::{
    json::{Object, members},
    names::{
        HostPodKey, HostUid, MappingError, MemberPodKey, NameError, ephemeral_claim, root_ca, token_secret,
    },
    target::{Anchor, ApiAccess, Target},
};

/// What is asked for one pod, beside the pod itself.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The owner of all that we make in the namespace.
    pub anchor: &'a Anchor,
    /// The pod's name in the member, if not the one it has on the host.
    pub member_name: Option<&'a str>,
    /// Variables of Services that the pod would see on a node of the host, as the kubelet makes them.
    pub service_env: &'a [(String, String)],
}

/// A pod as the member should have it.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberPod {
    /// Where.
    pub key: MemberPodKey,
    /// What to create. It has no ephemeral containers: no API server takes a new pod with them.
    pub json: Value,
    /// Ephemeral containers, to be added once the pod is there.
    pub ephemeral: Vec<Value>,
    /// What the user should hear about.
    pub notices: Vec<Notice>,
}

/// Something that the member cannot honour, and that was left out for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// One word in CamelCase, for the Event.
    pub reason: &'static str,
    /// The whole story.
    pub message: String,
}

/// Why a pod cannot be sent to the member.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// It is not a pod.
    #[error("a pod needs {0}")]
    Malformed(&'static str),
    /// One of its names is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Its namespace has no place in the member.
    #[error(transparent)]
    Namespace(#[from] MappingError),
    /// The annotation with its constraints cannot be read.
    #[error("annotation federlet.io/constraints: {0}")]
    Constraints(#[source] serde_json::Error),
    /// It asks for what this member does not allow or does not have.
    #[error("{0}")]
    Refused(Refusals),
    /// What it asks for may be there: the member was not seen whole yet.
    #[error("the member's {0} are not listed yet")]
    NotListed(&'static str),
}

impl TranslateError {
    /// One word in CamelCase for the pod's reason and for Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::Name(_) => "InvalidPod",
            Self::Namespace(_) => "NamespaceNotAllowed",
            Self::Constraints(_) => "InvalidConstraints",
            Self::Refused(refusals) => refusals.reason(),
            Self::NotListed(_) => "MemberNotListed",
        }
    }
}

/// The parts of a host pod that everything else needs, checked once.
struct HostPod<'a> {
    key: HostPodKey,
    uid: HostUid,
    metadata: &'a Object,
    spec: &'a Object,
    json: &'a Value,
}

impl<'a> HostPod<'a> {
    fn read(json: &'a Value) -> Result<Self, TranslateError> {
        let object = |field, missing| {
            json.get(field).and_then(Value::as_object).ok_or(TranslateError::Malformed(missing))
        };
        let metadata = object("metadata", "metadata")?;
        let uid =
            metadata.get("uid").and_then(Value::as_str).ok_or(TranslateError::Malformed("metadata.uid"))?;
        Ok(Self {
            key: HostPodKey::of(json)?,
            uid: HostUid::new(uid)?,
            metadata,
            spec: object("spec", "spec")?,
            json,
        })
    }

    fn service_account(&self) -> &'a str {
        service_account(self.spec)
    }
}

/// The service account of a pod: what admission wrote, or the default one.
pub(crate) fn service_account(spec: &Object) -> &str {
    spec.get("serviceAccountName")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .unwrap_or("default")
}

/// Everything that the steps share: what is known, and what they leave for the end.
struct Context<'a> {
    host: &'a HostPod<'a>,
    target: &'a Target,
    /// Annotations that some rewritten field reads.
    annotations: Object,
    notices: Vec<Notice>,
}

impl Context<'_> {
    fn tell(&mut self, reason: &'static str, message: impl fmt::Display) {
        self.notices.push(Notice { reason, message: message.to_string() });
    }

    /// Whether tokens and certificates in the pod are the host's.
    fn host_identity(&self) -> bool {
        self.target.api != ApiAccess::Member
    }

    fn root_ca(&self) -> String {
        root_ca(&self.target.host)
    }

    fn token_secret(&self, audience: Option<&str>, expiration: Option<i64>) -> String {
        token_secret(self.host.key.name(), &self.host.uid, audience, expiration)
    }

    fn ephemeral_claim(&self, volume: &str) -> String {
        ephemeral_claim(self.host.key.name(), volume)
    }
}

/// The pod that stands for a host pod in the member, or why there can be none.
pub fn translate(pod: &Value, target: &Target, request: &Request<'_>) -> Result<MemberPod, TranslateError> {
    let host = HostPod::read(pod)?;
    let refusals = refuse::refusals(host.spec, target);
    if !refusals.is_empty() {
        return Err(TranslateError::Refused(refusals));
    }
    if let Some(what) = refuse::unknown(host.spec, target) {
        return Err(TranslateError::NotListed(what));
    }
    let namespace = target.namespaces.map(host.key.namespace())?;
    let key = MemberPodKey::new(&namespace, request.member_name.unwrap_or(host.key.name()))?;

    let mut context = Context { host: &host, target, annotations: Object::new(), notices: vec![] };
    let mut spec = host.spec.clone();
    fields::rewrite(&mut spec, &mut context);
    constraints::rewrite(&mut spec, &mut context)?;
    tolerations::rewrite(&mut spec, pod, target);
    volumes::rewrite(&mut spec, &mut context);
    env::rewrite(&mut spec, request.service_env, &mut context);
    downward::rewrite(&mut spec, &mut context);
    let (ephemeral, refused) = ephemeral_containers(&mut spec, &mut context);

    let metadata = metadata::member(&context, &key, request.anchor);
    // Whatever else stands at the top; the three large parts are not copied only to be thrown away.
    let mut json: Object = members(Some(pod))
        .filter(|(field, _)| !["metadata", "spec", "status"].contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    for (field, value) in [
        ("apiVersion", "v1".into()),
        ("kind", "Pod".into()),
        ("metadata", Value::Object(metadata)),
        ("spec", Value::Object(spec)),
    ] {
        json.insert(field.to_owned(), value);
    }
    let mut json = Value::Object(json);
    let applied = Applied { refused, ..Applied::of(&json) }.to_string();
    json["metadata"]["annotations"][crate::marks::APPLIED] = json!(applied);
    Ok(MemberPod { key, json, ephemeral, notices: context.notices })
}

/// What of the member must be known to translate this pod, and is not yet.
pub(crate) fn unknown(pod: &Value, target: &Target) -> Option<&'static str> {
    refuse::unknown(pod.get("spec")?.as_object()?, target)
}

/// Takes the ephemeral containers out, and names those that are not allowed. Such a one is left behind alone: the pod runs
/// already, and nobody gains from stopping its other updates.
fn ephemeral_containers(spec: &mut Object, context: &mut Context<'_>) -> (Vec<Value>, Vec<String>) {
    let mut refused = vec![];
    let Some(Value::Array(mut containers)) = spec.remove("ephemeralContainers") else {
        return (vec![], refused);
    };
    containers.retain(|container| {
        let refusals = refuse::of_ephemeral(container, context.target);
        if !refusals.is_empty() {
            context.tell("EphemeralContainerNotAllowed", &refusals);
            refused.extend(container.get("name").and_then(Value::as_str).map(str::to_owned));
        }
        refusals.is_empty()
    });
    (containers, refused)
}

#[cfg(test)]
pub(crate) mod tests;
