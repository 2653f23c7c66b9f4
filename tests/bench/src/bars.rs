//! What was promised of a measurement. All of it is told before the first miss makes it fail.

use anyhow::{Result, ensure};

/// Promises, and those that were missed.
#[derive(Default)]
pub(crate) struct Bars {
    missed: Vec<String>,
}

impl Bars {
    /// Tells one: what was measured, and the most it may be.
    pub(crate) fn at_most(&mut self, what: &str, measured: f64, most: f64, unit: &str) {
        let met = measured <= most;
        let mark = if met { "✔" } else { "✘" };
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        println!("{mark} {what}: {measured:.2}{unit}, at most {most}{unit}");
        if !met {
            self.missed.push(what.to_owned());
        }
    }

    /// Fails if any was missed.
    pub(crate) fn all_met(self) -> Result<()> {
        ensure!(self.missed.is_empty(), "not as promised: {}", self.missed.join(", "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_miss_is_a_failure_and_is_named() {
        let mut bars = Bars::default();
        bars.at_most("speed", 1.0, 1.0, "ms");
        bars.at_most("size", 61.0, 60.0, "MiB");
        assert_eq!(bars.all_met().unwrap_err().to_string(), "not as promised: size");
        assert!(Bars::default().all_met().is_ok());
    }
}
