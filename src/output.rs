//! Answers, on standard output.

use std::{
    fmt,
    io::{IsTerminal as _, Write as _},
};

use serde::Serialize;

/// Writes a line. Whoever reads may stop in the middle, as `head` does: that is no reason to panic, nor to leave what
/// is being done half done.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Like `println!`, for whoever may not be listening any more.
macro_rules! say {
    ($($text:tt)*) => { crate::output::line(format_args!($($text)*)) };
}

pub(crate) use say;

/// Whether colours are welcome: on a terminal, unless somebody said otherwise.
pub(crate) fn colourful() -> bool {
    std::io::stdout().is_terminal() && !is_plain()
}

/// Whether somebody wants neither colours nor lines that move.
pub(crate) fn is_plain() -> bool {
    ["NO_COLOR", "CI"].iter().any(|name| std::env::var_os(name).is_some())
}

/// What programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    /// Writes a value so.
    pub(crate) fn write(self, value: &impl Serialize) -> anyhow::Result<()> {
        match self {
            Self::Json => json(value),
            Self::Yaml => yaml(value),
        }
    }
}

/// For programs.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    say!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Likewise.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<()> {
    say!("{}", serde_saphyr::to_string(value)?.trim_end());
    Ok(())
}
