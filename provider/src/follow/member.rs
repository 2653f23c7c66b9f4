//! Copies in the member: read, made, changed and taken away, each only if it is ours.

use federlet_node::contract::ProviderError;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams, Preconditions},
};
use serde_json::Value;

use super::place::Place;
use crate::{
    copy::{CopyPlan, plan_copy},
    errors::from_member,
    marks,
    target::Target,
};

/// How often to begin again when somebody else is quicker.
const ATTEMPTS: usize = 4;

/// The member, as far as copies are concerned.
#[derive(Clone)]
pub(super) struct Member {
    client: Client,
}

impl Member {
    pub(super) const fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, place: &Place) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &place.namespace, &place.resource.api())
    }

    /// What is there.
    pub(super) async fn get(&self, place: &Place) -> Result<Option<Value>, ProviderError> {
        let found = self.api(place).get_opt(&place.name).await.map_err(|error| lost(&error, place))?;
        Ok(found.map(json))
    }

    /// Makes what is there into what should be, and returns it as it then is.
    ///
    /// `absent` is whether we believe that nothing is there; then nothing is read unless that turns out to be wrong.
    /// An error that says NotFound is about the namespace.
    pub(super) async fn apply(
        &self,
        place: &Place,
        desired: &Value,
        absent: bool,
        target: &Target,
        plan: impl Fn(&Value, Option<&Value>, &Target) -> CopyPlan,
    ) -> Result<Value, ProviderError> {
        let api = self.api(place);
        let mut read = !absent;
        for _ in 0..ATTEMPTS {
            let current = if read { self.get(place).await? } else { None };
            read = true;
            let object = |value: &Value| {
                serde_json::from_value::<DynamicObject>(value.clone())
                    .map_err(|error| ProviderError::invalid(format!("{place} is malformed: {error}")))
            };
            let answer = match plan(desired, current.as_ref(), target) {
                CopyPlan::Nothing => return Ok(current.unwrap_or_default()),
                CopyPlan::Foreign => return Err(foreign(place)),
                CopyPlan::Create => api.create(&PostParams::default(), &object(desired)?).await,
                CopyPlan::Replace(replacement) => {
                    api.replace(&place.name, &PostParams::default(), &object(&replacement)?).await
                }
                CopyPlan::Recreate { uid } => {
                    self.delete(place, &uid).await?;
                    api.create(&PostParams::default(), &object(desired)?).await
                }
            };
            match answer {
                Ok(made) => return Ok(json(made)),
                // Somebody was quicker, or something is there after all.
                Err(kube::Error::Api(status)) if status.code == 409 && !is_terminating(&status.message) => {}
                Err(error) => return Err(lost(&error, place)),
            }
        }
        Err(ProviderError::unavailable(format!("{place} of the member changes all the time")))
    }

    /// Makes an object that was read into this. If it is another by now, that is an error, and is tried again.
    pub(super) async fn replace(&self, place: &Place, object: &Value) -> Result<(), ProviderError> {
        let object: DynamicObject = serde_json::from_value(object.clone())
            .map_err(|error| ProviderError::invalid(format!("{place} is malformed: {error}")))?;
        let answer = self.api(place).replace(&place.name, &PostParams::default(), &object).await;
        answer.map(drop).map_err(|error| lost(&error, place))
    }

    /// Takes away exactly this object. That it is not there, or is another one, is as good.
    pub(super) async fn delete(&self, place: &Place, uid: &str) -> Result<(), ProviderError> {
        let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::background().preconditions(only_this);
        match self.api(place).delete(&place.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(lost(&error, place)),
        }
    }

    /// Takes away what is there if it is ours and no policy sent it. Whether something was.
    pub(super) async fn remove(&self, place: &Place, target: &Target) -> Result<bool, ProviderError> {
        let Some(there) = self.get(place).await? else { return Ok(false) };
        let uid = there.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let ours = marks::is_ours(&there, &target.host, &target.node) && !marks::is_propagated(&there);
        if !ours || uid.is_empty() {
            return Ok(false);
        }
        self.delete(place, uid).await?;
        Ok(true)
    }
}

/// As the plain copies of ConfigMaps and Secrets are planned.
pub(super) fn plain(desired: &Value, current: Option<&Value>, target: &Target) -> CopyPlan {
    plan_copy(desired, current, target)
}

/// Something else has the name.
pub(super) fn foreign(place: &Place) -> ProviderError {
    ProviderError::already_exists(format!(
        "{} {} in namespace {} of the member was not made for this host and node; it is left as it is, so rename or \
         remove one of the two",
        place.resource.kind(),
        place.name,
        place.namespace
    ))
}

/// What the member's API server said about a copy. [`ProviderError::NotFound`] means the namespace.
fn lost(error: &kube::Error, place: &Place) -> ProviderError {
    match from_member(error) {
        ProviderError::AlreadyExists { message } => ProviderError::unavailable(message),
        ProviderError::Rejected { reason, message } => {
            ProviderError::rejected(reason, format!("{place}: {message}"))
        }
        ProviderError::Unavailable { message, retry_after } => {
            ProviderError::Unavailable { message: format!("{place}: {message}"), retry_after }
        }
        other => other,
    }
}

fn is_terminating(message: &str) -> bool {
    message.contains("because it is being terminated")
}

fn json(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").finish_non_exhaustive()
    }
}
