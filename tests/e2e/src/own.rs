//! A sandbox of one test, which goes when the test ends, however it ends.

use std::process::Stdio;

use anyhow::Result;
use federlet_sandbox::{
    Cluster, Instance, Sandbox, process, state,
    testing::{PROGRAM_VARIABLE, run_sandbox},
    up::checkout,
};

/// What the names of these sandboxes begin with.
const PREFIX: &str = "e2e-";

/// The sandbox.
#[derive(Debug)]
pub struct Own {
    instance: Instance,
}

impl Own {
    /// Starts it. Named after this process too, so that two runs of the tests do not meet.
    pub async fn start(name: &str, words: &[&str]) -> Result<Self> {
        Self::run(name, &[&["up"], words].concat()).await
    }

    /// Starts it by another command than `up`.
    pub async fn run(name: &str, words: &[&str]) -> Result<Self> {
        remove_those_of_dead_runs();
        let instance = Instance::new(&format!("{PREFIX}{name}-{}", std::process::id()))?;
        let own = Self { instance };
        run_sandbox(&own.instance, words).await?;
        Ok(own)
    }

    /// As tests use it.
    pub fn sandbox(&self) -> Result<Sandbox> {
        Sandbox::attach(&self.instance)
    }

    /// One of its clusters.
    pub fn cluster(&self, name: &str) -> Result<Cluster> {
        self.sandbox()?.cluster(name)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A test that panics has no runtime to wait with.
        let mut command = match std::env::var_os(PROGRAM_VARIABLE) {
            Some(program) => std::process::Command::new(program),
            None => {
                let mut cargo =
                    std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                cargo.args(["run", "--quiet", "--bin", "sandbox", "--"]);
                cargo
            }
        };
        let words = ["--name", self.instance.name(), "down", "--force"];
        command.current_dir(checkout()).args(words).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
    }
}

/// A run that was killed could not clean up after itself.
fn remove_those_of_dead_runs() {
    for instance in state::instances().unwrap_or_default() {
        let pid = instance.name().strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('-')?.1.parse().ok());
        if pid.is_some_and(|pid| process::Process::find(pid).is_none()) {
            drop(Own { instance });
        }
    }
}
