//! A person at a terminal, who makes its window larger.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::SOON;

/// What is to run in the container: it says how large its terminal is, and ends when that has changed.
pub const SEES_ITS_SIZE: &str =
    "stty size; until stty size | grep -q '44 99'; do sleep 0.1; done; echo resized";

/// Runs a command that runs [`SEES_ITS_SIZE`] in a container, at a terminal whose size changes meanwhile.
pub async fn knows_its_size(command: &Command) -> Result<()> {
    let unique = jiff::Timestamp::now().as_nanosecond();
    let typescript =
        std::env::temp_dir().join(format!("federlet-e2e-typescript-{}-{unique}", std::process::id()));
    let script = format!(
        "stty rows 33 cols 77; (until grep -q '33 77' {file}; do sleep 0.1; done; stty rows 44 cols 99 < /dev/tty) & {}",
        line(command),
        file = typescript.display(),
    );
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &script]).arg(&typescript).stdin(Stdio::null()).stdout(Stdio::null());
    let variables = command.as_std().get_envs().filter_map(|(name, value)| Some((name, value?)));
    terminal.envs(variables).env_remove("KUBECONFIG").kill_on_drop(true);
    let ended = tokio::time::timeout(SOON, terminal.status()).await;
    let said = std::fs::read_to_string(&typescript).unwrap_or_default();
    let _ = std::fs::remove_file(&typescript);
    ensure!(ended.context(said.clone())??.success() && said.contains("resized"), "{said}");
    Ok(())
}

/// The command as a shell takes it.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.as_std().get_program()).chain(command.as_std().get_args());
    let quoted = words.map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}
