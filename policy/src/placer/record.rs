//! What was decided, where people look: a ResourceBinding beside the workload.

use std::collections::BTreeMap;

use federlet_provider::errors::brief;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Shared, plan::Plan};
use crate::{
    api::{ObjectReference, ResourceBinding, ResourceBindingSpec, ResourceBindingStatus, TargetCluster},
    govern::{GENERATION, Governed},
    owners::Meta,
};

const FIELD_MANAGER: &str = "federlet-placer";
const SCHEDULED: &str = "Scheduled";

/// The name of the binding of an object, as Karmada makes it.
#[must_use]
pub(super) fn binding_name(workload: &Meta) -> String {
    format!("{}-{}", workload.identity.name, workload.identity.kind).to_lowercase().replace(':', ".")
}

impl Shared {
    /// Writes the decision, if it is another one than before.
    pub(super) async fn record(&self, workload: &Meta, governed: &Governed, plan: &Plan, count: usize) {
        let before = self.bindings.get(&workload.uid);
        if let Err(error) = self.write(workload, governed, plan, count, before.as_deref()).await {
            let name = &workload.identity.name;
            tracing::warn!(workload = name, error = brief(&error), "cannot record what was decided");
        }
    }

    async fn write(
        &self,
        workload: &Meta,
        governed: &Governed,
        plan: &Plan,
        count: usize,
        before: Option<&ResourceBinding>,
    ) -> Result<(), kube::Error> {
        let api: Api<ResourceBinding> = Api::namespaced(self.client.clone(), &workload.identity.namespace);
        let name = binding_name(workload);
        let spec = spec(workload, governed, plan, count, before.map(|binding| &binding.spec));
        let labels = governed.claim.labels();
        let mut annotations = governed.claim.annotations();
        annotations.insert(GENERATION.into(), workload.generation.to_string());
        let same = before.is_some_and(|before| {
            before.spec == spec && has(before.labels(), &labels) && has(before.annotations(), &annotations)
        });
        let binding = match before.filter(|_| same) {
            Some(before) => before.clone(),
            None => {
                let identity = &workload.identity;
                let mut applied = json!({
                    "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                    "metadata": {
                        "name": name, "namespace": identity.namespace, "labels": labels, "annotations": annotations,
                        "ownerReferences": [{
                            "apiVersion": identity.api_version, "kind": identity.kind, "name": identity.name,
                            "uid": workload.uid, "controller": true,
                        }],
                    },
                    "spec": spec,
                });
                if applied["spec"].get("clusters").is_none() {
                    applied["spec"]["clusters"] = json!([]);
                }
                let made = api
                    .patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&applied))
                    .await?;
                self.bindings.note(made.clone());
                made
            }
        };
        let status = binding.status.clone().unwrap_or_default();
        let wanted = status_of(&status, plan, Timestamp::now());
        if wanted != status {
            let patch = json!({ "status": wanted });
            let made = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            self.bindings.note(made);
        }
        Ok(())
    }
}

fn has(there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| there.get(key) == Some(value))
}

/// What others wrote into the binding stays.
fn spec(
    workload: &Meta,
    governed: &Governed,
    plan: &Plan,
    count: usize,
    before: Option<&ResourceBindingSpec>,
) -> ResourceBindingSpec {
    let identity = &workload.identity;
    let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let mut spec = before.cloned().unwrap_or_default();
    spec.resource = ObjectReference {
        api_version: identity.api_version.clone(),
        kind: identity.kind.clone(),
        namespace: identity.namespace.clone(),
        name: identity.name.clone(),
        uid: workload.uid.clone(),
        resource_version: String::new(),
    };
    spec.replicas = i32::try_from(count).unwrap_or(i32::MAX);
    spec.clusters = plan
        .shares
        .iter()
        .map(|(name, share)| TargetCluster { name: name.clone(), replicas: number(*share) })
        .collect();
    spec.copies = if plan.copied { spec.clusters.iter().map(|target| target.replicas).sum() } else { 0 };
    spec.placement = Some(governed.placement.clone());
    spec.scheduler_name = governed.scheduler.clone().unwrap_or_default();
    if let Some(policy) = &governed.spec {
        spec.propagate_deps = policy.propagate_deps;
        spec.conflict_resolution = policy.conflict_resolution;
        spec.failover.clone_from(&policy.failover);
        spec.preserve_resources_on_deletion = policy.preserve_resources_on_deletion;
    }
    spec
}

fn status_of(before: &ResourceBindingStatus, plan: &Plan, now: Timestamp) -> ResourceBindingStatus {
    let (value, reason, message) = match &plan.waiting {
        None => ("True", "Success", "Binding has been scheduled successfully.".to_owned()),
        Some(waiting) => ("False", waiting.reason, waiting.message.clone()),
    };
    let mut status = before.clone();
    let last = status.conditions.iter().find(|condition| condition.type_ == SCHEDULED).cloned();
    let same = last.as_ref().is_some_and(|last| {
        (last.status.as_str(), last.reason.as_str(), last.message.as_str())
            == (value, reason, message.as_str())
    });
    if !same {
        let since = last.filter(|last| last.status == value).map(|last| last.last_transition_time);
        status.conditions.retain(|condition| condition.type_ != SCHEDULED);
        status.conditions.push(Condition {
            type_: SCHEDULED.into(),
            status: value.into(),
            reason: reason.into(),
            message,
            last_transition_time: since.unwrap_or(Time(now)),
            observed_generation: None,
        });
        status.last_scheduled_time = Some(Time(now));
    }
    if let Some(affinity) = &plan.affinity {
        status.scheduler_observed_affinity_name.clone_from(affinity);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placer::plan::Waiting;

    #[test]
    fn a_condition_changes_only_when_it_says_something_else() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let waits = |message: &str| Plan {
            waiting: Some(Waiting { reason: "NoClusterFit", message: message.into() }),
            ..Plan::default()
        };
        let first = status_of(&ResourceBindingStatus::default(), &waits("a"), at("2026-01-01T00:00:00Z"));
        assert_eq!(first.conditions[0].reason, "NoClusterFit");
        assert_eq!(status_of(&first, &waits("a"), at("2026-01-02T00:00:00Z")), first);
        let other = status_of(&first, &waits("b"), at("2026-01-02T00:00:00Z"));
        assert_eq!(other.conditions[0].last_transition_time, first.conditions[0].last_transition_time);
        let good = status_of(&other, &Plan::default(), at("2026-01-03T00:00:00Z"));
        assert_eq!(
            (good.conditions[0].status.as_str(), good.conditions[0].reason.as_str()),
            ("True", "Success")
        );
        assert_ne!(good.conditions[0].last_transition_time, first.conditions[0].last_transition_time);
    }

    #[test]
    fn a_binding_is_named_as_karmada_names_it() {
        let mut workload = Meta::default();
        (workload.identity.name, workload.identity.kind) = ("web".into(), "Deployment".into());
        assert_eq!(binding_name(&workload), "web-deployment");
    }
}
