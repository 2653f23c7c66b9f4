//! What was decided, where people look: a ResourceBinding, or a ClusterResourceBinding for what has no namespace.

use std::collections::BTreeMap;

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};

use super::{Shared, wanted::Wanted};
use crate::{
    api::{ClusterResourceBinding, ObjectReference, ResourceBinding, ResourceBindingSpec, TargetCluster},
    claim::Claim,
    govern::GENERATION,
    record::{applied, has},
    store::from_cluster,
};

/// By this name the host remembers what is ours in a binding.
const FIELD_MANAGER: &str = "federlet-objects";

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
        let bindings = if object.namespace.is_empty() { &self.cluster_bindings } else { &self.bindings };
        let name = bindings.name_for(object, &wanted.seen.uid);
        let applied = applied(&name, (object, &wanted.seen.uid), &spec, (&labels, &annotations), before);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        if object.namespace.is_empty() {
            let api: Api<ClusterResourceBinding> = Api::all(self.client.clone());
            let made = api.patch(&name, &params, &Patch::Apply(&applied)).await?;
            self.cluster_bindings.note(from_cluster(made));
        } else {
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
    // Where it only goes along is said by those that need it: when they go, what is its own must stay known.
    let own = wanted.clusters.iter().filter(|(name, _)| wanted.own.contains(*name));
    spec.clusters = own
        .map(|(name, part)| TargetCluster { name: name.clone(), replicas: part.replicas.map_or(0, number) })
        .collect();
    spec.placement.clone_from(&wanted.placement);
    spec.required_by.clone_from(&wanted.required_by);
    spec.propagate_deps = wanted.propagate_deps;
    spec.conflict_resolution = wanted.resolution;
    spec.preserve_resources_on_deletion = wanted.preserve.then_some(true);
    spec
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{object::Identity, propagate::wanted::Seen};

    fn wanted(namespace: &str) -> Wanted {
        let identity = Identity { namespace: namespace.into(), name: "c".into(), ..Identity::default() };
        let clusters = ["m1", "m2"].map(|name| (name.to_owned(), Default::default()));
        Wanted {
            seen: Arc::new(Seen { identity, uid: "u".into(), ..Seen::default() }),
            clusters: clusters.into(),
            own: ["m1".to_owned()].into(),
            ..Wanted::default()
        }
    }

    #[test]
    fn only_its_own_clusters_are_recorded_as_such() {
        let clusters = spec(&wanted("n"), None).clusters;
        assert_eq!(clusters.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), ["m1"]);
    }
}
