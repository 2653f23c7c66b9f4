//! Answers, on standard output.

use std::{fmt, io::Write as _};

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
