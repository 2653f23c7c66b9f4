//! A processor for each cluster. Clusters are machines of their own where people run them; here they share one, and
//! would take turns with each other instead of working side by side.

use std::{fs, thread::available_parallelism};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::{Instance, component, process::Process};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// Gives one half of the processors to the host's cluster and to what runs beside it, the other half to the member.
pub(crate) fn set_apart(instance: &Instance, host: &str, beside: &[Process], member: &str) -> Result<()> {
    let processors = available_parallelism()?.get();
    ensure!(processors > 1, "clusters cannot be set apart on one processor; say --together");
    let (first, second) = (half(0..processors / 2), half(processors / 2..processors));
    for (cluster, set, more) in [(host, first, beside), (member, second, &[])] {
        let daemons = component::list(instance, cluster)
            .into_iter()
            .filter_map(|id| component::daemon(instance, cluster, &id));
        for process in daemons.chain(more.iter().copied()) {
            keep_on(process, &set)?;
        }
    }
    Ok(())
}

fn half(processors: std::ops::Range<usize>) -> CpuSet {
    let mut set = CpuSet::new();
    processors.for_each(|processor| set.set(processor));
    set
}

/// Binds every thread of a process; those that it starts later inherit it.
fn keep_on(process: Process, set: &CpuSet) -> Result<()> {
    for thread in fs::read_dir(format!("/proc/{}/task", process.pid))? {
        let number = thread?.file_name().to_string_lossy().parse()?;
        let thread = Pid::from_raw(number).context("a thread has a number")?;
        // A thread that ended in between needs no processor.
        match sched_setaffinity(Some(thread), set) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).context("cannot bind a thread to a processor"),
        }
    }
    Ok(())
}
