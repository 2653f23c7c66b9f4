//! Commands and their flags, as clap knows them.

use clap::{Arg, Command};

use super::cell;

/// Every command that people see, with a table of its flags.
pub(super) fn markdown(root: &mut Command) -> String {
    root.build();
    let mut text = String::from("Each flag that has a variable can also be given by the environment.\n\n");
    for command in root.get_subcommands() {
        describe(command, "federlet", &mut text);
    }
    text
}

fn describe(command: &Command, parent: &str, text: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    *text += &format!("## `{name}`\n\n{about}\n\n");
    let mut rows: Vec<String> = command.get_arguments().filter(|arg| shown(arg)).map(row).collect();
    // In an order that does not depend on where a flag was written.
    rows.sort();
    if !rows.is_empty() {
        *text += "| | default | variable | |\n| --- | --- | --- | --- |\n";
        *text += &format!("{}\n\n", rows.join("\n"));
    }
    for inner in command.get_subcommands() {
        describe(inner, &name, text);
    }
}

fn shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

fn row(arg: &Arg) -> String {
    let values: Vec<&str> = arg.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
    let takes = arg.get_action().takes_values();
    let value = if takes { format!(" {}", values.join(" ")) } else { String::new() };
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}{value}"),
        (None, Some(long)) => format!("--{long}{value}"),
        (Some(short), None) => format!("-{short}{value}"),
        (None, None) => values.join(" "),
    };
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let default = if takes && !defaults.is_empty() && !defaults.concat().is_empty() {
        format!("`{}`", cell(&defaults.join(",")))
    } else {
        String::new()
    };
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let possible: Vec<String> = if takes {
        let named = arg.get_possible_values();
        named.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned()).collect()
    } else {
        vec![]
    };
    let choice =
        if possible.is_empty() { String::new() } else { format!("; one of `{}`", possible.join("`, `")) };
    format!("| `{}` | {default} | {variable} | {}{choice} |", cell(&name).replace("&lt;", "<"), cell(&help))
}
