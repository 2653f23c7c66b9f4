//! Processes that outlive the test that started them, and end with the program of which it is one.

use std::{io, path::Path, sync::LazyLock};

use anyhow::{Result, anyhow};
use tokio::{
    process::{Child, Command},
    runtime::{Builder, Runtime},
};

/// A thread that lives as long as this program. Each test has threads of its own, which end with it.
static KEEPER: LazyLock<io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build());

/// A command that the kernel ends together with the thread that started it, however that ends.
pub fn that_ends_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a command from the thread that stays.
pub async fn start_for_good(mut command: Command) -> Result<Child> {
    let keeper = KEEPER.as_ref().map_err(|error| anyhow!("cannot start a thread: {error}"))?;
    Ok(keeper.spawn(async move { command.spawn() }).await??)
}
