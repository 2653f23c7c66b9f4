//! Workloads that look at where others are decide one after the other.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Whose turn it is, in each namespace: groups of workloads end there.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits until everybody before is done. The turn lasts as long as what is returned.
    pub(super) async fn take(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            // Nobody has these, and nobody waits for them.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(namespace.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::{
        api::WorkloadAffinity,
        object::Identity,
        place::{Peer, Peers},
    };

    /// Where each workload of a group is, as bindings say it.
    type Placed = Arc<Mutex<Vec<BTreeSet<String>>>>;

    /// As a pass does it: look at the others, decide, and write it down some time later.
    async fn pass(turns: Arc<Turns>, placed: Placed) {
        let affinity: WorkloadAffinity =
            serde_json::from_value(json!({"antiAffinity": {"groupByLabelKey": "app"}})).unwrap();
        let one = Identity {
            namespace: "n".into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ..Identity::default()
        };
        let _turn = turns.take("n").await;
        let others = placed.lock().clone();
        let others = others.iter().map(|clusters| Peer { namespace: "n", labels: &one.labels, clusters });
        let peers = Peers::of(&affinity, &one, others);
        let free = ["a", "b", "c"].into_iter().find(|cluster| !peers.apart.contains(*cluster)).unwrap();
        tokio::task::yield_now().await;
        placed.lock().push([free.to_owned()].into());
    }

    #[tokio::test]
    async fn workloads_to_be_apart_that_come_together_are_apart() {
        let (turns, placed) = (Arc::new(Turns::default()), Placed::default());
        let all = (0..3).map(|_| tokio::spawn(pass(turns.clone(), placed.clone())));
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        let clusters: BTreeSet<String> = placed.lock().iter().flatten().cloned().collect();
        assert_eq!(clusters.len(), 3, "{clusters:?}");
        let _other = turns.take("other").await;
        assert_eq!(turns.0.lock().len(), 1, "what is over is forgotten");
    }
}
