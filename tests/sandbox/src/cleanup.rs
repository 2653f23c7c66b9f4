//! Taking a sandbox away, however it was left: running, half started, killed, or not there at all.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::{Instance, cgroups, machine, network, state::State};

/// Whether the logs of a failed start are worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// Nothing stays.
    Remove,
    /// Until the next start.
    Keep,
}

/// Ends every process, removes the network and, unless told otherwise, every file.
pub async fn clean(instance: &Instance, files: Files) -> Result<()> {
    end_processes(instance).await?;
    // A damaged state must not stand in the way of removing it.
    let state = State::load(instance).ok().flatten();
    network::remove(instance, state.as_ref().map(|state| state.plan.subnet)).await?;
    cgroups::remove(instance).await?;
    if files == Files::Remove {
        if let Some(state) = &state {
            remove_kubeconfigs(instance, state);
        }
        remove_dir(&instance.dir()).await?;
    }
    Ok(())
}

/// Whatever of it exists: used by tests, and by people who do not believe.
pub async fn traces(instance: &Instance) -> Result<Vec<String>> {
    let mut found: Vec<String> = machine::outer_processes(instance)
        .into_iter()
        .map(|process| format!("process {}: {}", process.pid, process.command_line()))
        .collect();
    found.extend(network::namespaces(instance)?.into_iter().map(|name| format!("network namespace {name}")));
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let ours = |line: &&str| {
        line.contains(&instance.dir().display().to_string()) || line.contains(&instance.netns_prefix())
    };
    found.extend(mounts.lines().filter(ours).map(|line| format!("mount {line}")));
    found.extend(cgroups::dirs(instance).into_iter().map(|dir| format!("cgroup {}", dir.display())));
    if instance.dir().exists() {
        found.push(format!("folder {}", instance.dir().display()));
    }
    Ok(found)
}

/// Killing the outer process of a machine kills all that runs in it.
async fn end_processes(instance: &Instance) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let left = machine::outer_processes(instance);
        if left.is_empty() {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            let lines: Vec<_> = left.iter().map(|p| format!("{} ({})", p.pid, p.command_line())).collect();
            bail!("these processes of sandbox '{instance}' do not end: {}", lines.join(", "));
        }
        for process in left {
            process.signal(Signal::KILL);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn remove_kubeconfigs(instance: &Instance, state: &State) {
    for cluster in &state.plan.clusters {
        fs::remove_file(state.kubeconfig(instance, &cluster.name)).ok();
    }
    // Only when nothing else lies in it.
    fs::remove_dir(crate::state::kubeconfig_dir(&state.checkout, instance)).ok();
}

/// The kernel may still be unmounting what killed processes held.
async fn remove_dir(dir: &Path) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        match fs::remove_dir_all(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if tokio::time::Instant::now() > deadline => {
                return Err(error).with_context(|| format!("cannot remove {}", dir.display()));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
