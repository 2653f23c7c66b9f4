//! What must be in the member before a pod can start there, and nothing else.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    json::{Object, containers, is_true, items, text},
    names::{HostUid, NameError, ephemeral_claim, root_ca, token_secret},
    target::{ApiAccess, Target},
    translate::{ROOT_CA, is_api_access, service_account},
};

/// What a token lives for if the pod does not say.
const DEFAULT_EXPIRATION: i64 = 3600;

/// The kinds of object that pods refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A PersistentVolumeClaim.
    Claim,
    /// The claim of a generic ephemeral volume: made by the host's controller, it comes and goes with the pod.
    EphemeralClaim,
}

/// One object that a pod refers to, in the pod's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// What it is.
    pub kind: Kind,
    /// Its name on the host.
    pub host: String,
    /// Its name in the member.
    pub member: String,
    /// Whether the pod starts without it: only if every place that names it says so.
    pub optional: bool,
}

/// A token to ask of the host, bound to the pod, and to keep fresh in a Secret of the member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// The Secret in the member.
    pub secret: String,
    /// For whom; the host's API server if unset.
    pub audience: Option<String>,
    /// For how long, in seconds.
    pub expiration: i64,
}

/// All that a pod refers to, each once and in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct References {
    /// Objects to copy.
    pub objects: Vec<Reference>,
    /// Tokens to ask for.
    pub tokens: Vec<Token>,
    /// The service account whose tokens they are.
    pub service_account: String,
}

/// Finds everything that a host pod refers to, under the names that [`translate`](crate::translate::translate) gives it.
pub fn references(pod: &Value, target: &Target) -> Result<References, NameError> {
    let nothing = Object::new();
    let spec = pod.get("spec").and_then(Value::as_object).unwrap_or(&nothing);
    let metadata = |field: &str| pod.get("metadata").and_then(|m| text(m, field)).unwrap_or_default();
    let mut found = Found {
        name: metadata("name"),
        uid: HostUid::new(metadata("uid"))?,
        target,
        objects: BTreeMap::new(),
        tokens: BTreeMap::new(),
    };
    for container in containers(spec) {
        found.container(container);
    }
    for volume in items(spec.get("volumes")) {
        // Only with the host's API does the volume that admission added go along.
        if matches!(target.api, ApiAccess::Host { .. }) || !is_api_access(volume) {
            found.volume(volume);
        }
    }
    for secret in items(spec.get("imagePullSecrets")) {
        // The kubelet pulls without one that is not there.
        found.note(Kind::Secret, text(secret, "name"), true);
    }
    Ok(References {
        tokens: found.tokens.into_values().collect(),
        objects: found
            .objects
            .into_iter()
            .map(|((kind, host), (member, optional))| Reference { kind, host, member, optional })
            .collect(),
        service_account: service_account(spec).to_owned(),
    })
}

struct Found<'a> {
    name: &'a str,
    uid: HostUid,
    target: &'a Target,
    objects: BTreeMap<(Kind, String), (String, bool)>,
    tokens: BTreeMap<String, Token>,
}

impl Found<'_> {
    fn note(&mut self, kind: Kind, name: Option<&str>, optional: bool) {
        let Some(name) = name else { return };
        let root = kind == Kind::ConfigMap && name == ROOT_CA;
        let member = match &self.target.api {
            // Every namespace of the member has its own already, and that is the one to use.
            ApiAccess::Member if root => return,
            _ if root => root_ca(&self.target.host),
            _ => name.to_owned(),
        };
        let entry = self.objects.entry((kind, name.to_owned())).or_insert((member, true));
        entry.1 &= optional;
    }

    /// A source that names its object in this field and may say that it is optional.
    fn source(&mut self, kind: Kind, source: Option<&Value>, field: &str) {
        if let Some(source) = source {
            self.note(kind, text(source, field), is_true(source.get("optional")));
        }
    }

    fn container(&mut self, container: &Value) {
        for env in items(container.get("env")) {
            self.source(Kind::ConfigMap, env.pointer("/valueFrom/configMapKeyRef"), "name");
            self.source(Kind::Secret, env.pointer("/valueFrom/secretKeyRef"), "name");
        }
        for source in items(container.get("envFrom")) {
            self.source(Kind::ConfigMap, source.get("configMapRef"), "name");
            self.source(Kind::Secret, source.get("secretRef"), "name");
        }
    }

    fn volume(&mut self, volume: &Value) {
        self.source(Kind::ConfigMap, volume.get("configMap"), "name");
        self.source(Kind::Secret, volume.get("secret"), "secretName");
        for source in items(volume.pointer("/projected/sources")) {
            self.source(Kind::ConfigMap, source.get("configMap"), "name");
            self.source(Kind::Secret, source.get("secret"), "name");
            self.token(source.get("serviceAccountToken"));
        }
        self.source(Kind::Claim, volume.get("persistentVolumeClaim"), "claimName");
        if volume.get("ephemeral").is_some_and(|source| !source.is_null()) {
            let claim = ephemeral_claim(self.name, text(volume, "name").unwrap_or_default());
            self.note(Kind::EphemeralClaim, Some(&claim), false);
        }
        // Drivers that the pod configures itself take their credentials from Secrets, too.
        self.source(Kind::Secret, volume.get("azureFile"), "secretName");
        self.source(Kind::Secret, volume.pointer("/csi/nodePublishSecretRef"), "name");
        for driver in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
            self.source(Kind::Secret, volume.get(driver).and_then(|driver| driver.get("secretRef")), "name");
        }
    }

    fn token(&mut self, source: Option<&Value>) {
        let Some(source) = source.filter(|source| !source.is_null()) else { return };
        // The member's kubelet makes those for its own API.
        if self.target.api == ApiAccess::Member {
            return;
        }
        let audience = text(source, "audience");
        let expiration = source.get("expirationSeconds").and_then(Value::as_i64);
        let secret = token_secret(self.name, &self.uid, audience, expiration);
        let token = Token {
            secret: secret.clone(),
            audience: audience.map(str::to_owned),
            expiration: expiration.unwrap_or(DEFAULT_EXPIRATION),
        };
        self.tokens.insert(secret, token);
    }
}

#[cfg(test)]
mod tests;
