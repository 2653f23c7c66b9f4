//! What a policy must say, beyond what its schema can check, and what it means when it says nothing.
//!
//! The messages are those that Karmada's users know.

mod overrides;

pub use overrides::overrides;

use crate::{
    api::{
        ClusterAffinity, FieldSelector, Placement, Preemption, PropagationSpec, ReplicaDivisionPreference,
        ReplicaSchedulingType, ResourceSelector, SpreadConstraint, SpreadField,
    },
    labels,
};

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Violation {
    /// The field, as in `spec.placement.spreadConstraints[0]`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// Collects what is wrong.
#[derive(Debug, Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation { path: path.into(), message: message.into() });
    }

    fn unless(&mut self, holds: bool, path: impl Into<String>, message: &str) {
        if !holds {
            self.add(path, message);
        }
    }
}

/// Fills in what a propagation policy means when it says nothing. `namespace` is that of a PropagationPolicy.
pub fn default_propagation(namespace: Option<&str>, spec: &mut PropagationSpec) {
    default_namespaces(namespace, &mut spec.resource_selectors);
    if spec.resource_selectors.iter().any(|selector| selector.kind == "ServiceImport") {
        spec.propagate_deps = true;
    }
    for constraint in &mut spec.placement.spread_constraints {
        if constraint.spread_by_field.is_none() && constraint.spread_by_label.is_empty() {
            constraint.spread_by_field = Some(SpreadField::Cluster);
        }
        if constraint.min_groups == 0 {
            constraint.min_groups = 1;
        }
    }
    if let Some(scheduling) = &mut spec.placement.replica_scheduling
        && scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
    {
        scheduling.replica_division_preference.get_or_insert(ReplicaDivisionPreference::Weighted);
    }
    if let Some(application) = spec.failover.as_mut().and_then(|failover| failover.application.as_mut())
        && application.purge_mode.is_graceful()
    {
        application.grace_period_seconds.get_or_insert(600);
    }
}

/// Lets selectors of a namespaced policy mean its own namespace.
pub fn default_namespaces(namespace: Option<&str>, selectors: &mut [ResourceSelector]) {
    let Some(namespace) = namespace else { return };
    for selector in selectors.iter_mut().filter(|selector| selector.namespace.is_empty()) {
        namespace.clone_into(&mut selector.namespace);
    }
}

/// Says what is wrong with a propagation policy. `namespace` is that of a PropagationPolicy.
#[must_use]
pub fn propagation(namespace: Option<&str>, spec: &PropagationSpec) -> Vec<Violation> {
    let mut found = Violations::default();
    found.unless(
        !spec.resource_selectors.is_empty(),
        "spec.resourceSelectors",
        "must have at least one item",
    );
    selectors(namespace, &spec.resource_selectors, &mut found);
    if spec.preemption == Preemption::Always {
        for (index, selector) in spec.resource_selectors.iter().enumerate() {
            found.unless(
                !selector.name.is_empty(),
                format!("spec.resourceSelectors[{index}].name"),
                "name cannot be empty if preemption is Always, the empty name may cause unexpected resources preemption",
            );
        }
    }
    placement(&spec.placement, &mut found);
    failover(spec, &mut found);
    if let Some(suspension) = &spec.suspension {
        let some = suspension.dispatching_on_clusters.as_ref().is_some_and(|on| !on.cluster_names.is_empty());
        found.unless(
            suspension.dispatching != Some(true) || !some,
            "spec.suspension",
            "suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames",
        );
    }
    found.0
}

/// Says what is wrong with a change of a propagation policy.
#[must_use]
pub fn propagation_update(old: &PropagationSpec, new: &PropagationSpec) -> Vec<Violation> {
    let mut found = Violations::default();
    let same = old.scheduler_name == new.scheduler_name;
    found.unless(same, "spec.schedulerName", "the schedulerName should not be updated");
    found.0
}

/// Says what is wrong with a change of the id that claims carry, from what it was to what it shall be.
#[must_use]
pub fn permanent_id_update(label: &str, old: Option<&str>, new: Option<&str>) -> Option<Violation> {
    (old != new).then(|| Violation {
        path: "metadata.labels".to_owned(),
        message: format!("label {label} is immutable, it can only be set by the system during creation"),
    })
}

fn selectors(namespace: Option<&str>, selectors: &[ResourceSelector], found: &mut Violations) {
    for (index, selector) in selectors.iter().enumerate() {
        let path = format!("spec.resourceSelectors[{index}]");
        found.unless(!selector.api_version.is_empty(), format!("{path}.apiVersion"), "must not be empty");
        found.unless(!selector.kind.is_empty(), format!("{path}.kind"), "must not be empty");
        let reach = namespace.is_none_or(|own| selector.namespace.is_empty() || selector.namespace == own);
        found.unless(
            reach,
            format!("{path}.namespace"),
            "namespace of resource selector must be the same as the namespace of the policy",
        );
        if let Some(Err(error)) = selector.label_selector.as_ref().map(labels::check) {
            found.add(format!("{path}.labelSelector"), error.to_string());
        }
    }
}

fn placement(placement: &Placement, found: &mut Violations) {
    let path = "spec.placement";
    let groups = &placement.cluster_affinities;
    found.unless(
        placement.cluster_affinity.is_none() || groups.is_empty(),
        path,
        "clusterAffinities cannot co-exist with clusterAffinity",
    );
    if let Some(affinity) = &placement.cluster_affinity {
        self::affinity(affinity, &format!("{path}.clusterAffinity"), found);
    }
    let mut names = std::collections::BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        let path = format!("{path}.clusterAffinities[{index}]");
        self::affinity(&group.affinity, &path, found);
        let tiers = group.overflow_affinities.iter().map(|tier| &tier.affinity_name);
        for name in std::iter::once(&group.affinity_name).chain(tiers) {
            found.unless(
                names.insert(name),
                path.clone(),
                "each affinity term in a policy must have a unique name",
            );
            found.unless(
                (1..=32).contains(&name.len()),
                path.clone(),
                "affinityName must have 1 to 32 characters",
            );
        }
        for (tier, overflow) in group.overflow_affinities.iter().enumerate() {
            self::affinity(&overflow.affinity, &format!("{path}.overflowAffinities[{tier}]"), found);
        }
        if !group.overflow_affinities.is_empty() {
            found.unless(
                can_overflow(placement),
                path.clone(),
                "overflowAffinities can only be used together with dynamic weight or aggregated scheduling",
            );
            found.unless(
                group.affinity != ClusterAffinity::default(),
                path,
                "overflowAffinities can only be used together with the inline ClusterAffinity",
            );
        }
    }
    for (index, toleration) in placement.cluster_tolerations.iter().enumerate() {
        let operator = toleration.operator.as_deref().unwrap_or("Equal");
        found.unless(
            matches!(operator, "Equal" | "Exists"),
            format!("{path}.clusterTolerations[{index}].operator"),
            "must be Equal or Exists",
        );
    }
    spread(&placement.spread_constraints, found);
    if let Some(workloads) = &placement.workload_affinity
        && let (Some(near), Some(apart)) = (&workloads.affinity, &workloads.anti_affinity)
    {
        found.unless(
            near.group_by_label_key != apart.group_by_label_key,
            format!("{path}.workloadAffinity"),
            "affinity and antiAffinity must not use the same groupByLabelKey",
        );
    }
}

fn can_overflow(placement: &Placement) -> bool {
    placement.replica_scheduling.as_ref().is_some_and(|scheduling| {
        let dynamic =
            || scheduling.weight_preference.as_ref().is_some_and(|weights| weights.dynamic_weight.is_some());
        scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
            && (scheduling.replica_division_preference == Some(ReplicaDivisionPreference::Aggregated)
                || dynamic())
    })
}

/// Says what is wrong with a set of clusters.
fn affinity(affinity: &ClusterAffinity, path: &str, found: &mut Violations) {
    if let Some(Err(error)) = affinity.label_selector.as_ref().map(labels::check) {
        found.add(format!("{path}.labelSelector"), error.to_string());
    }
    let fields =
        affinity.field_selector.iter().flat_map(|FieldSelector { match_expressions }| match_expressions);
    for (index, field) in fields.enumerate() {
        let path = format!("{path}.fieldSelector.matchExpressions[{index}]");
        if !["provider", "region", "zone"].contains(&field.key.as_str()) {
            found.add(
                format!("{path}.key"),
                format!("unsupported key {:?}, must be provider, region, or zone", field.key),
            );
        }
        if !["In", "NotIn"].contains(&field.operator.as_str()) {
            let message = format!("unsupported operator {:?}, must be In or NotIn", field.operator);
            found.add(format!("{path}.operator"), message);
        }
    }
}

fn spread(constraints: &[SpreadConstraint], found: &mut Violations) {
    let path = "spec.placement.spreadConstraints";
    let mut fields = std::collections::BTreeSet::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (min, max) = (constraint.min_groups, constraint.max_groups);
        let both = constraint.spread_by_field.is_some() && !constraint.spread_by_label.is_empty();
        found.unless(!both, path.clone(), "spreadByLabel should not co-exist with spreadByField");
        found.unless(min >= 0, path.clone(), "minGroups lower than 0 is not allowed");
        found.unless(max >= 0, path.clone(), "maxGroups lower than 0 is not allowed");
        found.unless(max <= 0 || max >= min, path.clone(), "maxGroups lower than minGroups is not allowed");
        if let Some(field) = constraint.spread_by_field
            && !fields.insert(field)
        {
            let name = serde_json::to_value(field).ok().and_then(|name| Some(name.as_str()?.to_owned()));
            found.add(
                path,
                format!("multiple {} spread constraints are not allowed", name.unwrap_or_default()),
            );
        }
    }
    found.unless(
        fields.is_empty() || fields.contains(&SpreadField::Cluster),
        path,
        "the cluster spread constraint must be enabled in one of the constraints in case of SpreadByField is enabled",
    );
}

fn failover(spec: &PropagationSpec, found: &mut Violations) {
    let Some(application) = spec.failover.as_ref().and_then(|failover| failover.application.as_ref()) else {
        return;
    };
    let path = "spec.failover.application";
    found.unless(
        spec.propagate_deps,
        "spec.propagateDeps",
        "application failover is set, propagateDeps must be true",
    );
    found.unless(
        application.decision_conditions.toleration_seconds >= 0,
        format!("{path}.decisionConditions.tolerationSeconds"),
        "must be greater than or equal to 0",
    );
    let grace = format!("{path}.gracePeriodSeconds");
    match (application.purge_mode.is_graceful(), application.grace_period_seconds) {
        (false, Some(_)) => found.add(grace, "only takes effect when purgeMode is gracefully"),
        (true, None) => found.add(grace, "should not be empty when purgeMode is gracefully"),
        (true, Some(seconds)) => found.unless(seconds > 0, grace, "must be greater than 0"),
        (false, None) => {}
    }
}

#[cfg(test)]
mod tests;
