//! How many more replicas a cluster has room for, by what it says about itself.
//!
//! As Karmada's own estimator counts: what is allocatable without what is allocated and asked for, divided by what one
//! replica asks for, and never more than there is room for pods. If no machine of the cluster has room for a whole replica,
//! none fits, however much the machines have together. If the cluster counts its nodes by grades of size, the
//! smallest node of each grade is what counts.

use std::collections::BTreeMap;

use federlet_provider::{
    capacity::{Resources, requests},
    quantity::Quantity,
};
use k8s_openapi::apimachinery::pkg::{api::resource, util::intstr::IntOrString};
use serde_json::{Value, json};

use crate::{
    api::{Cluster, ResourceSummary},
    workload,
};

/// Annotation of a Cluster that says how many more replicas it has room for, whatever its status says.
pub const AVAILABLE_REPLICAS: &str = "federlet.io/available-replicas";

const PODS: &str = "pods";
const CPU: &str = "cpu";

/// The annotation is not a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {AVAILABLE_REPLICAS} is {0:?}: give a whole number of replicas")]
pub struct NotANumber(String);

/// The room that the annotation of a cluster states, if it has one.
pub fn stated(cluster: &Cluster) -> Result<Option<u32>, NotANumber> {
    let text = cluster.metadata.annotations.as_ref().and_then(|all| all.get(AVAILABLE_REPLICAS));
    text.map(|text| text.trim().parse().map_err(|_| NotANumber(text.clone()))).transpose()
}

/// What one replica of an object asks for. A limit without a request is a request.
#[must_use]
pub fn replica(object: &Value) -> Resources {
    let pod = workload::pod_path_of(object).and_then(|path| object.pointer(path));
    let mut spec = pod.and_then(|pod| pod.get("spec")).cloned().unwrap_or(Value::Null);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
            let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else {
                continue;
            };
            let asked = resources.entry("requests").or_insert_with(|| json!({}));
            let Some(asked) = asked.as_object_mut() else { continue };
            for (name, limit) in limits.into_iter().flatten() {
                asked.entry(name).or_insert(limit);
            }
        }
    }
    requests(&json!({ "spec": spec }))
}

/// How many more replicas a cluster has room for. One that says nothing about its room has none.
#[must_use]
pub fn room(cluster: &Cluster, replica: &Resources) -> u32 {
    let Some(summary) = cluster.status.as_ref().and_then(|status| status.resource_summary.as_ref()) else {
        return 0;
    };
    let pods = free(summary, PODS).map_or(0, Quantity::to_units);
    if pods <= 0 {
        return 0;
    }
    let asked: Vec<(&str, Quantity)> =
        replica.iter().filter(|(name, amount)| *name != PODS && amount.to_units() > 0).collect();
    if asked.iter().any(|(name, amount)| largest(summary, name).is_some_and(|free| free < *amount)) {
        return 0;
    }
    let by_grade =
        if summary.allocatable_modelings.is_empty() { None } else { by_grades(cluster, summary, &asked) };
    let fits = by_grade.unwrap_or_else(|| by_sum(summary, &asked));
    u32::try_from(fits.min(pods).max(0)).unwrap_or(u32::MAX).min(i32::MAX.unsigned_abs())
}

fn by_sum(summary: &ResourceSummary, asked: &[(&str, Quantity)]) -> i64 {
    let fit = asked.iter().map(|(name, amount)| match free(summary, name) {
        Some(free) if free.to_units() > 0 => times(name, free, *amount),
        _ => 0,
    });
    fit.min().unwrap_or(i64::MAX)
}

/// What is left of a resource; none if the cluster does not have it at all.
fn free(summary: &ResourceSummary, name: &str) -> Option<Quantity> {
    let read = |list: &BTreeMap<String, resource::Quantity>| list.get(name)?.0.parse::<Quantity>().ok();
    let taken = |list| read(list).unwrap_or(Quantity::ZERO);
    Some(read(&summary.allocatable)? - taken(&summary.allocated) - taken(&summary.allocating))
}

/// The most of a resource that one machine has free, if the cluster says so.
fn largest(summary: &ResourceSummary, name: &str) -> Option<Quantity> {
    summary.largest_free.get(name)?.0.parse().ok()
}

/// How often an amount fits. Processors are counted in thousandths, all else in whole units.
fn times(name: &str, free: Quantity, amount: Quantity) -> i64 {
    let step = if name == CPU { Quantity::milli(1) } else { Quantity::units(1) };
    free.steps_up(step).checked_div(amount.steps_up(step)).unwrap_or(0)
}

/// None if the grades say nothing about a resource that is asked for.
fn by_grades(cluster: &Cluster, summary: &ResourceSummary, asked: &[(&str, Quantity)]) -> Option<i64> {
    let smallest = |name: &str| -> Vec<Quantity> {
        let ranges = cluster.spec.resource_models.iter().flat_map(|model| &model.ranges);
        ranges.filter(|range| range.name == name).filter_map(|range| amount(&range.min)).collect()
    };
    let grades: Vec<(&str, Quantity, Vec<Quantity>)> =
        asked.iter().map(|(name, amount)| (*name, *amount, smallest(name))).collect();
    let mut first = 0;
    for (_, amount, grades) in &grades {
        if grades.is_empty() {
            return None;
        }
        // The smallest node of a grade must be large enough, or nobody knows whether the replica fits.
        match grades.iter().position(|smallest| smallest >= amount) {
            Some(fits) => first = first.max(fits),
            None => return Some(0),
        }
    }
    let counts = summary.allocatable_modelings.iter().take(cluster.spec.resource_models.len()).enumerate();
    let each = counts.skip(first).filter(|(_, grade)| grade.count > 0).map(|(index, grade)| {
        let fit =
            grades.iter().filter_map(|(name, amount, all)| Some(times(name, *all.get(index)?, *amount)));
        i64::from(grade.count).saturating_mul(fit.min().unwrap_or(i64::MAX).max(1))
    });
    Some(each.fold(0, i64::saturating_add))
}

fn amount(value: &IntOrString) -> Option<Quantity> {
    match value {
        IntOrString::Int(number) => Some(Quantity::units(i64::from(*number))),
        IntOrString::String(text) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(summary: Value, models: Value) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
            "spec": {"resourceModels": models}, "status": {"resourceSummary": summary},
        }))
        .unwrap()
    }

    fn workload(resources: Value) -> Value {
        let containers = json!([{"name": "a", "resources": resources}]);
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn what_is_left_divided_by_what_is_asked_for() {
        let summary = json!({
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "3"},
            "allocated": {"cpu": "500m", "memory": "1Gi", "pods": "2"},
            "allocating": {"cpu": "500m", "pods": "1"},
        });
        let m1 = cluster(summary, json!([]));
        for (resources, expected) in [
            (json!({}), 7),
            (json!({"requests": {"cpu": "1"}}), 3),
            (json!({"requests": {"cpu": "700m"}}), 4),
            (json!({"requests": {"memory": "2Gi"}}), 3),
            (json!({"requests": {"cpu": "1", "memory": "4Gi"}}), 1),
            (json!({"requests": {"nvidia.com/gpu": "2"}}), 1),
            (json!({"limits": {"nvidia.com/gpu": 1}}), 3),
            (json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}), 3),
            (json!({"requests": {"cpu": "0"}}), 7),
            (json!({"requests": {"example.com/disk": "1"}}), 0),
            (json!({"requests": {"cpu": "1m"}}), 7),
        ] {
            assert_eq!(room(&m1, &replica(&workload(resources.clone()))), expected, "{resources}");
        }
    }

    #[test]
    fn what_no_machine_has_room_for_does_not_fit_however_much_they_have_together() {
        let summary = json!({
            "allocatable": {"cpu": "16", "pods": "100", "nvidia.com/gpu": "8"},
            "largestFree": {"cpu": "2500m", "nvidia.com/gpu": "1"},
        });
        let m1 = cluster(summary, json!([]));
        for (asked, expected) in [
            (json!({"cpu": "2500m"}), 6),
            (json!({"cpu": "2501m"}), 0),
            (json!({"nvidia.com/gpu": "1"}), 8),
            (json!({"cpu": "1", "nvidia.com/gpu": "2"}), 0),
        ] {
            assert_eq!(
                room(&m1, &replica(&workload(json!({"requests": asked.clone()})))),
                expected,
                "{asked}"
            );
        }
    }

    #[test]
    fn who_says_nothing_has_no_room() {
        let asks = replica(&workload(json!({})));
        for summary in [
            json!(null),
            json!({}),
            json!({"allocatable": {"cpu": "4"}}),
            json!({"allocatable": {"pods": "0"}}),
        ] {
            assert_eq!(room(&cluster(summary.clone(), json!([])), &asks), 0, "{summary}");
        }
        let taken = json!({"allocatable": {"pods": "5"}, "allocating": {"pods": "9"}});
        assert_eq!(room(&cluster(taken, json!([])), &asks), 0);
    }

    #[test]
    fn grades_of_nodes() {
        let models = json!([
            {"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "1"}, {"name": "memory", "min": "0", "max": "4Gi"}]},
            {"grade": 1, "ranges": [{"name": "cpu", "min": "1", "max": "2"}, {"name": "memory", "min": "4Gi", "max": "16Gi"}]},
            {"grade": 2, "ranges": [{"name": "cpu", "min": 2, "max": "4"}, {"name": "memory", "min": "16Gi", "max": "32Gi"}]},
        ]);
        let summary = json!({
            "allocatable": {"cpu": "100", "memory": "100Gi", "pods": "50", "nvidia.com/gpu": "7"},
            "allocatableModelings": [{"grade": 0, "count": 5}, {"grade": 1, "count": 3}, {"grade": 2, "count": 2}],
        });
        let m1 = cluster(summary, models);
        for (resources, expected) in [
            // Three nodes with at least one processor, two with at least two.
            (json!({"cpu": "1"}), 7),
            (json!({"cpu": "1500m"}), 2),
            (json!({"cpu": "500m", "memory": "8Gi"}), 4),
            (json!({"cpu": "3"}), 0),
            // Nothing is said about it by grade, so the sum counts.
            (json!({"nvidia.com/gpu": "2"}), 3),
            (json!({}), 50),
        ] {
            assert_eq!(
                room(&m1, &replica(&workload(json!({"requests": resources})))),
                expected,
                "{resources}"
            );
        }
    }

    #[test]
    fn the_annotation() {
        let mut m1 = cluster(json!({}), json!([]));
        assert_eq!(stated(&m1), Ok(None));
        for (text, expected) in
            [("7", Ok(Some(7))), (" 0 ", Ok(Some(0))), ("-1", Err(NotANumber("-1".into())))]
        {
            m1.metadata.annotations =
                Some(BTreeMap::from([(AVAILABLE_REPLICAS.to_owned(), text.to_owned())]));
            assert_eq!(stated(&m1), expected);
        }
    }
}
