/// How many answers in a row change our mind about the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingThresholds {
    /// So many failures in a row make the node NotReady.
    pub failures: u32,
    /// So many successes in a row make it Ready again.
    pub successes: u32,
}

impl Default for PingThresholds {
    fn default() -> Self {
        Self { failures: 3, successes: 2 }
    }
}

/// Whether the provider is well, slow to change its mind: one lost answer must not evict a thousand pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    thresholds: PingThresholds,
    healthy: Option<bool>,
    contrary: u32,
}

impl Health {
    /// Nothing is known yet; the first answer decides.
    pub const fn new(thresholds: PingThresholds) -> Self {
        Self { thresholds, healthy: None, contrary: 0 }
    }

    /// This was thought before a restart, and it takes as much as ever to change it.
    pub const fn recalled(thresholds: PingThresholds, healthy: bool) -> Self {
        Self { thresholds, healthy: Some(healthy), contrary: 0 }
    }

    /// What we think now; none before the first answer.
    pub const fn healthy(&self) -> Option<bool> {
        self.healthy
    }

    /// Hears one answer. True if it changed our mind.
    pub fn hear(&mut self, answered: bool) -> bool {
        match self.healthy {
            Some(healthy) if healthy == answered => {
                self.contrary = 0;
                false
            }
            Some(_) => {
                self.contrary += 1;
                let enough = if answered { self.thresholds.successes } else { self.thresholds.failures };
                self.contrary >= enough && self.change(answered)
            }
            None => self.change(answered),
        }
    }

    fn change(&mut self, healthy: bool) -> bool {
        self.healthy = Some(healthy);
        self.contrary = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard(answers: &[bool]) -> Vec<Option<bool>> {
        let mut health = Health::new(PingThresholds { failures: 3, successes: 2 });
        answers
            .iter()
            .map(|a| {
                health.hear(*a);
                health.healthy()
            })
            .collect()
    }

    #[test]
    fn it_takes_several_answers_in_a_row() {
        let (up, down) = (Some(true), Some(false));
        assert_eq!(heard(&[true, false, false, true, false, false, false]), [up, up, up, up, up, up, down]);
        assert_eq!(heard(&[false, true, false, true, true]), [down, down, down, down, up]);
    }

    #[test]
    fn a_restart_is_no_reason_to_change_our_mind() {
        let mut health = Health::recalled(PingThresholds { failures: 3, successes: 2 }, true);
        assert_eq!([false, false].map(|a| health.hear(a)), [false, false]);
        assert!(health.hear(false));
    }

    proptest! {
        #[test]
        fn minds_change_seldom(answers in prop::collection::vec(any::<bool>(), 0..200)) {
            let states = heard(&answers);
            let changes = states.windows(2).filter(|w| w[0] != w[1]).count();
            prop_assert!(changes <= answers.len() / 2);
            // Three failures in a row always count.
            for (i, last) in answers.windows(3).enumerate() {
                if last.iter().all(|a| !a) {
                    prop_assert_eq!(states[i + 2], Some(false));
                }
            }
        }
    }
}
