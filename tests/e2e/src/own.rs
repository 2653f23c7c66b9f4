//! A sandbox of one test, which goes when the test ends, however it ends; or of all tests of a program, which goes when
//! `cargo sandbox test` sees that the program has ended.

use std::process::Stdio;

use anyhow::Result;
use federlet_sandbox::{
    Cluster, Instance, Sandbox,
    testing::{OWN_PREFIX, PROGRAM_VARIABLE, left_behind, run_sandbox},
    up::checkout,
};

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
        for instance in left_behind() {
            drop(Self { instance });
        }
        let instance = Instance::new(&format!("{OWN_PREFIX}{name}-{}", std::process::id()))?;
        let own = Self { instance };
        run_sandbox(&own.instance, words).await?;
        Ok(own)
    }

    /// As tests use it.
    pub fn sandbox(&self) -> Result<Sandbox> {
        Sandbox::attach(&self.instance)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.instance.name()
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
