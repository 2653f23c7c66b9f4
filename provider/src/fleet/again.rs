//! When to look at pods again though nothing happened.

use std::{collections::HashMap, time::Duration};

use federlet_node::contract::PodKey;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

/// One moment for each pod. Whatever leads to a look sets it anew: with a timer for each look, and a look for each timer,
/// there would be more of them with everything that happens.
#[derive(Debug, Default)]
pub(super) struct Again(Mutex<HashMap<PodKey, AbortOnDropHandle<()>>>);

impl Again {
    /// Does something about a pod after this time, instead of whatever was to be done later.
    pub(super) fn set(&self, pod: &PodKey, after: Duration, then: impl FnOnce() + Send + 'static) {
        let timer = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            then();
        });
        self.0.lock().insert(pod.clone(), AbortOnDropHandle::new(timer));
    }

    /// There is nothing to wait for any more.
    pub(super) fn clear(&self, pod: &PodKey) {
        self.0.lock().remove(pod);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_looked_at_again_once_however_often_that_was_said() {
        let (again, (sender, mut looks)) = (Again::default(), mpsc::unbounded_channel());
        let (web, db) = (PodKey::new("shop", "web"), PodKey::new("shop", "db"));
        let set = |pod: &PodKey, after: u64| {
            let (sender, told) = (sender.clone(), (pod.name().to_owned(), after));
            again.set(pod, Duration::from_secs(after), move || drop(sender.send(told)));
        };
        for after in [30, 10, 20] {
            set(&web, after);
        }
        set(&db, 15);
        set(&PodKey::new("shop", "gone"), 5);
        again.clear(&PodKey::new("shop", "gone"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(looks.recv().await, Some(("db".to_owned(), 15)));
        assert_eq!(looks.recv().await, Some(("web".to_owned(), 20)), "as it was said last");
        assert!(looks.try_recv().is_err());
    }
}
