use serde_json::Value;

use crate::contract::Phase;

/// What a container that is on its way says it waits for.
const ON_THE_WAY: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// How far a pod that has not started is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTheWay {
    /// Nobody has begun with its containers: the host knows no less.
    Accepted,
    /// Its containers are being made.
    Preparing,
}

/// How far the pod is, if its status says no more than that it is on its way: nothing runs, nothing ended, nothing is
/// wrong.
///
/// Most pods run a moment later, so telling the host of it would be one write more for each pod, about nothing.
pub fn on_the_way(status: &Value) -> Option<OnTheWay> {
    let list = |field: &str| status.get(field).and_then(Value::as_array).into_iter().flatten();
    let waits = |container: &Value| {
        let state = container.get("state").and_then(Value::as_object);
        state.is_none_or(|state| {
            state.iter().all(|(kind, how)| {
                let reason = how.get("reason").and_then(Value::as_str);
                kind == "waiting" && reason.is_none_or(|reason| ON_THE_WAY.contains(&reason))
            })
        })
    };
    let unplaced = |condition: &Value| condition["type"] == "PodScheduled" && condition["status"] == "False";
    let containers = ["containerStatuses", "initContainerStatuses"];
    let quiet = Phase::of(status) == Phase::Pending
        && status.get("reason").is_none_or(Value::is_null)
        && containers.iter().all(|field| list(field).all(waits))
        && !list("conditions").any(unplaced);
    let begun = || containers.iter().any(|field| list(field).next().is_some());
    quiet.then(|| if begun() { OnTheWay::Preparing } else { OnTheWay::Accepted })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_no_news_is_on_the_way() {
        let waiting = |reason: &str| json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": reason}}}]});
        for (quiet, far) in [
            (json!({"phase": "Pending"}), OnTheWay::Accepted),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}),
                OnTheWay::Accepted,
            ),
            (waiting("ContainerCreating"), OnTheWay::Preparing),
            (waiting("PodInitializing"), OnTheWay::Preparing),
        ] {
            assert_eq!(on_the_way(&quiet), Some(far), "{quiet}");
        }
        for news in [
            json!({"phase": "Running"}),
            json!({"phase": "Failed"}),
            json!({"phase": "Pending", "reason": "NodeAffinity"}),
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "c", "state": {"running": {}}}]}),
            waiting("ErrImagePull"),
        ] {
            assert_eq!(on_the_way(&news), None, "{news}");
        }
    }
}
