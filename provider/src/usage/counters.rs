//! Counters of machines as one counter of the node.

use std::collections::BTreeMap;

/// What counters of machines have risen by, added up.
///
/// Of the machines some may not answer in time, come or go. The sum of those that did would fall and rise by all that one
/// has counted in its life, and whoever takes differences would see a processor used a thousand times over. So what is
/// added is what each has risen by since it was heard last.
#[derive(Debug, Default)]
pub struct Counters(BTreeMap<&'static str, Counter>);

#[derive(Debug, Default)]
struct Counter {
    total: f64,
    last: BTreeMap<String, f64>,
}

impl Counters {
    /// Takes in what machines say of a counter, and says what the node's is then.
    pub fn add<'a>(&mut self, counter: &'static str, said: impl IntoIterator<Item = (&'a str, f64)>) -> f64 {
        let begins = !self.0.contains_key(counter);
        let Counter { total, last } = self.0.entry(counter).or_default();
        for (machine, value) in said {
            let before = last.insert(machine.to_owned(), value);
            // What a machine had counted before it was first heard is not new, but for the first time that anybody asks:
            // so the node's counter goes on where another process left it. One that was started anew begins again.
            let from = if begins { 0.0 } else { before.unwrap_or(value) };
            *total += (value - from).max(0.0);
        }
        *total
    }

    /// Forgets machines that are no more.
    pub fn keep_only(&mut self, is_there: impl Fn(&str) -> bool) {
        for counter in self.0.values_mut() {
            counter.last.retain(|machine, _| is_there(machine));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_late_comes_or_goes_makes_no_jump() {
        let mut counters = Counters::default();
        for (said, total) in [
            (vec![("a", 1000.0), ("b", 50.0)], 1050.0),
            (vec![("a", 1010.0), ("b", 60.0)], 1070.0),
            // One does not answer, and then does.
            (vec![("b", 70.0)], 1080.0),
            (vec![("a", 1030.0), ("b", 80.0)], 1110.0),
            // One is new, one was started anew.
            (vec![("a", 5.0), ("b", 80.0), ("c", 9000.0)], 1110.0),
            (vec![("a", 7.0), ("b", 80.0), ("c", 9001.0)], 1113.0),
        ] {
            assert!((counters.add("cpu", said.clone()) - total).abs() < 1e-9, "{said:?} {counters:?}");
        }
        counters.keep_only(|machine| machine != "c");
        assert!((counters.add("cpu", [("c", 10_000.0)]) - 1113.0).abs() < 1e-9, "it is new again");
        assert!((counters.add("other", [("a", 3.0)]) - 3.0).abs() < 1e-9, "each for itself");
    }
}
