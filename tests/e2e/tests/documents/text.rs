//! Documents, and what in them is to be typed.

use anyhow::{Context, Result};
use federlet_sandbox::up::checkout;

/// The text of a document.
pub(crate) fn document(path: &str) -> Result<String> {
    std::fs::read_to_string(checkout().join(path)).with_context(|| format!("cannot read {path}"))
}

/// What is between a heading that begins like this and another one, or the end.
pub(crate) fn section<'a>(text: &'a str, from: &str, to: &str) -> Result<&'a str> {
    let find = |heading: &str| text.find(&format!("\n{heading}")).with_context(|| format!("no {heading}"));
    let end = if to.is_empty() { text.len() } else { find(to)? };
    text.get(find(from)?..end).with_context(|| format!("{to} is before {from}"))
}

/// The blocks of a document in this language.
pub(crate) fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// What follows a prompt, with lines that a backslash continues, and files that are written out.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    let (mut goes_on, mut is_file) = (false, false);
    for line in blocks(text, "console").into_iter().flat_map(str::lines) {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (_, Some(last)) if is_file => {
                *last += &format!("\n{line}");
                is_file = line != "EOF";
                continue;
            }
            (Some(command), _) => {
                is_file = command.ends_with("<<'EOF'");
                all.push(command.trim_end_matches('\\').trim().to_owned());
            }
            (None, Some(last)) if goes_on => *last += &format!(" {}", line.trim_end_matches('\\').trim()),
            _ => {}
        }
        goes_on = line.ends_with('\\');
    }
    // A remark is for people.
    all.into_iter().map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned()).collect()
}

/// What the document shows after each command. Of a command that is shown several times, all of it.
pub(crate) fn shown(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = vec![];
    let mut command = None;
    let mut goes_on = false;
    for line in blocks(text, "console").into_iter().flat_map(|block| block.lines().chain([""])) {
        match line.strip_prefix("$ ") {
            _ if goes_on || line.is_empty() => {}
            Some(typed) => command = Some(typed.split("  #").next().unwrap_or_default().trim().to_owned()),
            None => all.extend(command.clone().map(|command| (command, line.to_owned()))),
        }
        // Files and what is continued are no answers.
        if line.ends_with("<<'EOF'") {
            command = None;
        }
        goes_on = line.ends_with('\\');
    }
    all
}

/// A line without what differs from time to time: every word with a digit.
pub(crate) fn shape(line: &str) -> String {
    let word = |word: &str| {
        if word.contains(|c: char| c.is_ascii_digit()) { "#".to_owned() } else { word.to_owned() }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_shown_belongs_to_its_command() {
    let text = "```console\n$ one   # first\nsaid 5m\n$ two \\\n    three\nand this\n$ cat > a <<'EOF'\na: b\nEOF\n```\n";
    assert_eq!(shown(text), [("one".into(), "said 5m".into()), ("two \\".into(), "and this".into())]);
    assert_eq!(shape("node member1 is  Ready: 8 CPUs"), "node # is Ready: # CPUs");
}

#[test]
fn commands_are_found_whole() {
    let text = "```console\n$ one   # first\nsaid\n$ two \\\n    three\n```\n```yaml\n$ not\n```\n";
    assert_eq!(commands(text), ["one", "two three"]);
    let text = "```console\n$ cat > a <<'EOF'\na:\n  b: c\nEOF\n$ next\n```\n";
    assert_eq!(commands(text), ["cat > a <<'EOF'\na:\n  b: c\nEOF", "next"]);
    let text = "# T\n\n## 1. One\na\n\n## 2. Two\nb\n";
    assert_eq!(section(text, "## 1.", "## 2.").unwrap().trim(), "## 1. One\na");
    assert!(section(text, "## 2.", "").unwrap().ends_with("b\n"));
}
