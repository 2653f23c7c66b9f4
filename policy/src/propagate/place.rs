//! One copy in a member: read, sent, let go of and taken away.

use federlet_provider::{errors::brief, marks, target::Target};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject},
};
use serde_json::Value;

use super::{
    copies::{Copies, text},
    copy,
    link::Link,
    rights,
    send::Failure,
};
use crate::object::whole;

/// By this name members remember what is ours in a copy.
const FIELD_MANAGER: &str = "federlet-objects";

/// Where a copy is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) link: &'a Link,
    pub(super) copies: &'a Copies,
    pub(super) resource: &'a ApiResource,
    pub(super) target: &'a Target,
}

impl Place<'_> {
    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let client = self.link.clients.pods.clone();
        match text(object, "/metadata/namespace") {
            "" => Api::all_with(client, self.resource),
            namespace => Api::namespaced_with(client, namespace, self.resource),
        }
    }

    /// What has the name.
    pub(super) async fn get(&self, object: &Value) -> Result<Option<Value>, Failure> {
        let found = self.api(object).get_opt(text(object, "/metadata/name")).await;
        Ok(found.map_err(|error| self.failed(&error))?.map(|found| whole(self.resource, found)))
    }

    pub(super) async fn apply(&self, desired: &Value, there: Option<&Value>) -> Result<Value, Failure> {
        let (api, name) = (self.api(desired), text(desired, "/metadata/name"));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let send = async |there: Option<&Value>| {
            api.patch(name, &params, &Patch::Apply(&copy::only_onto(desired, there))).await
        };
        let mut answer = send(there).await;
        if let (Err(kube::Error::Api(status)), Some(there)) = (&answer, there)
            && status.code == 422
            && status.message.contains("immutable")
            && !copy::is_another(status.code, &status.message)
            && copy::can_be_remade(&self.resource.kind)
        {
            self.delete(there).await?;
            answer = send(None).await;
        }
        let made = whole(self.resource, answer.map_err(|error| self.failed(&error))?);
        self.copies.put(made.clone());
        Ok(made)
    }

    /// Takes away exactly this object.
    pub(super) async fn delete(&self, there: &Value) -> Result<(), Failure> {
        let only_this =
            Preconditions { uid: Some(text(there, "/metadata/uid").to_owned()), resource_version: None };
        let params = DeleteParams::background().preconditions(only_this);
        match self.api(there).delete(text(there, "/metadata/name"), &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(self.failed(&error)),
        }
        self.copies.forget(there);
        Ok(())
    }

    /// Takes our marks off it, and leaves it.
    pub(super) async fn release(&self, there: &Value) -> Result<(), Failure> {
        self.patch(there, &copy::released(there)).await?;
        self.copies.forget(there);
        Ok(())
    }

    /// Takes off a namespace what a policy put there; that we made it stays known.
    pub(super) async fn give_back(&self, there: &Value) -> Result<(), Failure> {
        let kept = serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": text(there, "/metadata/name"),
                "uid": text(there, "/metadata/uid"),
                "labels": {
                    marks::HOST: marks::label(there, marks::HOST), marks::NODE: marks::label(there, marks::NODE),
                },
                "annotations": { marks::HOST_NAMESPACE: marks::annotation(there, marks::HOST_NAMESPACE) },
            },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let answer =
            self.api(there).patch(text(there, "/metadata/name"), &params, &Patch::Apply(&kept)).await;
        answer.map_err(|error| self.failed(&error))?;
        self.copies.forget(there);
        Ok(())
    }

    async fn patch(&self, there: &Value, patch: &Value) -> Result<(), Failure> {
        let answer = self
            .api(there)
            .patch(text(there, "/metadata/name"), &PatchParams::default(), &Patch::Merge(patch))
            .await;
        match answer {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &kube::Error) -> Failure {
        let said = brief(error);
        match error {
            kube::Error::Api(status) => match status.code {
                403 if said.contains("because it is being terminated") => {
                    Failure::new("NamespaceNotReady", said)
                }
                403 => Failure::new("MissingRight", rights::in_member(self.resource, &said)),
                404 => Failure::new("NamespaceNotReady", said),
                code if copy::is_another(code, &status.message) => {
                    Failure::new("Conflict", "something else has the name by now; it is looked at again")
                }
                _ => Failure::new("ApplyFailed", said),
            },
            _ => Failure::new("Unreachable", said),
        }
    }
}
