//! Keeps the certificate and the registration as they should be.

use std::{collections::BTreeMap, fmt, time::Duration};

use federlet_node::api::ServingCertificate;
use federlet_provider::errors::brief;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    certificate::{CA, CERTIFICATE, KEY, Material, renewed},
    register::{NAME, Registration, includes, mutating, validating},
};

/// How often both are looked at.
const EVERY: Duration = Duration::from_secs(30);
/// And how soon again when something went wrong.
const AGAIN: Duration = Duration::from_secs(3);
/// The Secret that replicas share.
const SECRET: &str = "federlet-webhook";
const FIELD_MANAGER: &str = "federlet-webhook";

/// Keeps the certificate and the registration.
pub struct Keeper {
    client: Client,
    namespace: &'static str,
    registration: Registration,
    taints: Vec<String>,
    certificate: ServingCertificate,
    served: Option<Material>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{}", brief(.0))]
    Host(#[from] kube::Error),
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    Use(#[from] federlet_node::api::CertificateError),
    #[error(
        "there is no {0} {NAME:?}, which the chart makes: run `helm upgrade`, or leave out --webhook-registered"
    )]
    NotRegistered(String),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Keeper {
    /// For a webhook that is registered like this. Its Secret is in `namespace`; nodes of clusters have these `taints`.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &'static str,
        registration: Registration,
        taints: Vec<String>,
    ) -> Self {
        let certificate = ServingCertificate::default();
        Self { client, namespace, registration, taints, certificate, served: None }
    }

    /// The certificate to serve with, as it changes. Until there is one, handshakes fail.
    #[must_use]
    pub fn certificate(&self) -> ServingCertificate {
        self.certificate.clone()
    }

    /// Keeps both until told to stop. The registration stays: a pod that nobody steers must not be.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut said = false;
        loop {
            let pause = match self.look().await {
                Ok(()) => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::info!(target = ?self.registration.target, "the host asks us about pods and policies");
                    }
                    EVERY
                }
                Err(error) => {
                    tracing::warn!(%error, "the webhook cannot be registered, trying again");
                    AGAIN
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look(&mut self) -> Result<(), Trouble> {
        let material = self.material().await?;
        if self.served.as_ref() != Some(&material) {
            let part = |key: &str| material.get(key).map(String::as_bytes).unwrap_or_default();
            self.certificate.set(part(CERTIFICATE), part(KEY))?;
            self.served = Some(material.clone());
        }
        let authority = material.get(CA).cloned().unwrap_or_default();
        let ca = json!(ByteString(authority.into_bytes()));
        let target = &self.registration.target;
        let pods = mutating(target, &ca, self.namespace, &self.taints);
        self.ensure::<MutatingWebhookConfiguration>(&pods).await?;
        self.ensure::<ValidatingWebhookConfiguration>(&validating(target, &ca)).await
    }

    /// The certificate that replicas share, made or renewed if need be. If two do it at once, one of them has it done.
    async fn material(&self) -> Result<Material, Trouble> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        let found = secrets.get_opt(SECRET).await?;
        let before: Material = found
            .iter()
            .flat_map(|secret| secret.data.iter().flatten())
            .filter_map(|(key, value)| Some((key.clone(), String::from_utf8(value.0.clone()).ok()?)))
            .collect();
        let Some(after) = renewed(&before, &self.registration.target.names(), Timestamp::now())? else {
            return Ok(before);
        };
        let data: BTreeMap<String, ByteString> =
            after.iter().map(|(key, text)| (key.clone(), ByteString(text.clone().into_bytes()))).collect();
        match found {
            Some(secret) => {
                let patch = json!({
                    "metadata": { "resourceVersion": secret.metadata.resource_version },
                    "data": data,
                });
                secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            None => {
                let metadata = ObjectMeta { name: Some(SECRET.into()), ..ObjectMeta::default() };
                let secret = Secret { metadata, data: Some(data), ..Secret::default() };
                secrets.create(&PostParams::default(), &secret).await?;
            }
        }
        Ok(after)
    }

    async fn ensure<K>(&self, wanted: &Value) -> Result<(), Trouble>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut wanted = wanted.clone();
        let found = api.get_opt(NAME).await?;
        if found.is_none() && self.registration.given {
            return Err(Trouble::NotRegistered(K::kind(&()).into_owned()));
        }
        if let Some(found) = found {
            // With its UID an object is never made anew by being applied.
            wanted["metadata"]["uid"] = found.meta().uid.clone().into();
            let mut found = serde_json::to_value(&found)?;
            found["apiVersion"] = wanted["apiVersion"].clone();
            found["kind"] = wanted["kind"].clone();
            if includes(&found, &wanted) {
                return Ok(());
            }
        }
        api.patch(NAME, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&wanted)).await?;
        Ok(())
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("registration", &self.registration).finish_non_exhaustive()
    }
}
