//! What a policy says that has no effect here, so that its author is told instead of waiting for it.

use crate::{
    api::{
        ConflictResolution, OverrideSpec, PatchOperator, PriorityClassSource, PropagationSpec,
        ResourceSelector,
    },
    propagate::kinds::may_have_pods,
    workload::pod_path,
};

/// Kinds whose pods are made again when they are taken away.
const COME_BACK: [&str; 4] = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"];

/// Each field that has no effect, and why or what to use instead.
#[must_use]
pub fn without_effect(spec: &PropagationSpec) -> Vec<String> {
    let mut found = vec![];
    let mut note = |says: bool, field: &str, why: &str| {
        if says {
            found.push(format!("spec.{field} has no effect: {why}"));
        }
    };
    note(spec.association, "association", "use propagateDeps");
    note(
        spec.resource_selectors.iter().any(|selector| selector.kind == "ServiceImport"),
        "propagateDeps for ServiceImport",
        "nothing here derives a Service or EndpointSlices from it",
    );
    let failover = spec.failover.as_ref();
    let application = failover.and_then(|failover| failover.application.as_ref());
    let cluster = failover.and_then(|failover| failover.cluster.as_ref());
    let stay = cannot_move(spec);
    if application.is_some() && !stay.is_empty() {
        note(
            true,
            &format!("failover.application for {}", stay.join(", ")),
            "only pods that are made again when they are taken away can move",
        );
    }
    let state = "no state goes from one cluster to another";
    note(
        application.is_some_and(|one| one.state_preservation.is_some()),
        "failover.application.statePreservation",
        state,
    );
    note(
        cluster.is_some_and(|one| one.state_preservation.is_some()),
        "failover.cluster.statePreservation",
        state,
    );
    if cluster.is_some_and(|one| one.purge_mode.is_graceful()) && !stay.is_empty() {
        note(
            true,
            &format!("failover.cluster.purgeMode for {}", stay.join(", ")),
            "pods that nobody makes again go as soon as their tolerations end",
        );
    }
    if let Some(priority) = &spec.schedule_priority {
        match priority.priority_class_source {
            PriorityClassSource::FederatedPriorityClass => {
                note(true, "schedulePriority", "there is no FederatedPriorityClass; use KubePriorityClass");
            }
            PriorityClassSource::KubePriorityClass => {
                note(priority.priority_class_name.is_empty(), "schedulePriority", "it names no class");
                note(
                    spec.resource_selectors.iter().all(|one| !has_pods(one)),
                    "schedulePriority",
                    "nothing that the policy selects has pods",
                );
            }
            // It is what pods do in any case.
            PriorityClassSource::PodPriorityClass => {}
        }
    }
    let mut note_for = |says: bool, field: &str, kinds: &[&str], why: &str| {
        if says && !kinds.is_empty() {
            found.push(format!("spec.{field} for {} has no effect: {why}", kinds.join(", ")));
        }
    };
    let with_pods = kinds(spec, has_pods);
    note_for(
        spec.preserve_resources_on_deletion == Some(true),
        "preserveResourcesOnDeletion",
        &with_pods,
        "pods go with their workload, unless members run it",
    );
    note_for(
        spec.conflict_resolution == ConflictResolution::Overwrite,
        "conflictResolution",
        &with_pods,
        "pods never take the place of others, unless members make them",
    );
    // Pods may come from a custom resource, so of that nobody can say.
    let without_pods = kinds(spec, |one| !may_have_pods(&one.api_version, &one.kind));
    let not_placed =
        kinds(spec, |one| one.kind == "DaemonSet" || !may_have_pods(&one.api_version, &one.kind));
    note_for(
        spec.placement.workload_affinity.is_some(),
        "placement.workloadAffinity",
        &not_placed,
        "only pods that are placed are kept together or apart",
    );
    note_for(
        spec.scheduler_name != PropagationSpec::DEFAULT_SCHEDULER && !spec.scheduler_name.is_empty(),
        "schedulerName",
        &without_pods,
        "only pods have a scheduler",
    );
    found
}

/// Each rule of an override policy that has no effect, and why.
#[must_use]
pub fn overrides_without_effect(spec: &OverrideSpec) -> Vec<String> {
    let former = spec.overriders.iter().map(|overriders| ("overriders".to_owned(), overriders));
    let rules = spec.override_rules.iter().enumerate();
    let rules = rules.map(|(index, rule)| (format!("overrideRules[{index}].overriders"), &rule.overriders));
    let mut found = vec![];
    for (path, overriders) in former.chain(rules) {
        for (index, image) in overriders.image_overrider.iter().enumerate() {
            if image.operator == PatchOperator::Add && image.value.is_empty() {
                found.push(format!("spec.{path}.imageOverrider[{index}] has no effect: it has no value"));
            }
        }
    }
    found
}

/// Kinds that cannot leave a cluster because they are not healthy there: workloads whose pods do not come back, and
/// objects without pods unless they are only there beside others.
fn cannot_move(spec: &PropagationSpec) -> Vec<&str> {
    let can = |one: &ResourceSelector| has_pods(one) && COME_BACK.contains(&one.kind.as_str());
    let any_can = spec.resource_selectors.iter().any(can);
    let cannot = spec.resource_selectors.iter().filter(|one| !can(one) && (has_pods(one) || !any_can));
    let mut kinds: Vec<&str> = cannot.map(|one| one.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The kinds of some of the selectors.
fn kinds(spec: &PropagationSpec, which: impl Fn(&ResourceSelector) -> bool) -> Vec<&str> {
    let mut kinds: Vec<&str> =
        spec.resource_selectors.iter().filter(|one| which(one)).map(|one| one.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn has_pods(selector: &ResourceSelector) -> bool {
    pod_path(&selector.api_version, &selector.kind).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(kind: (&str, &str), extra: Value) -> Vec<String> {
        let mut spec = json!({"resourceSelectors": [{"apiVersion": kind.0, "kind": kind.1}]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        without_effect(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn fields_without_effect_are_told_and_others_are_not() {
        let (deployment, job, map) = (("apps/v1", "Deployment"), ("batch/v1", "Job"), ("v1", "ConfigMap"));
        let custom = ("example.com/v1", "Widget");
        let application =
            json!({"failover": {"application": {"decisionConditions": {}}}, "propagateDeps": true});
        let priority = |source: &str, name: &str| json!({"schedulePriority": {"priorityClassSource": source, "priorityClassName": name}});
        let together =
            json!({"placement": {"workloadAffinity": {"antiAffinity": {"groupByLabelKey": "app"}}}});
        for (kind, extra, told) in [
            (deployment, json!({}), ""),
            (deployment, json!({"association": true}), "association"),
            (deployment, application.clone(), ""),
            (custom, application.clone(), "failover.application for Widget"),
            (job, application.clone(), "failover.application for Job"),
            (map, application, "failover.application for ConfigMap"),
            (
                deployment,
                json!({"failover": {"application": {"decisionConditions": {}, "statePreservation": {"rules": []}}}}),
                "failover.application.statePreservation",
            ),
            (deployment, json!({"failover": {"cluster": {"purgeMode": "Directly"}}}), ""),
            (deployment, json!({"failover": {"cluster": {"purgeMode": "Gracefully"}}}), ""),
            (job, json!({"failover": {"cluster": {"purgeMode": "Directly"}}}), ""),
            (
                job,
                json!({"failover": {"cluster": {"purgeMode": "Gracefully"}}}),
                "failover.cluster.purgeMode for Job",
            ),
            (deployment, priority("KubePriorityClass", "high"), ""),
            (deployment, priority("KubePriorityClass", ""), "schedulePriority"),
            (map, priority("KubePriorityClass", "high"), "schedulePriority"),
            (deployment, priority("PodPriorityClass", ""), ""),
            (deployment, priority("FederatedPriorityClass", "high"), "schedulePriority"),
            (
                deployment,
                json!({"preserveResourcesOnDeletion": true, "propagateDeps": true}),
                "preserveResourcesOnDeletion for Deployment",
            ),
            (map, json!({"preserveResourcesOnDeletion": true}), ""),
            (deployment, json!({"conflictResolution": "Overwrite"}), "conflictResolution for Deployment"),
            (map, json!({"conflictResolution": "Overwrite"}), ""),
            (deployment, together.clone(), ""),
            (custom, together.clone(), ""),
            (("apps/v1", "DaemonSet"), together.clone(), "placement.workloadAffinity for DaemonSet"),
            (map, together, "placement.workloadAffinity for ConfigMap"),
            (deployment, json!({"schedulerName": "mine"}), ""),
            (map, json!({"schedulerName": "mine"}), "schedulerName for ConfigMap"),
            (map, json!({"schedulerName": "default-scheduler"}), ""),
            (
                ("multicluster.x-k8s.io/v1alpha1", "ServiceImport"),
                json!({}),
                "propagateDeps for ServiceImport",
            ),
            (deployment, json!({"suspension": {"dispatchingOnClusters": {"clusterNames": ["a"]}}}), ""),
        ] {
            let found = of(kind, extra.clone());
            match told {
                "" => assert!(found.is_empty(), "{kind:?} {extra}: {found:?}"),
                field => {
                    assert_eq!(found.len(), 1, "{kind:?} {extra}: {found:?}");
                    assert!(found[0].starts_with(&format!("spec.{field} has no effect: ")), "{found:?}");
                }
            }
        }
    }

    #[test]
    fn it_is_told_for_the_kinds_that_it_is_about() {
        let spec = json!({"conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true, "resourceSelectors": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet"}, {"apiVersion": "v1", "kind": "Service"},
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, {"apiVersion": "apps/v1", "kind": "Deployment"}]});
        let found = without_effect(&serde_json::from_value(spec).unwrap());
        assert_eq!(found.len(), 2, "{found:?}");
        for (field, said) in ["preserveResourcesOnDeletion", "conflictResolution"].into_iter().zip(&found) {
            assert!(
                said.starts_with(&format!("spec.{field} for Deployment, StatefulSet has no effect: ")),
                "{said}"
            );
        }
    }

    #[test]
    fn an_image_rule_that_adds_nothing_is_told() {
        for (rule, told) in [
            (json!({"component": "Registry", "operator": "add"}), true),
            (json!({"component": "Registry", "operator": "replace"}), false),
            (json!({"component": "Tag", "operator": "remove"}), false),
            (json!({"component": "Tag", "operator": "add", "value": "-a"}), false),
        ] {
            let spec = json!({"overrideRules": [{"overriders": {"imageOverrider": [rule]}}]});
            let found = overrides_without_effect(&serde_json::from_value(spec).unwrap());
            let expected =
                "spec.overrideRules[0].overriders.imageOverrider[0] has no effect: it has no value";
            assert_eq!(found, Vec::from_iter(told.then_some(expected)), "{rule}");
        }
    }
}
