//! What was decided, where people look: a ResourceBinding beside the workload.

use federlet_provider::errors::brief;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Shared, failover::Departures, plan::Plan};
use crate::{
    api::{
        BindingSuspension, ObjectReference, ReplicaRequirements, ResourceBinding, ResourceBindingSpec,
        ResourceBindingStatus, TargetCluster,
    },
    govern::{GENERATION, Governed},
    owners::Meta,
    record::{applied, has},
    store::changed_since,
};

const FIELD_MANAGER: &str = "federlet-placer";
const SCHEDULED: &str = "Scheduled";

/// What was decided for a workload.
pub(super) struct Decided<'a> {
    pub(super) workload: &'a Meta,
    pub(super) governed: &'a Governed,
    pub(super) plan: &'a Plan,
    /// How many pods it has.
    pub(super) count: usize,
    /// The number with which the names of its pods begin, if they have one.
    pub(super) first_ordinal: u32,
    pub(super) departures: &'a Departures,
    /// Whether an autoscaler counts its pods; none if nobody knows.
    pub(super) autoscaled: Option<bool>,
}

impl Shared {
    /// Writes the decision, if it is another one than before. False if it could not be written.
    pub(super) async fn record(&self, decided: &Decided<'_>) -> bool {
        let before = self.bindings.get(&decided.workload.uid);
        let written = self.write(decided, before.as_deref()).await;
        if let Err(error) = &written {
            let name = &decided.workload.identity.name;
            if changed_since(error) {
                tracing::debug!(workload = name, "somebody else wrote its binding, deciding again");
            } else {
                tracing::warn!(workload = name, error = brief(error), "cannot record what was decided");
            }
        }
        written.is_ok()
    }

    async fn write(
        &self,
        decided: &Decided<'_>,
        before: Option<&ResourceBinding>,
    ) -> Result<(), kube::Error> {
        let Decided { workload, governed, plan, .. } = *decided;
        let api: Api<ResourceBinding> = Api::namespaced(self.client.clone(), &workload.identity.namespace);
        let name = self.bindings.name_for(&workload.identity, &workload.uid);
        let spec = spec(decided, before.map(|binding| &binding.spec));
        let labels = governed.claim.labels();
        let mut annotations = governed.claim.annotations();
        annotations.insert(GENERATION.into(), workload.generation.to_string());
        let same = before.is_some_and(|before| {
            before.spec == spec && has(before.labels(), &labels) && has(before.annotations(), &annotations)
        });
        let binding = match before.filter(|_| same) {
            Some(before) => before.clone(),
            None => {
                let applied = applied(
                    &name,
                    (&workload.identity, &workload.uid),
                    &spec,
                    (&labels, &annotations),
                    before,
                );
                let made = api
                    .patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&applied))
                    .await?;
                self.bindings.wrote(made.clone());
                made
            }
        };
        let status = binding.status.clone().unwrap_or_default();
        let wanted = status_of(&status, plan, Timestamp::now());
        if wanted != status {
            let patch = json!({ "status": wanted });
            let made = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            self.bindings.wrote(made);
        }
        Ok(())
    }
}

/// What others wrote into the binding stays.
fn spec(decided: &Decided<'_>, before: Option<&ResourceBindingSpec>) -> ResourceBindingSpec {
    let Decided { workload, governed, plan, count, first_ordinal, departures, autoscaled } = *decided;
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
    spec.first_ordinal = if plan.copied { number(first_ordinal) } else { 0 };
    spec.autoscaled = plan.copied && autoscaled.unwrap_or(spec.autoscaled);
    spec.graceful_eviction_tasks.clone_from(&departures.tasks);
    spec.left_clusters.clone_from(&departures.left);
    spec.placement = Some(governed.placement.clone());
    spec.scheduler_name = governed.scheduler.clone().unwrap_or_default();
    if let Some(policy) = &governed.spec {
        spec.propagate_deps = policy.propagate_deps;
        spec.conflict_resolution = policy.conflict_resolution;
        spec.failover.clone_from(&policy.failover);
        spec.preserve_resources_on_deletion = policy.preserve_resources_on_deletion;
        let mut requirements = spec.replica_requirements.take().unwrap_or_default();
        requirements.priority_class_name = governed.priority_class.clone().unwrap_or_default();
        spec.replica_requirements = Some(requirements).filter(|all| *all != ReplicaRequirements::default());
        let mut suspension = spec.suspension.take().unwrap_or_default();
        suspension.dispatching = policy.suspension.clone().unwrap_or_default();
        spec.suspension = Some(suspension).filter(|all| *all != BindingSuspension::default());
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
}
