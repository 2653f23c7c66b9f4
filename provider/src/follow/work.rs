//! Looking at one place of the member: see both sides, decide, write.

use federlet_node::{client::ask, contract::ProviderError, decide::digest};
use jiff::Timestamp;
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, api::PostParams};
use serde_json::Value;

use super::{
    Follow,
    ledger::{Copied, Finished, Job, State},
    member::{foreign, plain},
    place::{Origin, Place, Resource, TokenOrigin},
    sources::{from_host, version},
    tokens::{self, Life},
};
use crate::{
    copy::copy,
    marks,
    references::{Kind, Reference},
    site::Space,
    target::Target,
};

impl Follow {
    /// Looks at a place, and makes it as it should be.
    pub(super) async fn work(&self, job: &Job) -> Finished {
        if let Err(error) = self.recognise().await {
            return State::Failed(error).into();
        }
        if job.place.resource == Resource::Claim {
            return self.claim(job).await;
        }
        match &job.origin {
            Some(Origin::Object { kind, namespace, name }) if job.wanted => {
                self.object(job, *kind, namespace, name).await
            }
            Some(Origin::Service { namespace, name }) if job.wanted => {
                self.service(job, namespace, name).await
            }
            Some(Origin::Token(origin)) if job.wanted => self.token(job, origin).await,
            _ => self.unneeded(job).await,
        }
    }

    /// What no pod needs goes, if it is ours.
    async fn unneeded(&self, job: &Job) -> Finished {
        // Before anything else: whoever needs it again begins a new watch.
        self.sources.forget(&job.place);
        if !self.inventory.lacks(&job.place)
            && let Err(error) = self.member.remove(&job.place, &self.site.target()).await
        {
            return State::Failed(error).into();
        }
        State::Closed.into()
    }

    /// Copies an object of the host.
    async fn object(&self, job: &Job, kind: Kind, namespace: &str, name: &str) -> Finished {
        let resource = Resource::from(kind);
        self.sources.watch(&job.place, resource, namespace, name).await;
        let object = match self.sources.get(resource, namespace, name).await {
            Ok(Some(object)) => object,
            Ok(None) => return self.vanished(job).await.unwrap_or_else(State::Failed).into(),
            Err(error) => {
                let what = format!("reading {} {namespace}/{name} from the host", resource.kind());
                return State::Failed(from_host(&error, &what)).into();
            }
        };
        let state = self.copy(job, kind, namespace, name, &object).await.unwrap_or_else(State::Failed);
        Finished { state, host_version: version(&object), again: None }
    }

    async fn copy(
        &self,
        job: &Job,
        kind: Kind,
        namespace: &str,
        name: &str,
        object: &Value,
    ) -> Result<State, ProviderError> {
        let (target, settings) = (self.site.target(), self.site.settings());
        let space = self.space(job, namespace).await?;
        let reference =
            Reference { kind, host: name.to_owned(), member: job.place.name.to_string(), optional: false };
        let classes = &settings.storage_classes;
        let desired = match copy(object, &reference, &space.namespace, &target, &space.anchor, classes) {
            Ok(desired) => desired,
            Err(error) => {
                // It may have been another kind of Secret before.
                self.member.remove(&job.place, &target).await?;
                return Ok(State::Refused(ProviderError::rejected("StaysOnHost", error.to_string())));
            }
        };
        let digest = digest(&desired);
        if let State::InPlace(known) = &job.state
            && known.digest == digest
            && self.inventory.confirms(&job.place, &known.uid, &known.version)
        {
            return Ok(job.state.clone());
        }
        self.apply(&job.place, namespace, &desired, digest, &target).await
    }

    async fn apply(
        &self,
        place: &Place,
        host_namespace: &str,
        desired: &Value,
        digest: u64,
        target: &Target,
    ) -> Result<State, ProviderError> {
        let absent = self.inventory.lacks(place);
        match self.member.apply(place, desired, absent, target, plain).await {
            Ok(there) => Ok(State::InPlace(copied(&there, digest))),
            Err(error) => Err(self.misplaced(place, host_namespace, error)),
        }
    }

    /// Why something could not be made in its namespace. If that is not what we remember, it is looked at again.
    pub(super) fn misplaced(
        &self,
        place: &Place,
        host_namespace: &str,
        error: ProviderError,
    ) -> ProviderError {
        match error {
            ProviderError::NotFound => {
                self.site.spaces.doubt(host_namespace);
                let message = format!("{place}: namespace {} of the member is not there", place.namespace);
                ProviderError::unavailable(message)
            }
            error => {
                if error.reason() == "NamespaceTerminating" {
                    self.site.spaces.doubt(host_namespace);
                }
                error
            }
        }
    }

    /// The host does not have the object. Those that use it keep the last copy, as with a kubelet; for the others
    /// there is none.
    async fn vanished(&self, job: &Job) -> Result<State, ProviderError> {
        let target = self.site.target();
        match self.member.get(&job.place).await? {
            None => Ok(State::Missing),
            Some(there) if !marks::is_ours(&there, &target.host, &target.node) => Err(foreign(&job.place)),
            Some(_) if job.seen => Ok(State::Kept),
            Some(_) => {
                self.member.remove(&job.place, &target).await?;
                Ok(State::Missing)
            }
        }
    }

    /// Sees to it that there is a token, and that it is fresh.
    async fn token(&self, job: &Job, origin: &TokenOrigin) -> Finished {
        match self.fresh_token(job, origin).await {
            Ok(finished) => finished,
            Err(error) => State::Failed(error).into(),
        }
    }

    async fn fresh_token(&self, job: &Job, origin: &TokenOrigin) -> Result<Finished, ProviderError> {
        let (target, used) = (self.site.target(), self.settings.token_life_used);
        let rest = |life: Life| life.rest(Timestamp::now(), used, fastrand::f64());
        let there = if self.inventory.lacks(&job.place) { None } else { self.member.get(&job.place).await? };
        if let Some(there) = &there {
            if !marks::is_ours(there, &target.host, &target.node) {
                return Err(foreign(&job.place));
            }
            let its_own = marks::label(there, marks::HOST_UID) == Some(origin.pod.uid());
            if let Some(again) = Life::of(there).filter(|_| its_own).and_then(rest) {
                let state = State::InPlace(copied(there, 0));
                return Ok(Finished { state, host_version: None, again: Some(again) });
            }
        }
        let namespace = origin.pod.key().namespace();
        let space = self.space(job, namespace).await?;
        let issued = Timestamp::now();
        let answer = self.request_token(origin).await?;
        let secret = tokens::secret(
            &job.place.name,
            origin,
            &answer,
            issued,
            &space.namespace,
            &space.anchor,
            &target,
        )
        .ok_or_else(|| ProviderError::unavailable("the host answered a request for a token without one"))?;
        let state = self.apply(&job.place, namespace, &secret, 0, &target).await?;
        let again = Life::of(&secret).and_then(rest);
        // However short the tokens of this host are, it is not asked all the time.
        let again = again.unwrap_or_default().max(self.settings.token_pause);
        Ok(Finished { state, host_version: None, again: Some(again) })
    }

    async fn request_token(&self, origin: &TokenOrigin) -> Result<Value, ProviderError> {
        let namespace = origin.pod.key().namespace();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.site.host.client.clone(), namespace);
        let request: TokenRequest = serde_json::from_value(tokens::request(origin))
            .map_err(|error| ProviderError::invalid(format!("cannot ask for a token: {error}")))?;
        let what = format!("asking for a token of service account {namespace}/{}", origin.account);
        let params = PostParams::default();
        match ask(|| accounts.create_token_request(&origin.account, &params, &request)).await {
            Ok(answer) => Ok(serde_json::to_value(answer).unwrap_or_default()),
            Err(kube::Error::Api(status))
                if status.message.starts_with("serviceaccounts ") && status.code == 404 =>
            {
                Err(ProviderError::rejected("ServiceAccountNotFound", format!("{what}: {}", status.message)))
            }
            Err(error) => Err(from_host(&error, &what)),
        }
    }

    /// The namespace of the member. If a copy went without our doing, maybe its owner did, too.
    pub(super) async fn space(
        &self,
        job: &Job,
        host_namespace: &str,
    ) -> Result<std::sync::Arc<Space>, ProviderError> {
        if matches!(job.state, State::InPlace(_)) && self.inventory.lacks(&job.place) {
            self.site.spaces.doubt(host_namespace);
        }
        self.site.space(host_namespace).await
    }
}

pub(super) fn copied(there: &Value, digest: u64) -> Copied {
    let text = |field: &str| there.pointer(field).and_then(Value::as_str).unwrap_or_default().into();
    Copied { uid: text("/metadata/uid"), version: text("/metadata/resourceVersion"), digest }
}
