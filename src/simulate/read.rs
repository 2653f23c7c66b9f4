//! Files as documents. A document that cannot be read is an error of its own; the others are read on.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use federlet_policy::{inventory::flatten, yaml};
use serde_json::Value;

/// An object, and where it was written.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    /// The file and the number of the document in it.
    pub(super) place: String,
    /// The object, or why it cannot be read.
    pub(super) object: Result<Value, String>,
}

/// Reads all documents, in the order of the arguments.
pub(super) fn documents(names: &[String]) -> anyhow::Result<Vec<Document>> {
    let mut documents = vec![];
    let mut seen = BTreeSet::new();
    for name in names {
        if name == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the standard input")?;
            documents.extend(parse("standard input", &text));
            continue;
        }
        for file in files(Path::new(name))? {
            let real = file.canonicalize().unwrap_or_else(|_| file.clone());
            // A file that is also in a directory that is given is read once.
            if seen.insert(real) {
                let text =
                    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
                documents.extend(parse(&file.display().to_string(), &text));
            }
        }
    }
    Ok(documents)
}

/// The file, or those in a directory and below.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let about = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !about.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut found, mut passed) = (vec![], BTreeSet::new());
    below(path, &mut found, &mut passed)?;
    if found.is_empty() {
        bail!("there are no *.yaml, *.yml or *.json files in {}", path.display());
    }
    Ok(found)
}

fn below(folder: &Path, found: &mut Vec<PathBuf>, passed: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let says = || format!("cannot read {}", folder.display());
    // A link may lead back up.
    if !passed.insert(folder.canonicalize().with_context(says)?) {
        return Ok(());
    }
    let entries =
        fs::read_dir(folder).with_context(says)?.collect::<Result<Vec<_>, _>>().with_context(says)?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let is_ours =
            path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|ours| end == *ours));
        if path.is_dir() {
            below(&path, found, passed)?;
        } else if is_ours {
            found.push(path);
        }
    }
    Ok(())
}

/// The documents of one file.
fn parse(file: &str, text: &str) -> Vec<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read: Vec<Result<Value, String>> =
        if text.trim_start().starts_with(['{', '[']) { json(text) } else { parts(text) };
    let numbered = read.into_iter().enumerate();
    numbered.flat_map(|(index, read)| items(format!("{file} document {}", index + 1), read)).collect()
}

/// JSON values, one after the other. After what cannot be read nobody knows where the next begins.
fn json(text: &str) -> Vec<Result<Value, String>> {
    let mut values = vec![];
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let failed = value.is_err();
        values.push(value.map_err(|error| error.to_string()));
        if failed {
            // Several documents that are only written like JSON, in a file of YAML.
            return if text.contains("\n---") { parts(text) } else { values };
        }
    }
    values
}

/// YAML documents. Empty ones count, so that people find the number, but mean nothing.
fn parts(text: &str) -> Vec<Result<Value, String>> {
    split(text).into_iter().map(|text| yaml::read(&text)).collect()
}

/// Splits at lines of `---`. Each part keeps its place in the file by empty lines before it, so that errors name the
/// line that people see.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        let rest =
            line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']));
        if let Some(rest) = rest {
            parts.push("\n".repeat(number));
            add(&mut parts, rest);
        } else {
            add(&mut parts, line);
        }
    }
    // What is before the first line of `---` is a document only if it says something.
    let says_nothing = |part: &String| {
        part.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with(['#', '%']))
    };
    if parts.len() > 1 && parts.first().is_some_and(says_nothing) {
        parts.remove(0);
    }
    parts
}

fn add(parts: &mut [String], line: &str) {
    if let Some(part) = parts.last_mut() {
        part.push_str(line);
        part.push('\n');
    }
}

/// The objects of a document: none if it is empty, several if it is a list.
fn items(place: String, read: Result<Value, String>) -> Vec<Document> {
    let objects = match read {
        Ok(Value::Null) => return vec![],
        Ok(value) => flatten(value),
        Err(error) => return vec![Document { place, object: Err(error) }],
    };
    let many = objects.len() > 1;
    let named = |number: usize| if many { format!("{place} item {number}") } else { place.clone() };
    let each = objects.into_iter().enumerate();
    each.map(|(index, object)| Document { place: named(index + 1), object: Ok(object) }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<(String, Result<Value, String>)> {
        parse("f", text).into_iter().map(|one| (one.place, one.object)).collect()
    }

    #[test]
    fn documents_of_every_form() {
        let two = vec![
            ("f document 1".to_owned(), Ok(json!({"a": 1}))),
            ("f document 2".to_owned(), Ok(json!({"b": 2}))),
        ];
        for text in [
            "a: 1\n---\nb: 2\n",
            "# words\n---\na: 1\n--- # more\nb: 2\n",
            "---\na: 1\n---\r\nb: 2",
            "--- {a: 1}\n---\nb: 2\n",
            "{\"a\": 1}\n{\"b\": 2}",
            "{\"a\": 1}\n---\n{\"b\": 2}",
            "\u{feff}a: 1\n---\nb: 2\n---\n# nothing\n---\n",
        ] {
            assert_eq!(read(text), two, "{text:?}");
        }
        assert_eq!(read(""), []);
        assert_eq!(read("# only words\n"), []);
        // A line of dashes inside a text is no separator unless it is only dashes at the very left.
        assert_eq!(read("a: |\n  ---\n  b\n"), [("f document 1".to_owned(), Ok(json!({"a": "---\nb\n"})))]);
        assert_eq!(read("mode: 0644"), [("f document 1".to_owned(), Ok(json!({"mode": 420})))]);
        let list = r#"{"kind": "List", "items": [{"a": 1}, {"b": 2}]}"#;
        assert_eq!(
            read(list),
            [
                ("f document 1 item 1".to_owned(), Ok(json!({"a": 1}))),
                ("f document 1 item 2".to_owned(), Ok(json!({"b": 2})))
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_an_error_of_its_own() {
        let found = read("a: 1\n---\nb: [1\n---\nc: 3\n");
        assert_eq!(found.len(), 3);
        assert_eq!(found[1].0, "f document 2");
        let error = found[1].1.clone().unwrap_err();
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(found[2].1, Ok(json!({"c": 3})));
        let found = read("{\"a\": 1} nonsense");
        assert_eq!(found[0].1, Ok(json!({"a": 1})));
        assert!(found[1].1.is_err());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = format!("{:#}", documents(&["no/such/file.yaml".to_owned()]).unwrap_err());
        assert!(error.starts_with("cannot read no/such/file.yaml: "), "{error}");
    }
}
