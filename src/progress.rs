//! What a person sees while a command works: a moving line on a terminal, plain lines elsewhere.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// One line that moves while something is awaited. It goes to standard error: standard output is for answers.
pub(crate) struct Spinner {
    bar: Option<ProgressBar>,
    said: String,
}

impl Spinner {
    pub(crate) fn start(text: impl Into<String>) -> Self {
        let text = text.into();
        let lively = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        let bar = lively.then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}")
                .unwrap_or(ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        let mut spinner = Self { bar, said: String::new() };
        spinner.say(text);
        spinner
    }

    /// What is awaited now. The same is not said twice.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        let text = text.into();
        if text == self.said {
            return;
        }
        match &self.bar {
            Some(bar) => bar.set_message(text.clone()),
            None => eprintln!("{text}"),
        }
        self.said = text;
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
