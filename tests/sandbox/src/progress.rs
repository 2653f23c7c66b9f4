//! What a person sees while the sandbox works: a moving line per step on a terminal, plain lines elsewhere.

use std::{io::IsTerminal, sync::Mutex, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// Without a terminal, a long step says at this interval that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// All steps of one command.
#[derive(Debug, Clone)]
pub struct Progress {
    bars: Option<MultiProgress>,
}

impl Progress {
    /// Looks at where the output goes. It goes to standard error: standard output is for answers.
    pub fn new() -> Self {
        let lively = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        Self { bars: lively.then(MultiProgress::new) }
    }

    /// Begins a step.
    pub fn step(&self, label: impl Into<String>) -> Step {
        let label = label.into();
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner().with_style(spinner()).with_prefix(label.clone()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            eprintln!("  … {label}");
        }
        let now = Instant::now();
        let plain = Mutex::new(Plain { said: now, message: String::new() });
        Step { progress: self.clone(), label, bar, begun: now, plain, ended: false }
    }

    /// A line of its own, above whatever moves.
    pub fn line(&self, text: impl AsRef<str>) {
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{}", text.as_ref())),
            None => eprintln!("{}", text.as_ref()),
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Plain {
    said: Instant,
    message: String,
}

/// One step. Dropped before [`Step::done`], it counts as failed.
#[derive(Debug)]
pub struct Step {
    progress: Progress,
    label: String,
    bar: Option<ProgressBar>,
    begun: Instant,
    plain: Mutex<Plain>,
    ended: bool,
}

impl Step {
    /// Says what is being done now.
    pub fn say(&self, message: impl Into<String>) {
        let message = message.into();
        match &self.bar {
            Some(bar) => bar.set_message(message),
            None => self.sign_of_life(message),
        }
    }

    /// Says how much of a known amount is done.
    pub fn at(&self, position: u64, total: u64) {
        match &self.bar {
            Some(bar) => {
                if bar.length() != Some(total) {
                    bar.set_length(total);
                    bar.set_style(gauge());
                }
                bar.set_position(position.min(total));
            }
            None => self.sign_of_life(format!("{} of {total}", position.min(total))),
        }
    }

    /// Ends the step well; the time it took is shown.
    pub fn done(mut self, result: impl AsRef<str>) {
        self.end("✔", result.as_ref());
    }

    fn end(&mut self, sign: &str, result: &str) {
        self.ended = true;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let label = &self.label;
        let seconds = self.begun.elapsed().as_secs_f32();
        let line = format!("  {sign} {label:<32} {seconds:>6.1} s  {result}");
        self.progress.line(line.trim_end());
    }

    fn sign_of_life(&self, message: String) {
        let Ok(mut plain) = self.plain.lock() else { return };
        if plain.said.elapsed() >= SIGN_OF_LIFE && plain.message != message {
            plain.said = Instant::now();
            eprintln!("  … {} ({} s): {message}", self.label, self.begun.elapsed().as_secs());
        }
        plain.message = message;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.ended {
            self.end("✘", "");
        }
    }
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("  {spinner:.cyan} {prefix:<32} {elapsed:>6}  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn gauge() -> ProgressStyle {
    ProgressStyle::with_template(
        "  {spinner:.cyan} {prefix:<32} {elapsed:>6}  {bar:24.cyan/blue} {pos}/{len} {wide_msg}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
}
