use std::{collections::BTreeMap, future::Future};

use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// One task for each name. One that ends may take its time: only the next of the same name waits for it.
pub(super) struct Tasks<I> {
    running: BTreeMap<String, Task<I>>,
    ending: BTreeMap<String, JoinHandle<()>>,
}

struct Task<I> {
    input: watch::Sender<I>,
    stop: CancellationToken,
    done: JoinHandle<()>,
}

impl<I> Default for Tasks<I> {
    fn default() -> Self {
        Self { running: BTreeMap::new(), ending: BTreeMap::new() }
    }
}

impl<I: PartialEq + Send + Sync + 'static> Tasks<I> {
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Ends all tasks but these, without waiting for any.
    pub(super) fn keep_only(&mut self, stays: impl Fn(&str) -> bool) {
        self.ending.retain(|_, done| !done.is_finished());
        let over: Vec<String> = self.running.keys().filter(|name| !stays(name)).cloned().collect();
        for name in over {
            if let Some(task) = self.running.remove(&name) {
                task.stop.cancel();
                // If one before it still ends, it waits for that one itself.
                self.ending.insert(name, task.done);
            }
        }
    }

    /// Tells a task what is new to it, or begins it.
    pub(super) fn tell<F>(
        &mut self,
        name: &str,
        input: I,
        begin: impl FnOnce(watch::Receiver<I>, CancellationToken) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(task) = self.running.get(name) {
            task.input.send_if_modified(|before| {
                let changed = *before != input;
                *before = input;
                changed
            });
            return;
        }
        let (sender, inputs) = watch::channel(input);
        let stop = CancellationToken::new();
        let (task, before) = (begin(inputs, stop.clone()), self.ending.remove(name));
        let done = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            task.await;
        });
        self.running.insert(name.to_owned(), Task { input: sender, stop, done });
    }

    /// Ends all of them, and waits until they have.
    pub(super) async fn end(mut self) {
        self.keep_only(|_| false);
        for done in self.ending.into_values() {
            let _ = done.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn one_that_ends_slowly_keeps_nobody_else_waiting() {
        let (release, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut tasks = Tasks::default();
        let slow = |release: Arc<Notify>| {
            move |_: watch::Receiver<u8>, stop: CancellationToken| async move {
                stop.cancelled().await;
                release.notified().await;
            }
        };
        let signal = |begun: Arc<Notify>| {
            move |_: watch::Receiver<u8>, stop: CancellationToken| async move {
                begun.notify_one();
                stop.cancelled().await;
            }
        };
        tasks.tell("dead", 0, slow(release.clone()));
        tokio::task::yield_now().await;
        tasks.keep_only(|_| false);
        tasks.tell("new", 0, signal(begun.clone()));
        begun.notified().await;

        // The same name again waits until the one before is gone.
        let again = Arc::new(Notify::new());
        tasks.tell("dead", 0, signal(again.clone()));
        let early = tokio::time::timeout(Duration::from_millis(50), again.notified()).await;
        assert!(early.is_err(), "two tasks for one name");
        release.notify_one();
        again.notified().await;
        assert_eq!(tasks.len(), 2);
        tasks.end().await;
    }
}
