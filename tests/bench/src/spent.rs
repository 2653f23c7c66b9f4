//! Where the processor's time goes: every program that takes part, on each side of a comparison.

use comfy_table::{Table, presets};
use federlet_sandbox::{Instance, component, process::Process};

use crate::process::Cost;

/// What people call it, and the process.
type Program = (String, Process);

/// Programs, and what each has cost on either side.
pub(crate) struct Spent {
    programs: Vec<Program>,
    sides: [Vec<f64>; 2],
}

impl Spent {
    /// The daemons of these clusters, and more.
    pub(crate) fn of(instance: &Instance, clusters: &[&str], more: &[(&str, Process)]) -> Self {
        let mut programs: Vec<Program> = more.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect();
        for cluster in clusters {
            for id in component::list(instance, cluster) {
                programs.extend(
                    component::daemon(instance, cluster, &id).map(|it| (format!("{id} of {cluster}"), it)),
                );
            }
        }
        let nothing = vec![0.0; programs.len()];
        Self { programs, sides: [nothing.clone(), nothing] }
    }

    /// What all have cost so far.
    pub(crate) fn now(&self) -> Vec<f64> {
        self.programs.iter().map(|(_, process)| Cost::of(*process).cpu_seconds).collect()
    }

    /// Puts what was spent since then on the account of one side.
    pub(crate) fn add(&mut self, side: usize, since: &[f64]) {
        let now = self.now();
        for ((sum, now), before) in self.sides[side].iter_mut().zip(now).zip(since) {
            *sum += now - before;
        }
    }

    /// Seconds per 1,000 pods, the hungriest first; what hardly counts is left out.
    pub(crate) fn table(&self, ours: &str, peer: &str, pods: f64) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["processor time per 1,000 pods", ours, peer]);
        let per = |side: usize, index: usize| self.sides[side][index] * 1000.0 / pods;
        let mut order: Vec<usize> = (0..self.programs.len()).collect();
        order.sort_by(|a, b| per(0, *b).total_cmp(&per(0, *a)));
        for index in order.into_iter().filter(|index| per(0, *index).max(per(1, *index)) >= 0.1) {
            let cell = |side| format!("{:.1} s", per(side, index));
            table.add_row([self.programs[index].0.clone(), cell(0), cell(1)]);
        }
        let sum = |side: usize| (0..self.programs.len()).map(|index| per(side, index)).sum::<f64>();
        table.add_row(["all of them".to_owned(), format!("{:.1} s", sum(0)), format!("{:.1} s", sum(1))]);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.trim_fmt()
    }
}
