//! Objects by what people call them.

use anyhow::{Context, bail};
use federlet_policy::object::whole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::{Api, Client, api::DynamicObject, core::ApiResource};
use serde_json::Value;

use crate::host::answered;

/// Finds objects of the host.
pub(super) struct Finder {
    client: Client,
}

/// A kind that the host serves.
struct Served {
    resource: ApiResource,
    namespaced: bool,
}

impl Finder {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The object of this name, of a kind as kubectl takes it.
    pub(super) async fn object(&self, kind: &str, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let Some(served) = self.kind(kind).await? else {
            bail!("the host has no kind {kind:?}: `kubectl api-resources` lists them");
        };
        let place = if served.namespaced { format!(" in namespace {namespace}") } else { String::new() };
        self.get(&served, namespace, name)
            .await?
            .with_context(|| format!("there is no {} {name}{place}", served.resource.kind))
    }

    async fn get(&self, served: &Served, namespace: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let api: Api<DynamicObject> = if served.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &served.resource)
        } else {
            Api::all_with(self.client.clone(), &served.resource)
        };
        let found = api.get_opt(name).await.map_err(|error| answered("the host", &error))?;
        Ok(found.map(|found| whole(&served.resource, found)))
    }

    /// Who controls an object, if anybody does and is there.
    pub(super) async fn owner(&self, object: &Value) -> anyhow::Result<Option<Value>> {
        let Some(owner) = federlet_policy::owners::Owner::of(object) else { return Ok(None) };
        let Some(served) = self.exactly(&owner.api_version, &owner.kind).await? else { return Ok(None) };
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let found = self.get(&served, namespace, &owner.name).await?;
        Ok(found.filter(|found| found.pointer("/metadata/uid").and_then(Value::as_str) == Some(&owner.uid)))
    }

    /// The object of this name and of exactly this kind, if it is there.
    pub(super) async fn exact(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<Option<Value>> {
        match self.exactly(api_version, kind).await? {
            Some(served) => self.get(&served, namespace, name).await,
            None => Ok(None),
        }
    }

    async fn exactly(&self, api_version: &str, kind: &str) -> anyhow::Result<Option<Served>> {
        let list = self.list(api_version).await?;
        let found =
            list.and_then(|list| list.resources.into_iter().find(|one| one.kind == kind && is_whole(one)));
        Ok(found.map(|found| served(api_version, &found)))
    }

    async fn list(&self, api_version: &str) -> anyhow::Result<Option<APIResourceList>> {
        let answer = if api_version.contains('/') {
            self.client.list_api_group_resources(api_version).await
        } else {
            self.client.list_core_api_resources(api_version).await
        };
        match answer {
            Ok(list) => Ok(Some(list)),
            // An extension that does not answer hides its own kinds only.
            Err(kube::Error::Api(_)) => Ok(None),
            Err(error) => Err(answered("the host", &error)),
        }
    }

    async fn kind(&self, called: &str) -> anyhow::Result<Option<Served>> {
        let groups = self.client.list_api_groups().await.map_err(|error| answered("the host", &error))?;
        let preferred = groups.groups.iter().filter_map(|group| {
            let version = group.preferred_version.as_ref().or(group.versions.first())?;
            Some(version.group_version.clone())
        });
        for api_version in ["v1".to_owned()].into_iter().chain(preferred) {
            let Some(list) = self.list(&api_version).await? else { continue };
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            let found = list.resources.iter().find(|one| is_whole(one) && is_called(one, group, called));
            if let Some(found) = found {
                return Ok(Some(served(&api_version, found)));
            }
        }
        Ok(None)
    }
}

/// Whether it is a resource, not a part of one.
fn is_whole(resource: &APIResource) -> bool {
    !resource.name.contains('/')
}

fn is_called(resource: &APIResource, group: &str, called: &str) -> bool {
    let called = called.to_lowercase();
    let (name, wanted) =
        called.split_once('.').map_or((called.as_str(), None), |(name, group)| (name, Some(group)));
    let short = resource.short_names.iter().flatten().any(|short| short == name);
    let named = resource.name == name
        || resource.singular_name == name
        || resource.kind.to_lowercase() == name
        || short;
    named && wanted.is_none_or(|wanted| wanted == group)
}

fn served(api_version: &str, resource: &APIResource) -> Served {
    let whole = super::resource((api_version, &resource.kind, &resource.name));
    Served { resource: whole, namespaced: resource.namespaced }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_many_names() {
        let deployments = APIResource {
            name: "deployments".into(),
            singular_name: "deployment".into(),
            kind: "Deployment".into(),
            short_names: Some(vec!["deploy".into()]),
            ..APIResource::default()
        };
        for (called, expected) in [
            ("deployment", true),
            ("Deployment", true),
            ("deployments", true),
            ("deploy", true),
            ("deployments.apps", true),
            ("deployments.extensions", false),
            ("dep", false),
        ] {
            assert_eq!(is_called(&deployments, "apps", called), expected, "{called}");
        }
    }
}
