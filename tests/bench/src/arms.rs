//! The two sides of a comparison, measured in turns so that a slow minute of the machine hits both.

use std::time::Duration;

use anyhow::Result;
use comfy_table::{Table, presets};
use federlet_sandbox::process::Process;
use kube::Client;

use crate::{
    load::{Load, Single},
    process::Cost,
};

/// How much is asked of each side in one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Pods one after the other.
    pub(crate) singles: u32,
    /// Pods at once.
    pub(crate) many: u32,
}

/// One side.
pub(crate) struct Arm {
    /// What people call it.
    pub(crate) name: &'static str,
    /// Where its pods are created.
    client: Client,
    /// The node they are bound to; none to leave it to a scheduler.
    node: Option<String>,
    /// What does its work.
    pub(crate) process: Process,
    singles: Vec<Single>,
    pub(crate) starts: Vec<Duration>,
    ends: Vec<Duration>,
    cpu_seconds: f64,
    pods: u32,
}

/// A line of the result: what, and both sides' numbers.
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) peer: f64,
}

impl Arm {
    pub(crate) fn new(name: &'static str, client: &Client, node: Option<&str>, process: Process) -> Self {
        Self {
            name,
            client: client.clone(),
            node: node.map(str::to_owned),
            process,
            singles: Vec::new(),
            starts: Vec::new(),
            ends: Vec::new(),
            cpu_seconds: 0.0,
            pods: 0,
        }
    }

    /// How long it took pods that were alone to run.
    pub(crate) fn until_running(&self) -> Vec<Duration> {
        self.singles.iter().map(|single| single.running).collect()
    }

    /// How long it took until their cluster showed them on a node.
    pub(crate) fn until_placed(&self) -> Vec<Duration> {
        self.singles.iter().map(|single| single.placed).collect()
    }

    /// One round of load on this side alone.
    pub(crate) async fn round(&mut self, amount: Amount, round: u32) -> Result<()> {
        let before = Cost::of(self.process).cpu_seconds;
        let mut load = Load::new(&self.client, self.name, self.node.as_deref(), round).await?;
        self.singles.extend(load.one_by_one(amount.singles).await?);
        if amount.many > 0 {
            self.starts.push(load.all_at_once(amount.many).await?);
        }
        let end = load.delete_all(amount.singles + amount.many).await?;
        self.ends.extend((amount.many > 0).then_some(end));
        load.end().await?;
        self.cpu_seconds += Cost::of(self.process).cpu_seconds - before;
        self.pods += amount.singles + amount.many;
        Ok(())
    }
}

/// Both sides beside each other.
pub(crate) fn compare(ours: &Arm, peer: &Arm, amount: Amount) -> Vec<Line> {
    let line =
        |what: String, unit, of: &dyn Fn(&Arm) -> f64| Line { what, unit, ours: of(ours), peer: of(peer) };
    let many = amount.many;
    vec![
        line("one pod until Running, median".into(), "ms", &|arm| {
            millis(percentile(&arm.until_running(), 50))
        }),
        line("one pod until Running, 99 %".into(), "ms", &|arm| millis(percentile(&arm.until_running(), 99))),
        line(format!("{many} pods until Running, median"), "ms", &|arm| millis(percentile(&arm.starts, 50))),
        line("all pods deleted, median".into(), "ms", &|arm| millis(percentile(&arm.ends, 50))),
    ]
}

/// What both sides cost the machine.
pub(crate) fn compare_cost(ours: &Arm, peer: &Arm) -> Vec<Line> {
    let line = |what: &str, unit, of: &dyn Fn(&Arm) -> f64| Line {
        what: what.to_owned(),
        unit,
        ours: of(ours),
        peer: of(peer),
    };
    vec![
        line("processor time per 1,000 pods", "s", &|arm| arm.cpu_seconds * 1000.0 / f64::from(arm.pods)),
        line("most memory held", "MiB", &|arm| Cost::of(arm.process).peak_mib),
    ]
}

/// Lines as a table, with the name of each side.
pub(crate) fn table(ours: &str, peer: &str, lines: Vec<Line>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", ours, peer, "ratio"]);
    for line in lines {
        let cell = |value: f64| format!("{value:.1} {}", line.unit);
        let ratio = if line.peer > 0.0 { format!("{:.2}", line.ours / line.peer) } else { "-".to_owned() };
        table.add_row([line.what, cell(line.ours), cell(line.peer), ratio]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The smallest value that so many percent of all are not above.
pub(crate) fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Duration::from_millis(50));
        assert_eq!(percentile(&values, 99), Duration::from_millis(99));
        assert_eq!(percentile(&values[..1], 99), Duration::from_millis(100));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
