//! Values of a chart, with what stands above each of them.

use super::cell;

/// A table of every value. Reads lines, not YAML: comments are what it is about.
pub(super) fn markdown(values: &str) -> String {
    let mut text = String::from("| value | default | |\n| --- | --- | --- |\n");
    let mut path: Vec<(usize, &str)> = vec![];
    let mut comment: Vec<&str> = vec![];
    let mut lines = values.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let rest = line.trim();
        if let Some(said) = rest.strip_prefix('#') {
            comment.push(said.trim());
            continue;
        }
        let Some((key, value)) = rest.split_once(':').filter(|(key, _)| !key.starts_with('-')) else {
            comment.clear();
            continue;
        };
        path.retain(|(depth, _)| *depth < indent);
        path.push((indent, key));
        let inner = lines.peek().is_some_and(|next| {
            let deeper = next.len() - next.trim_start().len() > indent;
            deeper && !next.trim().is_empty()
        });
        let name = path.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".");
        let said = cell(&std::mem::take(&mut comment).join(" "));
        match value.trim() {
            // What it has within it says more.
            "" if inner && said.is_empty() => {}
            "" if inner => text += &format!("| `{name}` | | {said} |\n"),
            value => text += &format!("| `{name}` | `{}` | {said} |\n", cell(value)),
        }
    }
    text
}

#[test]
fn a_value_has_its_path_its_default_and_its_comment() {
    let values =
        "# How many\n# there are.\nreplicas: 2\n\nserve:\n  # A port.\n  port: 1\n  labels:\n    a: \"\"\n";
    let expected = "| value | default | |\n| --- | --- | --- |\n| `replicas` | `2` | How many there are. |\n\
                    | `serve.port` | `1` | A port. |\n| `serve.labels.a` | `\"\"` |  |\n";
    assert_eq!(markdown(values), expected);
}
