use serde::Serialize;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    /// As it should be.
    Good,
    /// It works, and somebody should know.
    Notice,
    /// It does not work, or soon will not.
    Wrong,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// The host, or a member.
    pub(super) place: String,
    /// What was looked at.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn good(place: &str, check: &'static str, found: impl Into<String>) -> Self {
        Self { place: place.into(), check, verdict: Verdict::Good, found: found.into(), advice: None }
    }

    pub(super) fn notice(
        place: &str,
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (found, advice) = (found.into(), Some(advice.into()));
        Self { place: place.into(), check, verdict: Verdict::Notice, found, advice }
    }

    pub(super) fn wrong(
        place: &str,
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Wrong, ..Self::notice(place, check, found, advice) }
    }

    /// As a person reads it.
    pub(super) fn line(&self, colour: bool) -> String {
        let (sign, code) = match self.verdict {
            Verdict::Good => ("✔", 32),
            Verdict::Notice => ("!", 33),
            Verdict::Wrong => ("✘", 31),
        };
        let sign = if colour { format!("\x1b[{code}m{sign}\x1b[0m") } else { sign.to_owned() };
        let line = format!("{sign} {}: {}: {}", self.place, self.check, self.found);
        match &self.advice {
            Some(advice) => format!("{line}\n    → {advice}"),
            None => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_what_and_what_to_do() {
        let fine = Finding::good("host", "version", "v1.35.4");
        assert_eq!(fine.line(false), "✔ host: version: v1.35.4");
        let wrong = Finding::wrong("member1", "clock", "is 90 s behind", "set its clock");
        assert_eq!(wrong.line(false), "✘ member1: clock: is 90 s behind\n    → set its clock");
        assert!(wrong.line(true).starts_with("\x1b[31m✘\x1b[0m member1"));
    }
}
