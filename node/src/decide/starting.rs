use serde_json::Value;

use crate::contract::Phase;

/// What a container that is on its way says it waits for.
const ON_THE_WAY: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Whether a status says no more than that the pod is on its way: nothing runs, nothing ended, nothing is wrong.
///
/// Most pods run a moment later, so telling the host of it would be one write more for each pod, about nothing.
pub fn is_on_the_way(status: &Value) -> bool {
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
    Phase::of(status) == Phase::Pending
        && status.get("reason").is_none_or(Value::is_null)
        && ["containerStatuses", "initContainerStatuses"].iter().all(|field| list(field).all(waits))
        && !list("conditions").any(unplaced)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_no_news_is_on_the_way() {
        let waiting = |reason: &str| json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": reason}}}]});
        for quiet in [
            json!({"phase": "Pending"}),
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}),
            waiting("ContainerCreating"),
            waiting("PodInitializing"),
        ] {
            assert!(is_on_the_way(&quiet), "{quiet}");
        }
        for news in [
            json!({"phase": "Running"}),
            json!({"phase": "Failed"}),
            json!({"phase": "Pending", "reason": "NodeAffinity"}),
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "c", "state": {"running": {}}}]}),
            waiting("ErrImagePull"),
        ] {
            assert!(!is_on_the_way(&news), "{news}");
        }
    }
}
