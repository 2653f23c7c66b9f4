//! What failed, said once more at the end: between a test that failed and the last line may lie half an hour of others.

/// So much of what a test said is repeated; the reason is mostly the last of it.
const LINES: usize = 40;

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The program, where several ran side by side, and the test.
    name: String,
    /// The last of what it said.
    said: Vec<String>,
}

/// Reads the output of one test program after the other, line by line.
#[derive(Debug, Default)]
pub(super) struct Failures {
    program: Option<String>,
    found: Vec<Failure>,
    /// Whether lines belong to the last one that was found.
    speaking: bool,
}

impl Failures {
    /// Those of a program with a name, or of whatever `cargo test` runs.
    pub(super) fn of(program: Option<&str>) -> Self {
        Self { program: program.map(str::to_owned), ..Self::default() }
    }

    /// Hears one line.
    pub(super) fn hear(&mut self, line: &str) {
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(test) = header {
            let name =
                self.program.as_ref().map_or_else(|| test.to_owned(), |program| format!("{program}: {test}"));
            self.found.push(Failure { name, said: vec![] });
            self.speaking = true;
        } else if line == "failures:" {
            self.speaking = false;
        } else if let Some(last) = self.found.last_mut().filter(|_| self.speaking) {
            last.said.push(line.to_owned());
            if last.said.len() > LINES {
                last.said.remove(0);
            }
        }
    }

    /// Those of others, too.
    pub(super) fn extend(&mut self, others: Self) {
        self.found.extend(others.found);
    }

    /// All of them, for people.
    pub(super) fn summary(&self) -> String {
        let each = |failure: &Failure| {
            let said = failure.said.join("\n");
            format!("\n== failed: {}\n{}\n", failure.name, said.trim_matches('\n'))
        };
        self.found.iter().map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_repeated_with_what_it_said() {
        let mut failures = Failures::of(Some("policy"));
        let output = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\nError: no such pod\n\n\
                      ---- c stdout ----\nthread panicked\n\nfailures:\n    a::b\n    c\n";
        output.lines().for_each(|line| failures.hear(line));
        assert_eq!(
            failures.summary(),
            "\n== failed: policy: a::b\nError: no such pod\n\n== failed: policy: c\nthread panicked\n"
        );
    }

    #[test]
    fn only_the_last_of_much_is_repeated() {
        let mut failures = Failures::default();
        failures.hear("---- long stdout ----");
        (0..100).for_each(|line| failures.hear(&line.to_string()));
        assert_eq!(failures.found[0].said.len(), LINES);
        assert_eq!(failures.found[0].said.last().map(String::as_str), Some("99"));
    }

    #[test]
    fn where_nothing_fails_nothing_is_said() {
        let mut failures = Failures::default();
        failures.hear("test a ... ok");
        assert_eq!(failures.summary(), "");
    }
}
