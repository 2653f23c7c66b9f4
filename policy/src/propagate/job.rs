//! What is to be done, and in whose turn: one thing at a time for each object and cluster.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{inventory::Key, store::Kind};

/// Changes that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(50);
/// Jobs that are done at the same time.
const AT_ONCE: usize = 48;
/// And of those, how many may be about one cluster: one that does not answer must not hold up the others.
const AT_ONCE_IN_A_CLUSTER: usize = 8;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Job {
    /// Look at an object of the host: where is it to be?
    Look(Arc<Key>),
    /// Make it so in one cluster.
    Send(Arc<Key>, Arc<str>),
    /// Say what became of it.
    Report(Arc<Key>),
    /// Look at all objects of a kind.
    Kind(Kind),
    /// Find out which kinds and clusters there are, and look at everything.
    Everything,
}

impl Job {
    fn cluster(&self) -> Option<&Arc<str>> {
        match self {
            Self::Send(_, cluster) => Some(cluster),
            _ => None,
        }
    }
}

/// Where jobs are handed in.
#[derive(Clone, Debug)]
pub(super) struct Jobs(mpsc::UnboundedSender<(Job, Duration)>);

impl Jobs {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<(Job, Duration)>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(super) fn look(&self, key: Key) {
        self.soon(Job::Look(Arc::new(key)));
    }

    pub(super) fn look_at_kind(&self, kind: Kind) {
        self.soon(Job::Kind(kind));
    }

    pub(super) fn soon(&self, job: Job) {
        let _ = self.0.send((job, TOGETHER));
    }

    pub(super) fn after(&self, job: Job, wait: Duration) {
        let _ = self.0.send((job, wait));
    }
}

/// Does jobs until told to stop, each when it is due and never the same twice at once.
pub(super) async fn work<F>(
    mut handed_in: mpsc::UnboundedReceiver<(Job, Duration)>,
    stop: &CancellationToken,
    run: impl Fn(Job) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut due: HashMap<Job, Instant> = HashMap::new();
    let mut busy: HashSet<Job> = HashSet::new();
    let mut tasks: JoinSet<()> = JoinSet::new();
    let mut running: HashMap<tokio::task::Id, Job> = HashMap::new();
    loop {
        let next = due.iter().filter(|(job, _)| is_free(job, &busy)).map(|(_, at)| *at).min();
        let next = next.filter(|_| busy.len() < AT_ONCE);
        tokio::select! {
            () = stop.cancelled() => break,
            handed = handed_in.recv() => {
                let Some(first) = handed else { break };
                let mut next = Some(first);
                while let Some((job, wait)) = next {
                    let at = Instant::now() + wait;
                    let there = due.entry(job).or_insert(at);
                    *there = (*there).min(at);
                    next = handed_in.try_recv().ok();
                }
            }
            // A job that panicked is done as well: it is looked at again with everything else.
            Some(done) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                let id = match done {
                    Ok((id, ())) => id,
                    Err(error) => {
                        tracing::error!(%error, "a look at an object panicked");
                        error.id()
                    }
                };
                if let Some(job) = running.remove(&id) {
                    busy.remove(&job);
                }
            }
            () = async { tokio::time::sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {
                let now = Instant::now();
                let mut ready: Vec<(Instant, Job)> =
                    due.iter().filter(|(_, at)| **at <= now).map(|(job, at)| (*at, job.clone())).collect();
                ready.sort();
                for (_, job) in ready {
                    if busy.len() >= AT_ONCE {
                        break;
                    }
                    if !is_free(&job, &busy) {
                        continue;
                    }
                    due.remove(&job);
                    busy.insert(job.clone());
                    running.insert(tasks.spawn(run(job.clone())).id(), job);
                }
            }
        }
    }
    tasks.shutdown().await;
}

fn is_free(job: &Job, busy: &HashSet<Job>) -> bool {
    if busy.contains(job) {
        return false;
    }
    let Some(cluster) = job.cluster() else { return true };
    busy.iter().filter(|other| other.cluster() == Some(cluster)).count() < AT_ONCE_IN_A_CLUSTER
}

/// How long to wait after so many failures: soon at first, then less and less often.
pub(super) fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.saturating_sub(1).min(5))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn send(name: &str, cluster: &str) -> Job {
        Job::Send(Arc::new(Key { name: name.into(), ..Key::default() }), cluster.into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_hangs_holds_up_no_other() {
        let (jobs, handed_in) = Jobs::new();
        let done: Arc<Mutex<Vec<Job>>> = Arc::default();
        let stop = CancellationToken::new();
        for number in 0..100 {
            jobs.soon(send(&number.to_string(), "hangs"));
        }
        jobs.soon(send("a", "well"));
        let (noted, watched) = (done.clone(), done.clone());
        let run = move |job: Job| {
            let noted = noted.clone();
            async move {
                if job.cluster().is_some_and(|cluster| &**cluster == "hangs") {
                    std::future::pending::<()>().await;
                }
                noted.lock().push(job);
            }
        };
        tokio::select! {
            () = work(handed_in, &stop, run) => {}
            () = tokio::time::sleep(Duration::from_secs(5)) => {}
        }
        assert_eq!(*watched.lock(), [send("a", "well")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_nothing_but_its_job() {
        let (jobs, handed_in) = Jobs::new();
        let count: Arc<Mutex<usize>> = Arc::default();
        let stop = CancellationToken::new();
        let counted = count.clone();
        let again = jobs.clone();
        jobs.soon(Job::Everything);
        let run = move |_| {
            let (count, again) = (counted.clone(), again.clone());
            async move {
                *count.lock() += 1;
                let first = *count.lock() == 1;
                again.after(Job::Everything, Duration::from_secs(1));
                assert!(!first, "the first one panics");
            }
        };
        tokio::select! {
            () = work(handed_in, &stop, run) => {}
            () = tokio::time::sleep(Duration::from_millis(3500)) => {}
        }
        assert_eq!(*count.lock(), 4);
    }

    #[test]
    fn waits_grow_up_to_half_a_minute() {
        let seconds: Vec<u64> = (1..9).map(|failures| backoff(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 32, 32]);
    }
}
