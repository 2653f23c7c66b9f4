use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

/// Events that one node may tell at once, and how fast it may tell more.
const OF_A_NODE: (f64, Duration) = (100.0, Duration::from_millis(100));

/// The same for one pod: a container that fails for ever says so for ever.
const OF_A_POD: (f64, Duration) = (25.0, Duration::from_secs(10));

/// Pods whose budgets are remembered. Beyond that those that are full again are forgotten.
const PODS: usize = 2048;

/// How many Events may be written.
#[derive(Debug)]
pub(super) struct Budget {
    node: Bucket,
    pods: HashMap<Arc<str>, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn take(&mut self, (size, each): (f64, Duration), now: Instant) -> bool {
        self.fill((size, each), now);
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }

    fn fill(&mut self, (size, each): (f64, Duration), now: Instant) {
        let more = now.saturating_duration_since(self.at).as_secs_f64() / each.as_secs_f64();
        (self.left, self.at) = ((self.left + more).min(size), now);
    }
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self { node: Bucket { left: OF_A_NODE.0, at: now }, pods: HashMap::new() }
    }

    /// Whether an Event about this pod may be written now.
    pub(super) fn allows(&mut self, pod: &str, now: Instant) -> bool {
        if self.pods.len() >= PODS {
            self.pods.retain(|_, bucket| {
                bucket.fill(OF_A_POD, now);
                bucket.left < OF_A_POD.0
            });
        }
        let full = Bucket { left: OF_A_POD.0, at: now };
        let bucket = self.pods.entry(pod.into()).or_insert(full);
        bucket.take(OF_A_POD, now) && self.node.take(OF_A_NODE, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_noisy_pod_silences_no_other() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        let told = (0..1000).filter(|_| budget.allows("noisy", now)).count();
        assert_eq!(told, 25);
        assert!(budget.allows("quiet", now));
        assert!(!budget.allows("noisy", now + Duration::from_secs(1)));
        assert!(budget.allows("noisy", now + Duration::from_secs(11)));
    }

    #[test]
    fn many_pods_do_not_flood_the_host_nor_the_memory() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        let told = (0..10_000).filter(|n| budget.allows(&format!("p{n}"), now)).count();
        assert_eq!(told, 100);
        let later = now + Duration::from_secs(3600);
        let _ = (0..10_000).filter(|n| budget.allows(&format!("q{n}"), later)).count();
        assert!(budget.pods.len() <= 10_000);
        budget.allows("last", later + Duration::from_secs(3600));
        assert_eq!(budget.pods.len(), 1);
    }
}
