use std::time::Duration;

/// Growing pauses between attempts, for ever.
///
/// There is no last attempt: a member that is away for a night has its pods in the morning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// No pause is longer.
    pub cap: Duration,
}

/// For things that may work any moment: a connection, an API server under load.
impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), cap: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// For what someone has to change first: a quota, a policy, a name that is taken.
    pub const SLOW: Self = Self { first: Duration::from_secs(5), cap: Duration::from_secs(300) };

    /// The pause after so many failures in a row, at least as long as the other side asked for. Without jitter, so
    /// that it can be told to people.
    pub fn pause(&self, failures: u32, asked: Option<Duration>) -> Duration {
        // An hour of being left alone is a mistake of the other side, not a wish.
        let asked = asked.unwrap_or_default().min(self.cap.max(Duration::from_secs(300)));
        let doublings = failures.saturating_sub(1).min(20);
        self.first.saturating_mul(1 << doublings).min(self.cap).max(asked)
    }

    /// A pause spread by up to a quarter, so that a thousand pods do not come back at the same instant.
    pub fn spread(pause: Duration) -> Duration {
        pause.mul_f64(0.875 + fastrand::f64() * 0.25)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap() {
        let backoff = Backoff::default();
        let seconds: Vec<u64> = (1..=8).map(|n| backoff.pause(n, None).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn the_other_side_is_heard_within_reason() {
        let backoff = Backoff::default();
        assert_eq!(backoff.pause(1, Some(Duration::from_secs(20))), Duration::from_secs(20));
        assert_eq!(backoff.pause(1, Some(Duration::from_secs(86_400))), Duration::from_secs(300));
    }

    proptest! {
        #[test]
        fn never_gives_up_and_never_spins(failures in any::<u32>(), asked in proptest::option::of(any::<u32>())) {
            let asked = asked.map(|s| Duration::from_secs(s.into()));
            let spread = Backoff::spread(Backoff::default().pause(failures, asked));
            prop_assert!(spread >= Duration::from_millis(800));
            prop_assert!(spread <= Duration::from_secs(340));
        }
    }
}
