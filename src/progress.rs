//! What a person sees while a command works: a moving line on a terminal, plain lines elsewhere.

use std::{io::IsTerminal, pin::pin, sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::output;

/// How long a person waits without wondering.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for an answer, and says for what once that takes longer than a person expects.
pub(crate) async fn awaited<T>(text: &str, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    let _spinner = tokio::select! {
        biased;
        answer = &mut answer => return answer,
        () = tokio::time::sleep(PATIENCE) => Spinner::start(text),
    };
    answer.await
}

/// Likewise, in one line that stays: whoever is awaited may be talking with the person.
pub(crate) async fn noted<T>(text: &str, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        () = tokio::time::sleep(PATIENCE) => eprintln!("{text}"),
    }
    answer.await
}

/// Says what is awaited once that takes longer than a person expects, until the first of many has it.
#[derive(Clone)]
pub(crate) struct First(Arc<Mutex<Awaited>>);

enum Awaited {
    Quietly,
    Aloud { _spinner: Spinner },
    NoMore,
}

impl First {
    pub(crate) fn of(text: &'static str) -> Self {
        let first = Self(Arc::new(Mutex::new(Awaited::Quietly)));
        let awaited = first.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            let mut awaited = awaited.0.lock();
            if matches!(*awaited, Awaited::Quietly) {
                *awaited = Awaited::Aloud { _spinner: Spinner::start(text) };
            }
        });
        first
    }

    /// Before anything else is said.
    pub(crate) fn is_here(&self) {
        *self.0.lock() = Awaited::NoMore;
    }
}

/// One line that moves while something is awaited. It goes to standard error: standard output is for answers.
pub(crate) struct Spinner {
    bar: Option<ProgressBar>,
    said: String,
}

impl Spinner {
    pub(crate) fn start(text: impl Into<String>) -> Self {
        let text = text.into();
        let lively = std::io::stderr().is_terminal() && !output::is_plain();
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
