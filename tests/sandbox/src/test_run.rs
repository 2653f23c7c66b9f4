//! All tests in one command: cargo runs them, the sandbox comes when a test asks for it and goes in the end.

mod failures;
mod lanes;

use std::{iter::Sum, ops::AddAssign, process::Stdio};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::{
    Instance, builds,
    cleanup::{Files, clean},
    packages,
    progress::Progress,
    testing::{PROGRAM_VARIABLE, SANDBOX_VARIABLE, left_behind},
    up::checkout,
};

pub use self::lanes::{ALL_VARIABLE, LANES};
use self::{failures::Failures, lanes::Lane};

/// What became of the tests of one or several programs.
#[derive(Debug, Default)]
struct Results {
    counts: Counts,
    failures: Failures,
}

/// How many tests there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Runs all tests, or what `cargo test` makes of the user's own words; true if all passed.
pub async fn run(
    instance: &Instance,
    words: &[String],
    lanes: usize,
    keep: bool,
    progress: &Progress,
) -> Result<bool> {
    crate::preflight::root()?;
    let results = if words.is_empty() {
        prepare(progress).await?;
        lanes::run_all(instance, lanes, keep, progress).await?
    } else {
        let lane = [Lane::take(instance.clone())?];
        lanes::stop_after(&lane, keep, progress, cargo_test(instance, words, None, &[])).await?
    };
    print!("{}", results.failures.summary());
    let counts = results.counts;
    // On a line of its own, and last, so that people and machines find it.
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(counts.failed == 0)
}

/// All tests need all versions. Made ready here, it is seen; made ready within a test, it would look like a hang.
async fn prepare(progress: &Progress) -> Result<()> {
    crate::preflight::check().await?;
    packages::ensure(progress).await?;
    let versions = builds::kubernetes_versions();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let binaries = builds::Binaries::new()?;
    binaries.ensure(&versions, progress).await?;
    binaries.ensure_for_tests(progress).await
}

/// One `cargo test`. What it says goes to the terminal, with a word before each line where several run at once.
async fn cargo_test(
    instance: &Instance,
    words: &[String],
    prefix: Option<&str>,
    variables: &[(&str, String)],
) -> Result<Results> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(checkout()).args(["test", "--no-fail-fast"]);
    if !words.iter().any(|word| word == "-p" || word.starts_with("--package")) {
        command.arg("--workspace");
    }
    let mut child = command
        .args(words)
        .env(SANDBOX_VARIABLE, instance.name())
        // Where an error was made says less than what it says, and takes a hundred lines.
        .env("RUST_LIB_BACKTRACE", "0")
        .env(PROGRAM_VARIABLE, std::env::current_exe()?)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(if prefix.is_some() { Stdio::piped() } else { Stdio::inherit() })
        .kill_on_drop(true)
        .spawn()
        .context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has no standard output")?;
    let stderr = child.stderr.take();
    let show = async |line: &str| {
        let line = prefix.map_or_else(|| format!("{line}\n"), |prefix| format!("{prefix:<10} | {line}\n"));
        let mut terminal = tokio::io::stdout();
        terminal.write_all(line.as_bytes()).await?;
        terminal.flush().await
    };
    let results = async {
        let mut results = Results { counts: Counts::default(), failures: Failures::of(prefix) };
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            results.counts.add(&line);
            results.failures.hear(&line);
            show(&line).await?;
        }
        anyhow::Ok(results)
    };
    let complaints = async {
        let Some(stderr) = stderr else { return Ok(()) };
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await? {
            show(&line).await?;
        }
        anyhow::Ok(())
    };
    let (mut results, ()) = tokio::try_join!(results, complaints)?;
    let status = child.wait().await?;
    for instance in left_behind() {
        clean(&instance, Files::Remove).await?;
    }
    // It was not compiled, or it crashed: no test says so.
    if !status.success() && results.counts.failed == 0 {
        results.counts.failed += 1;
        eprintln!("`cargo test {}` ended with {status}", words.join(" "));
    }
    Ok(results)
}

impl AddAssign for Results {
    fn add_assign(&mut self, other: Self) {
        self.counts.passed += other.counts.passed;
        self.counts.failed += other.counts.failed;
        self.counts.skipped += other.counts.skipped;
        self.failures.extend(other.failures);
    }
}

impl Sum for Results {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, results| {
            sum += results;
            sum
        })
    }
}

impl Counts {
    /// Reads a line such as `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; …`.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(number)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_binaries_are_added_up() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.03s",
            "test a::b ... ok",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            counts.add(line);
        }
        assert_eq!(counts, Counts { passed: 6, failed: 2, skipped: 1 });
    }
}
