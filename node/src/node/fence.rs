use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Until when this process may act for a node.
///
/// A process that was stopped for a minute and goes on does not know what happened meanwhile. The clock does: it
/// looks here before it does anything, and the time that the lease gave it is over.
#[derive(Clone, Default)]
pub struct Fence(Arc<Mutex<Held>>);

#[derive(Clone, Copy, Default)]
enum Held {
    /// There is no lease, so nobody else is expected.
    #[default]
    Always,
    Until(Instant),
    No,
}

impl Fence {
    /// Whether it may act at this moment.
    pub fn holds(&self) -> bool {
        match *self.0.lock() {
            Held::Always => true,
            Held::Until(end) => Instant::now() < end,
            Held::No => false,
        }
    }

    pub(super) fn close(&self) {
        *self.0.lock() = Held::No;
    }

    /// The lease was renewed by a request that was sent then.
    pub(super) fn renewed(&self, sent: Instant, lasts: Duration) {
        *self.0.lock() = Held::Until(sent + lasts);
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("holds", &self.holds()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_closes_it() {
        let fence = Fence::default();
        assert!(fence.holds(), "without a lease there is no fence");
        fence.renewed(Instant::now(), Duration::from_secs(40));
        tokio::time::advance(Duration::from_secs(39)).await;
        assert!(fence.holds());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!fence.holds());
        fence.close();
        assert!(!fence.holds());
    }
}
