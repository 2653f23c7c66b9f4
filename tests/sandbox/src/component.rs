//! A daemon of a cluster: started, stopped and started again with the same words.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::{Instance, machine::Machine, process::Process, shell};

/// How long a daemon may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to run, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Component {
    /// Unique in its cluster: `kubelet`, or `kubelet@edge-node2` where there are several.
    pub id: String,
    /// The machine it runs on.
    pub machine: String,
    /// Absolute path.
    pub program: PathBuf,
    /// Its words.
    pub args: Vec<String>,
}

impl Component {
    /// Names a component of a cluster by its role, and by its machine where the role exists more than once.
    pub fn id(role: &str, machine: &str, several: bool) -> String {
        if several { format!("{role}@{machine}") } else { role.to_owned() }
    }

    /// Starts it, and remembers how.
    pub async fn start(&self, machine: &Machine, cluster: &str) -> Result<()> {
        let files = Files::new(machine.instance(), cluster, &self.id);
        if files.process().is_some_and(Process::is_alive) {
            bail!("{cluster}: {} runs already", self.id);
        }
        fs::create_dir_all(files.dir())?;
        fs::write(&files.spec, serde_json::to_string_pretty(self)?)?;
        let log = OpenOptions::new().create(true).append(true).open(&files.log)?;
        let inside = machine.command(&self.program);
        // A session of its own, so that Ctrl-C at the terminal does not reach it.
        let mut command = Command::new("setsid");
        command
            .arg(inside.as_std().get_program())
            .args(inside.as_std().get_args())
            .args(&self.args)
            .env_clear();
        for (name, value) in inside.as_std().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{cluster}: cannot start {}", self.id))?;
        let process = child.id().and_then(|pid| Process::find(i32::try_from(pid).ok()?));
        match process {
            Some(process) => fs::write(&files.pid, serde_json::to_string(&process)?)?,
            None => bail!("{cluster}: {} ended at once:\n{}", self.id, files.log_tail()),
        }
        Ok(())
    }
}

/// The files of one component.
#[derive(Debug)]
pub struct Files {
    spec: PathBuf,
    pid: PathBuf,
    /// What it prints.
    pub log: PathBuf,
}

impl Files {
    /// Where they are.
    pub fn new(instance: &Instance, cluster: &str, id: &str) -> Self {
        let dir = components_dir(instance, cluster);
        let file = |ending: &str| dir.join(format!("{id}.{ending}"));
        Self { spec: file("json"), pid: file("pid"), log: file("log") }
    }

    fn dir(&self) -> &Path {
        self.spec.parent().unwrap_or(Path::new("/"))
    }

    fn process(&self) -> Option<Process> {
        serde_json::from_str(&fs::read_to_string(&self.pid).ok()?).ok()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        shell::log_tail(&self.log, 20)
    }
}

/// Whether a component runs now.
pub fn is_running(instance: &Instance, cluster: &str, id: &str) -> bool {
    Files::new(instance, cluster, id).process().is_some_and(Process::is_alive)
}

/// The process of a component. The one that we started only guards the door of the machine; its child is the daemon.
pub fn daemon(instance: &Instance, cluster: &str, id: &str) -> Option<Process> {
    Files::new(instance, cluster, id).process().filter(|process| process.is_alive())?.child()
}

/// Fails with the last words of the first component that has ended.
pub fn check_all_run(instance: &Instance, cluster: &str) -> Result<()> {
    for id in list(instance, cluster) {
        if !is_running(instance, cluster, &id) {
            let files = Files::new(instance, cluster, &id);
            bail!("{id} has ended. Its last lines, from {}:\n{}", files.log.display(), files.log_tail());
        }
    }
    Ok(())
}

/// Stops a component; it stays stopped until [`start_again`].
pub async fn stop(instance: &Instance, cluster: &str, id: &str) -> Result<()> {
    let files = known(instance, cluster, id)?;
    let Some(entrance) = files.process().filter(|process| process.is_alive()) else {
        bail!("{cluster}: {id} is not running");
    };
    daemon(instance, cluster, id).unwrap_or(entrance).stop(PATIENCE).await?;
    entrance.gone_within(PATIENCE).await;
    Ok(())
}

/// Starts a stopped component as it was started before.
pub async fn start_again(instance: &Instance, cluster: &str, id: &str) -> Result<()> {
    let files = known(instance, cluster, id)?;
    let component: Component = serde_json::from_str(&fs::read_to_string(&files.spec)?)
        .with_context(|| format!("{} is damaged", files.spec.display()))?;
    let machine = Machine::running(instance, &component.machine)?;
    component.start(&machine, cluster).await
}

/// Every component of a cluster.
pub fn list(instance: &Instance, cluster: &str) -> Vec<String> {
    let Ok(dir) = fs::read_dir(components_dir(instance, cluster)) else {
        return Vec::new();
    };
    let mut ids: Vec<String> = dir
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .collect();
    ids.sort();
    ids
}

/// The files of a component that must exist.
pub fn known(instance: &Instance, cluster: &str, id: &str) -> Result<Files> {
    let ids = list(instance, cluster);
    if !ids.iter().any(|known| known == id) {
        bail!("{cluster} has no component '{id}'; it has: {}", ids.join(", "));
    }
    Ok(Files::new(instance, cluster, id))
}

fn components_dir(instance: &Instance, cluster: &str) -> PathBuf {
    instance.cluster_dir(cluster).join("components")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_named_by_its_machine_only_where_there_are_several() {
        assert_eq!(Component::id("kubelet", "member1-node1", false), "kubelet");
        assert_eq!(Component::id("kubelet", "edge-node2", true), "kubelet@edge-node2");
    }
}
