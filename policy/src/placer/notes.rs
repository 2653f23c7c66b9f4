//! Policies that say something without effect are told so, where their author may look later.

use std::{collections::HashSet, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::{effect::without_effect, store::Propagation};

const REASON: &str = "NoEffect";

/// Tells it whenever policies change, until told to stop. What was told is not told again.
pub(super) async fn run(shared: &Arc<Shared>, stop: &CancellationToken) {
    let mut changes = shared.store.changes();
    let mut looked_at: Vec<Arc<Propagation>> = vec![];
    loop {
        let view = shared.store.view();
        let address = |policy: &Arc<Propagation>| Arc::as_ptr(policy).addr();
        let known: HashSet<usize> = looked_at.iter().map(address).collect();
        let news = |policy: &&Arc<Propagation>| !policy.deleting && !known.contains(&address(policy));
        for policy in view.propagation.iter().filter(news) {
            let notes = without_effect(&policy.spec);
            if notes.is_empty() {
                shared.tell.over(&policy.uid, REASON);
            } else {
                shared.tell.warn(policy.reference(), REASON, &notes.join("; "));
            }
        }
        looked_at.clone_from(&view.propagation);
        tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.changed() => {}
        }
    }
}
