//! Pods of stateful sets whose names do not begin with zero.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Shared, seen::SeenPod};
use crate::owners::Owner;

impl Shared {
    /// Lets the numbers in names count from zero, wherever their stateful set lets them begin. That is not in its
    /// metadata, so it is read only of those that have no pod with the number zero. Returns the number with which the
    /// names begin; of several stateful sets the last one's.
    pub(super) async fn count_from_zero(
        &self,
        namespace: &str,
        pods: &mut [SeenPod],
    ) -> Result<u32, kube::Error> {
        let mut begins = 0;
        for owner in begin_later(pods) {
            let Some(meta) = self.owners.get(namespace, &owner).await? else { continue };
            match self.workloads.of(namespace, None, &meta).await {
                Ok(object) => {
                    begins = first(&object);
                    count_from(begins, &owner, pods);
                }
                // Its pods go with it.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(begins)
    }
}

/// The stateful sets of which no pod has the number zero.
fn begin_later(pods: &[SeenPod]) -> Vec<Owner> {
    let mut lowest: BTreeMap<&str, (u32, &Owner)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.counts()) {
        if let (Some(owner), Some(ordinal)) = (&pod.owner, pod.ordinal) {
            let least = lowest.entry(&owner.uid).or_insert((ordinal, owner));
            least.0 = least.0.min(ordinal);
        }
    }
    lowest.into_values().filter(|(least, _)| *least > 0).map(|(_, owner)| owner.clone()).collect()
}

/// The number with which a stateful set begins.
fn first(stateful_set: &Value) -> u32 {
    let start = stateful_set.pointer("/spec/ordinals/start").and_then(Value::as_u64);
    start.and_then(|start| u32::try_from(start).ok()).unwrap_or(0)
}

/// A pod from before the beginning has no position: it goes.
fn count_from(first: u32, owner: &Owner, pods: &mut [SeenPod]) {
    for pod in pods.iter_mut().filter(|pod| pod.owner.as_ref().is_some_and(|its| its.uid == owner.uid)) {
        pod.ordinal = pod.ordinal.and_then(|ordinal| ordinal.checked_sub(first));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(set: &str, ordinal: u32) -> SeenPod {
        let owner = Owner { kind: "StatefulSet".into(), uid: set.into(), ..Owner::default() };
        SeenPod { owner: Some(owner), ordinal: Some(ordinal), ..SeenPod::default() }
    }

    #[test]
    fn names_count_from_where_they_begin() {
        let mut pods = vec![pod("db", 100), pod("db", 102), pod("db", 3), pod("web", 0), pod("web", 1)];
        let later = begin_later(&pods);
        assert_eq!(later.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["db"]);
        count_from(first(&json!({"spec": {"ordinals": {"start": 100}}})), &later[0], &mut pods);
        let ordinals: Vec<Option<u32>> = pods.iter().map(|pod| pod.ordinal).collect();
        assert_eq!(ordinals, [Some(0), Some(2), None, Some(0), Some(1)]);
        // The first one may just be away.
        let mut away = vec![pod("db", 1)];
        let owner = begin_later(&away).remove(0);
        count_from(first(&json!({"spec": {}})), &owner, &mut away);
        assert_eq!(away[0].ordinal, Some(1));
        away.push(SeenPod { deleting: true, ..pod("db", 0) });
        assert_eq!(begin_later(&away).len(), 1, "one that goes does not count");
    }
}
