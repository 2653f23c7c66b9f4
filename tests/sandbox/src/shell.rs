//! Running other programs, with errors that say which one failed and what it said.

use std::{ffi::OsStr, path::Path, process::Stdio};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

/// Runs a program to its end and returns what it printed.
pub async fn run<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    output(&mut command).await
}

/// Runs `ip`, with its words separated by spaces.
pub async fn ip(words: &str) -> Result<String> {
    run("ip", words.split_whitespace()).await
}

/// Runs a prepared command to its end and returns what it printed.
pub async fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let done = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run `{shown}`"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let said = if said.trim().is_empty() { String::from_utf8_lossy(&done.stdout) } else { said };
        bail!("`{shown}` failed ({}): {}", done.status, last_lines(&said, 15));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Runs a prepared command to its end, telling each line that it says on standard error as it says it.
pub async fn watch(command: &mut Command, mut tell: impl FnMut(&str)) -> Result<()> {
    let shown = show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run `{shown}`"))?;
    let stderr = child.stderr.take().context("it has no standard error")?;
    let mut lines = BufReader::new(stderr).lines();
    let mut said = Vec::new();
    while let Some(line) = lines.next_line().await? {
        tell(&line);
        said.push(line);
    }
    let status = child.wait().await?;
    if !status.success() {
        bail!("`{shown}` failed ({status}): {}", last_lines(&said.join("\n"), 20));
    }
    Ok(())
}

/// The end of a text, for error messages.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The end of a log file; an unreadable one is as good as an empty one here.
pub fn log_tail(path: &Path, count: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    last_lines(&String::from_utf8_lossy(&text), count)
}

/// The path of a program, if the user's PATH or a system folder has it.
pub fn which(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

fn show(command: &Command) -> String {
    let command = command.as_std();
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_names_the_command_and_what_it_said() {
        let error = run("sh", ["-c", "echo out; echo bad luck >&2; exit 3"]).await.unwrap_err().to_string();
        assert!(error.contains("exit 3") && error.contains("bad luck"), "{error}");
        let error = run("no-such-program", [""; 0]).await.unwrap_err().to_string();
        assert!(error.contains("cannot run `no-such-program`"), "{error}");
    }

    #[test]
    fn only_the_end_of_a_text_is_shown() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
        assert_eq!(last_lines("", 5), "");
    }
}
