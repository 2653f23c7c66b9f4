//! What was decided, where people look: a ResourceBinding, or a ClusterResourceBinding for what has no namespace.

use std::collections::BTreeMap;

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use super::{Shared, wanted::Wanted};
use crate::{
    api::{ClusterResourceBinding, ObjectReference, ResourceBinding, ResourceBindingSpec, TargetCluster},
    claim::Claim,
    govern::GENERATION,
    object::Identity,
    store::from_cluster,
};

/// By this name the host remembers what is ours in a binding.
const FIELD_MANAGER: &str = "federlet-objects";

/// The name of the binding of an object, as Karmada makes it.
pub(super) fn binding_name(object: &Identity) -> String {
    format!("{}-{}", object.name, object.kind).to_lowercase().replace(':', ".")
}

impl Shared {
    /// Writes the decision, if it is another one than before.
    pub(super) async fn record(
        &self,
        wanted: &Wanted,
        before: Option<&ResourceBinding>,
    ) -> Result<(), kube::Error> {
        let object = &wanted.seen.identity;
        let spec = spec(wanted, before.map(|binding| &binding.spec));
        let (labels, annotations) = claimed(wanted);
        let same = before.is_some_and(|before| {
            let gone =
                |there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>, ours: &[&str]| {
                    ours.iter().all(|key| there.contains_key(*key) == wanted.contains_key(*key))
                };
            before.spec == spec
                && has(before.labels(), &labels)
                && has(before.annotations(), &annotations)
                && gone(before.labels(), &labels, &Claim::LABELS)
                && gone(before.annotations(), &annotations, &Claim::ANNOTATIONS)
        });
        if same || !self.leading.holds() {
            return Ok(());
        }
        let name = binding_name(object);
        let kind = if object.namespace.is_empty() { "ClusterResourceBinding" } else { "ResourceBinding" };
        let mut applied = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": kind,
            "metadata": {
                "name": name, "labels": labels, "annotations": annotations,
                // It goes with its object.
                "ownerReferences": [{
                    "apiVersion": object.api_version, "kind": object.kind, "name": object.name,
                    "uid": wanted.seen.uid, "controller": true,
                }],
            },
            "spec": spec,
        });
        if applied["spec"].get("clusters").is_none() {
            applied["spec"]["clusters"] = json!([]);
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        if object.namespace.is_empty() {
            let api: Api<ClusterResourceBinding> = Api::all(self.client.clone());
            let made = api.patch(&name, &params, &Patch::Apply(&applied)).await?;
            self.cluster_bindings.note(from_cluster(made));
        } else {
            applied["metadata"]["namespace"] = json!(object.namespace);
            let api: Api<ResourceBinding> = Api::namespaced(self.client.clone(), &object.namespace);
            let made = api.patch(&name, &params, &Patch::Apply(&applied)).await?;
            self.bindings.note(made);
        }
        Ok(())
    }

    /// Takes away the binding of an object that nobody wants anywhere.
    pub(super) async fn unrecord(&self, binding: &ResourceBinding) -> Result<(), kube::Error> {
        if !self.leading.holds() {
            return Ok(());
        }
        let only_this = Preconditions { uid: binding.uid(), resource_version: None };
        let params = DeleteParams::background().preconditions(only_this);
        let name = binding.name_any();
        let answer = match binding.namespace() {
            Some(namespace) => {
                let api: Api<ResourceBinding> = Api::namespaced(self.client.clone(), &namespace);
                api.delete(&name, &params).await.map(drop)
            }
            None => {
                let api: Api<ClusterResourceBinding> = Api::all(self.client.clone());
                api.delete(&name, &params).await.map(drop)
            }
        };
        match answer {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            answer => answer,
        }
    }
}

fn claimed(wanted: &Wanted) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let labels = wanted.claim.as_ref().map(Claim::labels).unwrap_or_default();
    let mut annotations = wanted.claim.as_ref().map(Claim::annotations).unwrap_or_default();
    annotations.extend(wanted.revision.clone().map(|revision| (GENERATION.to_owned(), revision)));
    (labels, annotations)
}

fn has(there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| there.get(key) == Some(value))
}

/// What others wrote into the binding stays.
fn spec(wanted: &Wanted, before: Option<&ResourceBindingSpec>) -> ResourceBindingSpec {
    let object = &wanted.seen.identity;
    let mut spec = before.cloned().unwrap_or_default();
    spec.resource = ObjectReference {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: wanted.seen.uid.clone(),
        resource_version: String::new(),
    };
    let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    spec.replicas = crate::workload::replicas(&wanted.template).map_or(0, number);
    spec.clusters = wanted
        .clusters
        .iter()
        .map(|(name, part)| TargetCluster { name: name.clone(), replicas: part.replicas.map_or(0, number) })
        .collect();
    spec.placement.clone_from(&wanted.placement);
    spec.required_by.clone_from(&wanted.required_by);
    spec.propagate_deps = wanted.propagate_deps;
    spec.conflict_resolution = wanted.resolution;
    spec.preserve_resources_on_deletion = wanted.preserve.then_some(true);
    spec
}
