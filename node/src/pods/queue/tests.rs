use tokio::time::timeout;

use super::*;

const RETRY: Outcome = Outcome::Retry {
    backoff: Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) },
    asked: None,
};

fn queue() -> Arc<WorkQueue> {
    Arc::new(WorkQueue::new(NodeName::new("n").unwrap(), Arc::default()))
}

fn key(name: &str) -> PodKey {
    PodKey::new("ns", name)
}

async fn next(queue: &Arc<WorkQueue>) -> Taken {
    timeout(Duration::from_millis(10), queue.take()).await.expect("nothing waits").unwrap()
}

async fn nothing_waits(queue: &Arc<WorkQueue>) -> bool {
    timeout(Duration::from_millis(10), queue.take()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_once_and_runs_once() {
    let queue = queue();
    queue.add(&key("a"));
    queue.add(&key("a"));
    let taken = next(&queue).await;
    queue.add(&key("a"));
    assert!(nothing_waits(&queue).await, "it runs already");
    taken.done(Outcome::Done);
    next(&queue).await.done(Outcome::Done);
    assert!(nothing_waits(&queue).await);
    assert!(queue.state.lock().entries.is_empty(), "a key that is done takes no memory");
}

#[tokio::test(start_paused = true)]
async fn failures_pause_longer_each_time_and_success_forgets_them() {
    let queue = queue();
    queue.add(&key("a"));
    for (failures, pause) in [(0, 1), (1, 2), (2, 4)] {
        let taken = next(&queue).await;
        assert_eq!(taken.failures(), failures);
        taken.done(RETRY);
        assert!(nothing_waits(&queue).await);
        tokio::time::sleep(Duration::from_secs(pause).mul_f64(1.2)).await;
    }
    next(&queue).await.done(Outcome::Done);
    queue.add(&key("a"));
    assert_eq!(next(&queue).await.failures(), 0);
}

#[tokio::test(start_paused = true)]
async fn news_ends_a_pause_and_an_echo_does_not() {
    let queue = queue();
    queue.add(&key("a"));
    next(&queue).await.done(RETRY);
    queue.add_gently(&key("a"));
    assert!(nothing_waits(&queue).await);
    queue.add(&key("a"));
    let taken = next(&queue).await;
    // The same while it runs: our own status write comes back as an event.
    queue.add_gently(&key("a"));
    taken.done(RETRY);
    assert!(nothing_waits(&queue).await);
    queue.hurry();
    let taken = next(&queue).await;
    queue.add_gently(&key("a"));
    taken.done(Outcome::Done);
    next(&queue).await.done(Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_missed_ends_a_pause_in_which_nothing_failed() {
    let queue = queue();
    queue.add(&key("a"));
    next(&queue).await.done(Outcome::After(Duration::from_secs(3600)));
    queue.add_gently(&key("a"));
    assert!(nothing_waits(&queue).await, "an echo says nothing new");
    queue.add_unsaid(&key("a"));
    next(&queue).await.done(RETRY);
    queue.add_unsaid(&key("a"));
    assert!(nothing_waits(&queue).await, "it is tried again anyway");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let taken = next(&queue).await;
    queue.add_unsaid(&key("a"));
    taken.done(Outcome::After(Duration::from_secs(3600)));
    next(&queue).await.done(Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn no_pause_is_so_long_that_nobody_comes_back() {
    let queue = queue();
    queue.add(&key("a"));
    // As long as a pod may take to end, in the words of the API.
    next(&queue).await.done(Outcome::After(Duration::from_secs(i64::MAX.unsigned_abs())));
    queue.add(&key("a"));
    next(&queue).await.done(Outcome::After(Duration::MAX));
    assert!(nothing_waits(&queue).await);
    tokio::time::sleep(LONGEST).await;
    next(&queue).await.done(Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_keeps_nothing() {
    let queue = queue();
    queue.add(&key("a"));
    drop(next(&queue).await);
    assert!(nothing_waits(&queue).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(next(&queue).await.failures(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_workers_share_and_none_sleeps_through() {
    let queue = queue();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut taken = 0;
                while let Some(key) = queue.take().await {
                    tokio::task::yield_now().await;
                    key.done(Outcome::Done);
                    taken += 1;
                }
                taken
            })
        })
        .collect();
    tokio::task::yield_now().await;
    for n in 0..1000 {
        queue.add(&key(&n.to_string()));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.close();
    let mut all = 0;
    for worker in workers {
        all += timeout(Duration::from_secs(1), worker).await.unwrap().unwrap();
    }
    assert_eq!(all, 1000);
}
