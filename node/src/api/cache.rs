use std::{collections::HashMap, hash::Hash, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Entries beyond this make room: an attacker with many tokens must not fill our memory.
const MOST: usize = 4096;

/// Answers that may be used again for a short while.
pub(super) struct Cache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let entries = self.0.lock();
        entries.get(key).filter(|(until, _)| *until > Instant::now()).map(|(_, value)| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, lasts: Duration) {
        let now = Instant::now();
        let mut entries = self.0.lock();
        if entries.len() >= MOST {
            entries.retain(|_, (until, _)| *until > now);
            // Still full of live answers: forget them all rather than sort. They are only answers.
            if entries.len() >= MOST {
                entries.clear();
            }
        }
        entries.insert(key, (now + lasts, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_age_and_never_pile_up() {
        let cache = Cache::default();
        cache.put(1, "a", Duration::from_secs(10));
        assert_eq!(cache.get(&1), Some("a"));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(cache.get(&1), None);
        for n in 0..20_000 {
            cache.put(n, "b", Duration::from_secs(10));
        }
        assert!(cache.0.lock().len() <= MOST);
    }
}
