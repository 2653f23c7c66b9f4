//! The downward API: what a container hears about its pod must be what the host says.

use std::fmt::Write;

use serde_json::Value;

use super::Context;
use crate::{
    json::{Object, each_container, items_mut, members, text},
    marks,
};

/// How many bytes of annotations may be written down a second time. An object has room for 256 KiB in all.
const ANNOTATIONS_LIMIT: usize = 96 * 1024;

/// Leads every field whose value differs in the member to a label or annotation that holds the host's.
///
/// The container's resources, the pod's own address and its name stay with the member's kubelet: only it knows the
/// first two, and the third is the one that the pod is meant to have.
pub(super) fn rewrite(spec: &mut Object, context: &mut Context<'_>) {
    each_container(spec, |container| {
        for env in items_mut(container.get_mut("env")) {
            redirect(env.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef")), context);
        }
    });
    for volume in items_mut(spec.get_mut("volumes")) {
        for item in items_mut(volume.get_mut("downwardAPI").and_then(|source| source.get_mut("items"))) {
            redirect(item.get_mut("fieldRef"), context);
        }
        for source in items_mut(volume.get_mut("projected").and_then(|source| source.get_mut("sources"))) {
            for item in items_mut(source.get_mut("downwardAPI").and_then(|source| source.get_mut("items"))) {
                redirect(item.get_mut("fieldRef"), context);
            }
        }
    }
}

fn redirect(field: Option<&mut Value>, context: &mut Context<'_>) {
    let Some(field) = field else { return };
    let instead = text(field, "fieldPath").and_then(|path| instead(path, context));
    if let Some(path) = instead {
        field["fieldPath"] = path.into();
    }
}

/// The path to read instead of this one, if its value is another in the member.
fn instead(path: &str, context: &mut Context<'_>) -> Option<String> {
    let label = |key| Some(format!("metadata.labels['{key}']"));
    let value = match path {
        "metadata.uid" => return label(marks::HOST_UID),
        "spec.nodeName" => return label(marks::NODE),
        "metadata.namespace" => (marks::HOST_NAMESPACE, context.host.key.namespace().to_owned()),
        "spec.serviceAccountName" => (marks::SERVICE_ACCOUNT, context.host.service_account().to_owned()),
        "status.hostIP" => (marks::NODE_ADDRESS, context.target.addresses.first()?.to_string()),
        "status.hostIPs" if !context.target.addresses.is_empty() => {
            let all: Vec<String> = context.target.addresses.iter().map(ToString::to_string).collect();
            (marks::NODE_ADDRESSES, all.join(","))
        }
        "metadata.labels" => (marks::DOWNWARD_LABELS, printed(context.host.metadata.get("labels"))),
        "metadata.annotations" => {
            let printed = printed(context.host.metadata.get("annotations"));
            if printed.len() > ANNOTATIONS_LIMIT {
                context.tell(
                    "AnnotationsTooLarge",
                    "the pod's annotations are shown to it as the member has them",
                );
                return None;
            }
            (marks::DOWNWARD_ANNOTATIONS, printed)
        }
        _ => return None,
    };
    context.annotations.insert(value.0.to_owned(), value.1.into());
    Some(format!("metadata.annotations['{}']", value.0))
}

/// A map the way the kubelet prints it into a file: a line per entry, sorted, values quoted.
fn printed(map: Option<&Value>) -> String {
    let mut lines: Vec<(&String, &str)> = members(map).filter_map(|(k, v)| Some((k, v.as_str()?))).collect();
    lines.sort();
    let lines: Vec<String> =
        lines.into_iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Quoted as Go quotes.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                let number = u32::from(c);
                // Writing into a String cannot fail.
                let _ = match number {
                    0..0x80 => write!(quoted, "\\x{number:02x}"),
                    0x80..0x1_0000 => write!(quoted, "\\u{number:04x}"),
                    _ => write!(quoted, "\\U{number:08x}"),
                };
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_print_as_the_kubelet_prints_them() {
        let map = json!({ "b": "two \"words\"", "a": "1\n2", "c": "ü\\\u{1}\u{85}" });
        assert_eq!(printed(Some(&map)), "a=\"1\\n2\"\nb=\"two \\\"words\\\"\"\nc=\"ü\\\\\\x01\\u0085\"");
        assert_eq!(printed(None), "");
    }
}
