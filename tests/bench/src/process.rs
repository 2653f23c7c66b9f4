//! What a process costs, as the kernel counts it.

use std::fs;

use federlet_sandbox::process::Process;

/// A reading of one process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Seconds of processor time since it began.
    pub(crate) cpu_seconds: f64,
    /// The most memory it ever held, in MiB.
    pub(crate) peak_mib: f64,
}

impl Cost {
    /// What the process has cost so far; nothing once it is gone.
    pub(crate) fn of(process: Process) -> Self {
        let ticks =
            fs::read_to_string(format!("/proc/{}/stat", process.pid)).ok().and_then(|line| cpu_ticks(&line));
        let peak =
            fs::read_to_string(format!("/proc/{}/status", process.pid)).ok().and_then(|text| peak_kib(&text));
        let per_second = rustix::param::clock_ticks_per_second();
        Self {
            cpu_seconds: ticks.unwrap_or(0) as f64 / per_second as f64,
            peak_mib: peak.unwrap_or(0) as f64 / 1024.0,
        }
    }
}

/// User and system time are the 14th and 15th field; the second may contain spaces.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn peak_kib(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(cpu_ticks("7 (a b) S 1 2 3 4 5 6 7 8 9 10 30 12 13 14"), Some(42));
        assert_eq!(peak_kib("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n"), Some(2048));
        assert_eq!(cpu_ticks("nonsense"), None);
    }
}
