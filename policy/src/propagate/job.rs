//! What is to be done, and in whose turn: one thing at a time for each object and cluster.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
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
    /// Say on policies whether what they select can be read.
    Policies,
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

/// Jobs that are due some time, and those that are being done. No I/O.
#[derive(Debug, Default)]
struct Queue {
    due: HashMap<Job, Instant>,
    order: BTreeSet<(Instant, Job)>,
    busy: HashSet<Job>,
    busy_in: HashMap<Arc<str>, usize>,
    /// Due while it was being done.
    again: HashSet<Job>,
    /// Due while too many others were about the same cluster.
    parked: HashMap<Arc<str>, VecDeque<Job>>,
    is_parked: HashSet<Job>,
}

impl Queue {
    fn push(&mut self, job: Job, at: Instant) {
        if let Some(before) = self.due.get(&job).copied() {
            if before <= at {
                return;
            }
            self.order.remove(&(before, job.clone()));
        }
        self.due.insert(job.clone(), at);
        self.order.insert((at, job));
    }

    /// When the next job is due, if there is room for one.
    fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at).filter(|_| self.busy.len() < AT_ONCE)
    }

    /// A job to be done now.
    fn pop(&mut self, now: Instant) -> Option<Job> {
        while self.next().is_some_and(|at| at <= now) {
            let (_, job) = self.order.pop_first()?;
            self.due.remove(&job);
            if self.busy.contains(&job) {
                self.again.insert(job);
                continue;
            }
            if let Some(cluster) = job.cluster() {
                let count = self.busy_in.entry(cluster.clone()).or_default();
                if *count >= AT_ONCE_IN_A_CLUSTER {
                    if self.is_parked.insert(job.clone()) {
                        self.parked.entry(cluster.clone()).or_default().push_back(job);
                    }
                    continue;
                }
                *count += 1;
            }
            self.busy.insert(job.clone());
            return Some(job);
        }
        None
    }

    fn done(&mut self, job: &Job, now: Instant) {
        self.busy.remove(job);
        if self.again.remove(job) {
            self.push(job.clone(), now);
        }
        let Some(cluster) = job.cluster() else { return };
        if let Some(count) = self.busy_in.get_mut(cluster) {
            *count = count.saturating_sub(1);
        }
        if let Some(next) = self.parked.get_mut(cluster).and_then(VecDeque::pop_front) {
            self.is_parked.remove(&next);
            self.push(next, now);
        }
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
    let mut queue = Queue::default();
    let mut tasks: JoinSet<()> = JoinSet::new();
    let mut running: HashMap<tokio::task::Id, Job> = HashMap::new();
    loop {
        let next = queue.next();
        tokio::select! {
            () = stop.cancelled() => break,
            handed = handed_in.recv() => {
                let Some((job, wait)) = handed else { break };
                queue.push(job, Instant::now() + wait);
                while let Ok((job, wait)) = handed_in.try_recv() {
                    queue.push(job, Instant::now() + wait);
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
                    queue.done(&job, Instant::now());
                }
            }
            () = async { tokio::time::sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {
                while let Some(job) = queue.pop(Instant::now()) {
                    running.insert(tasks.spawn(run(job.clone())).id(), job);
                }
            }
        }
    }
    tasks.shutdown().await;
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
    async fn what_is_due_while_it_is_done_is_done_again_once() {
        let mut queue = Queue::default();
        let now = Instant::now();
        queue.push(send("a", "m"), now + Duration::from_secs(5));
        queue.push(send("a", "m"), now);
        assert_eq!(queue.pop(now), Some(send("a", "m")));
        for _ in 0..3 {
            queue.push(send("a", "m"), now);
            assert_eq!(queue.pop(now), None, "it is being done");
        }
        queue.done(&send("a", "m"), now);
        assert_eq!(queue.pop(now), Some(send("a", "m")));
        queue.done(&send("a", "m"), now);
        assert_eq!((queue.pop(now), queue.next()), (None, None));
        // What found no room comes in its turn.
        for number in 0..=AT_ONCE_IN_A_CLUSTER {
            queue.push(send(&number.to_string(), "m"), now);
        }
        let mut doing: Vec<Job> = std::iter::from_fn(|| queue.pop(now)).collect();
        assert_eq!(doing.len(), AT_ONCE_IN_A_CLUSTER);
        queue.done(&doing.remove(0), now);
        assert!(queue.pop(now).is_some_and(|job| !doing.contains(&job)));
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
