//! When each workload is looked at: soon after something about it changed, and never twice at once.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    time::Duration,
};

use tokio::{
    task::{Id, JoinSet},
    time::Instant,
};

use super::seen::Group;

/// Workloads that are looked at at the same time.
const AT_ONCE: usize = 16;

/// Looks that are due, and those that are going on. A look says after how long the next one is due.
#[derive(Default)]
pub(super) struct Passes {
    due: HashMap<Group, Instant>,
    busy: HashSet<Group>,
    running: HashMap<Id, Group>,
    tasks: JoinSet<Option<Duration>>,
}

impl Passes {
    /// A look at a workload is due, now or later.
    pub(super) fn push(&mut self, group: Group, at: Instant) {
        let there = self.due.entry(group).or_insert(at);
        *there = (*there).min(at);
    }

    /// When the next one can begin; none if that depends on one that is going on.
    pub(super) fn next(&self) -> Option<Instant> {
        let free = self.due.iter().filter(|(group, _)| !self.busy.contains(*group));
        free.map(|(_, at)| *at).min().filter(|_| self.busy.len() < AT_ONCE)
    }

    /// Begins what is due.
    pub(super) fn begin<F>(&mut self, now: Instant, look: impl Fn(Group) -> F)
    where
        F: Future<Output = Option<Duration>> + Send + 'static,
    {
        let is_ready = |(group, at): &(&Group, &Instant)| **at <= now && !self.busy.contains(*group);
        let room = AT_ONCE.saturating_sub(self.busy.len());
        let ready: Vec<Group> =
            self.due.iter().filter(is_ready).map(|(group, _)| group.clone()).take(room).collect();
        for group in ready {
            self.due.remove(&group);
            self.busy.insert(group.clone());
            self.running.insert(self.tasks.spawn(look(group.clone())).id(), group);
        }
    }

    /// Waits for one to end; for ever if none is going on.
    pub(super) async fn ended(&mut self) {
        let Some(done) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let (id, again) = match done {
            Ok(done) => done,
            // It is over as well, and the workload is looked at again with everything else.
            Err(error) => {
                tracing::error!(%error, "a look at a workload panicked");
                (error.id(), None)
            }
        };
        let Some(group) = self.running.remove(&id) else { return };
        self.busy.remove(&group);
        if let Some(again) = again {
            self.push(group, Instant::now() + again);
        }
    }

    /// Ends all that are going on.
    pub(super) async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> Group {
        Group { namespace: "n".into(), uid: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_panics_is_looked_at_again() {
        let mut passes = Passes::default();
        passes.push(group("a"), Instant::now());
        passes.begin(Instant::now(), |_| async { panic!("a defect") });
        // Something changes while it is looked at.
        passes.push(group("a"), Instant::now());
        assert_eq!(passes.next(), None, "never twice at once");
        passes.ended().await;
        assert!(passes.next().is_some(), "what changed is looked at");
        passes.begin(Instant::now(), |_| async { Some(Duration::from_secs(5)) });
        passes.ended().await;
        assert_eq!(passes.next(), Some(Instant::now() + Duration::from_secs(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_looked_at_at_the_same_time() {
        let mut passes = Passes::default();
        (0..=AT_ONCE).for_each(|number| passes.push(group(&number.to_string()), Instant::now()));
        passes.begin(Instant::now(), |_| async { None });
        assert_eq!((passes.tasks.len(), passes.next()), (AT_ONCE, None));
        passes.ended().await;
        passes.begin(Instant::now(), |_| async { None });
        assert!(passes.due.is_empty());
    }
}
