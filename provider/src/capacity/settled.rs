/// A value that falls at once and rises late.
///
/// Too high, it attracts pods that then wait in the member; too low for a minute, it costs nothing. So a fall is
/// believed immediately and a rise only once it has lasted, at the lowest value seen meanwhile: a machine that fills
/// and empties writes to the host once, not at every turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled<T> {
    value: T,
    rising: Option<(T, u64)>,
}

impl<T: Copy + Ord> Settled<T> {
    /// The first value counts as it is.
    pub const fn new(value: T) -> Self {
        Self { value, rising: None }
    }

    /// The value to publish.
    pub const fn value(&self) -> T {
        self.value
    }

    /// Takes in what is true at `now`, in seconds of any clock that does not go back. A rise must last `hold` seconds.
    #[must_use]
    pub fn next(self, actual: T, now: u64, hold: u64) -> Self {
        if actual <= self.value {
            return Self::new(actual);
        }
        let (lowest, since) =
            self.rising.map_or((actual, now), |(lowest, since)| (lowest.min(actual), since));
        if now.saturating_sub(since) < hold {
            return Self { rising: Some((lowest, since)), ..self };
        }
        Self { value: lowest, rising: (actual > lowest).then_some((actual, now)) }
    }
}
