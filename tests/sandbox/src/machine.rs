//! A machine of a cluster: namespaces for network, mounts, processes and host name.
//!
//! Its first process holds them all. When that one is killed, the kernel kills every process inside and undoes
//! every mount, whatever state containers, shims and volumes were in; so cleaning up needs no bookkeeping.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::{
    Instance, cgroups,
    instance::MARK,
    plan::MachinePlan,
    process::{self, Process},
    shell,
};

/// The name under which the first process of a machine is found again.
const MACHINE_MARK: &str = "FEDERLET_SANDBOX_MACHINE";

/// A machine whose namespaces exist.
#[derive(Debug, Clone)]
pub struct Machine {
    instance: Instance,
    name: String,
    init: Process,
}

/// How many processors a daemon uses. Dozens of them on one machine that each look for work on all of its processors
/// keep those busy with looking. Who says how many, in Go's own words, is asking for speed.
fn processors_of_a_daemon() -> String {
    std::env::var("GOMAXPROCS").unwrap_or_else(|_| {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get).div_ceil(4).to_string()
    })
}

impl Machine {
    /// Makes the namespaces and lays out the folders that node software expects at fixed places.
    pub async fn start(instance: &Instance, plan: &MachinePlan) -> Result<Self> {
        let dir = instance.machine_dir(&plan.name);
        for folder in ["lib/kubelet", "lib/containerd", "lib/cni", "lib/federlet", "log"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        cgroups::create(instance, &plan.name)?;
        let log = fs::File::create(dir.join("machine.log"))?;
        Command::new("setsid")
            .args(["nsenter", &format!("--net=/run/netns/{}", instance.netns(&plan.name)), "--"])
            .args(["unshare", "--mount", "--propagation", "private", "--uts", "--pid"])
            .args(["--fork", "--kill-child=KILL", "--mount-proc", "--", "sh", "-euc"])
            .arg(init_script(&plan.name, &dir))
            .env(MARK, instance.name())
            .env(MACHINE_MARK, &plan.name)
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot run setsid, nsenter and unshare (Debian package util-linux)")?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            if dir.join("ready").exists()
                && let Some(machine) = Self::find(instance, &plan.name)
            {
                return Ok(machine);
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "machine {} did not start: {}",
                    plan.name,
                    shell::log_tail(&dir.join("machine.log"), 10)
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The running machine of that name.
    pub fn find(instance: &Instance, name: &str) -> Option<Self> {
        // `unshare` waits outside for its child, the first process inside.
        let outer = outer_processes(instance).into_iter().find(|p| p.has_variable(MACHINE_MARK, name))?;
        let init = outer.child()?;
        Some(Self { instance: instance.clone(), name: name.to_owned(), init })
    }

    /// The running machine of that name, or an error that says it is not running.
    pub fn running(instance: &Instance, name: &str) -> Result<Self> {
        Self::find(instance, name).with_context(|| {
            format!("machine {name} is not running: run `cargo sandbox --name {instance} up`")
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its files, as seen from outside.
    pub fn dir(&self) -> PathBuf {
        self.instance.machine_dir(&self.name)
    }

    /// The sandbox it belongs to.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// A command that will run inside.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init.pid.to_string(), "--mount", "--uts", "--net", "--pid", "--"])
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            // Memory is there, and processors are what many clusters on one machine lack.
            .env("GOGC", "300")
            .env("GOMAXPROCS", processors_of_a_daemon())
            .env(MARK, self.instance.name());
        command
    }

    /// Memory of all its processes in bytes.
    pub fn resident(&self) -> u64 {
        let Some(inside) = self.init.namespace("pid") else {
            return 0;
        };
        process::all()
            .into_iter()
            .map(|entry| entry.process)
            // A container has a namespace of its own below the machine's; its shim stands for it well enough.
            .filter(|process| process.namespace("pid").as_ref() == Some(&inside))
            .map(Process::resident)
            .sum()
    }
}

/// The processes whose death is the death of a machine.
pub fn outer_processes(instance: &Instance) -> Vec<Process> {
    let ours = std::fs::read_link("/proc/self/ns/pid").ok();
    process::all()
        .into_iter()
        .map(|entry| entry.process)
        .filter(|p| p.has_variable(MARK, instance.name()) && p.namespace("pid") == ours)
        .collect()
}

/// Private `/run`, `/var/lib` and `/var/log`, so that every machine can use the usual paths and none touches this
/// computer's own. Then it does nothing but collect dead children, as a first process must.
fn init_script(name: &str, dir: &std::path::Path) -> String {
    let dir = dir.display();
    format!(
        "hostname {name}
         mount --rbind /var/lib/federlet {dir}/lib/federlet
         mount --rbind {dir}/lib /var/lib
         mount --bind {dir}/log /var/log
         mount -t tmpfs tmpfs /run
         mkdir -p /run/netns /run/lock
         mount --make-rshared /
         touch {dir}/ready
         while :; do sleep 86400 & wait $! || true; done"
    )
}
