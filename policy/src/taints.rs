//! Whether a workload stands the taints of a cluster.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// The first taint that keeps new workloads away and is not tolerated.
#[must_use]
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether one toleration covers one taint, as Kubernetes compares them.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "" | "Equal" => {
            key == taint.key
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        "Exists" => key.is_empty() || key == taint.key,
        // Numeric comparison is for nodes; a cluster's taints are refused with it.
        _ => false,
    }
}

/// What pods have to tolerate to come to a cluster whose taints keep only new workloads out.
#[must_use]
pub fn to_join(taints: &[Taint], tolerations: &[Toleration]) -> Vec<Toleration> {
    let kept_out = taints.iter().filter(|taint| taint.effect == "NoSchedule");
    let kept_out = kept_out.filter(|taint| !tolerations.iter().any(|one| tolerates(one, taint)));
    let toleration = |taint: &Taint| Toleration {
        key: Some(taint.key.clone()),
        operator: Some("Exists".into()),
        effect: Some(taint.effect.clone()),
        ..Toleration::default()
    };
    kept_out.map(toleration).collect()
}

/// When a workload has to leave a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leave {
    /// At once.
    Now,
    /// This many seconds after the taint came.
    After(i64),
    /// Not because of taints.
    Never,
}

/// When a workload that is in a cluster has to leave it because of its `NoExecute` taints.
///
/// A taint that is tolerated several times is tolerated as long as the shortest of the times says; a
/// toleration without a time sets no limit.
#[must_use]
pub fn leave(taints: &[Taint], tolerations: &[Toleration]) -> Leave {
    let each = taints.iter().filter(|taint| taint.effect == "NoExecute").map(|taint| {
        let mut matching = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if matching.peek().is_none() {
            return Leave::Now;
        }
        match matching.filter_map(|toleration| toleration.toleration_seconds).min() {
            Some(seconds) if seconds <= 0 => Leave::Now,
            Some(seconds) => Leave::After(seconds),
            None => Leave::Never,
        }
    });
    each.min().unwrap_or(Leave::Never)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn taints(value: Value) -> Vec<Taint> {
        serde_json::from_value(value).unwrap()
    }

    fn tolerations(value: Value) -> Vec<Toleration> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn who_may_come() {
        let tainted = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
        for (taint, toleration, comes) in [
            (json!([]), json!([]), true),
            (tainted.clone(), json!([]), false),
            (tainted.clone(), json!([{"key": "gpu", "value": "yes"}]), true),
            (tainted.clone(), json!([{"key": "gpu", "operator": "Equal", "value": "no"}]), false),
            (tainted.clone(), json!([{"key": "gpu", "operator": "Exists"}]), true),
            (tainted.clone(), json!([{"operator": "Exists"}]), true),
            (tainted.clone(), json!([{"operator": "Equal"}]), false),
            (tainted.clone(), json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]), false),
            (tainted, json!([{"key": "gpu", "operator": "Gt", "value": "1"}]), false),
            (json!([{"key": "a", "effect": "PreferNoSchedule"}]), json!([]), true),
            (json!([{"key": "a", "effect": "NoExecute"}]), json!([]), false),
        ] {
            let found = untolerated(&taints(taint.clone()), &tolerations(toleration.clone())).is_none();
            assert_eq!(found, comes, "{taint} {toleration}");
        }
    }

    #[test]
    fn when_to_leave() {
        let tainted = json!([{"key": "down", "effect": "NoExecute"}]);
        let exists = |seconds: Value| json!([{"operator": "Exists", "tolerationSeconds": seconds}]);
        for (taint, toleration, expected) in [
            (json!([{"key": "down", "effect": "NoSchedule"}]), json!([]), Leave::Never),
            (tainted.clone(), json!([]), Leave::Now),
            (tainted.clone(), exists(json!(30)), Leave::After(30)),
            (tainted.clone(), exists(json!(0)), Leave::Now),
            (tainted.clone(), exists(Value::Null), Leave::Never),
            (
                tainted,
                json!([{"operator": "Exists"}, {"key": "down", "operator": "Exists", "tolerationSeconds": 9}]),
                Leave::After(9),
            ),
            (
                json!([{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"}]),
                json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 9}]),
                Leave::Now,
            ),
        ] {
            assert_eq!(
                leave(&taints(taint.clone()), &tolerations(toleration.clone())),
                expected,
                "{taint} {toleration}"
            );
        }
    }
}
