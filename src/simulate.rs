//! `federlet simulate`: what policies would do, without a cluster.

mod read;

use std::io::Write;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use federlet_policy::{
    inventory::Inventory,
    survey::{Entry, survey},
};
use serde_json::{Value, json};

/// The flags of `federlet simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Files and directories with objects, policies, overrides and Clusters; `-` is the standard input.
    ///
    /// In a directory every *.yaml, *.yml and *.json below it counts.
    #[arg(short, long, value_name = "FILE|DIR", required = true, num_args = 1..)]
    filename: Vec<String>,

    /// How decisions are shown.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for each object and cluster.
    Table,
    /// JSON, with the objects as each cluster gets them.
    Json,
    /// YAML, likewise.
    Yaml,
}

impl SimulateArgs {
    /// Reads, decides, prints. What is wrong with one object does not keep the others from being shown.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (inventory, mut problems) = take(read::documents(&self.filename)?);
        if inventory.is_empty() && problems.is_empty() {
            bail!("there are no objects in {}", self.filename.join(", "));
        }
        let entries = survey(&inventory);
        // Who stops reading has seen enough: no reason to panic.
        std::io::stdout()
            .write_all(shown(&entries, self.output)?.as_bytes())
            .context("cannot write the decisions")?;
        // What is malformed was told with its place already.
        let understood = entries.iter().filter(|entry| entry.malformed.is_none());
        problems.extend(understood.filter_map(|entry| Some(format!("{}: {}", entry.key, entry.error()?))));
        for (binding, resource) in inventory.idle_bindings() {
            eprintln!("note: {binding} has no effect: {resource} is not among the objects");
        }
        for problem in &problems {
            eprintln!("error: {problem}");
        }
        match problems.len() {
            0 => Ok(()),
            1 => bail!("one object has an error; what is shown is without it"),
            many => bail!("{many} objects have errors; what is shown is without them"),
        }
    }
}

/// Sorts objects in, and says what is wrong with the others.
fn take(documents: Vec<read::Document>) -> (Inventory, Vec<String>) {
    let mut inventory = Inventory::default();
    let mut problems = vec![];
    for read::Document { place, object } in documents {
        let done = object.and_then(|object| inventory.add(object).map_err(|error| error.to_string()));
        if let Err(error) = done {
            problems.push(format!("{place}: {error}"));
        }
    }
    (inventory, problems)
}

fn shown(entries: &[Entry], output: Output) -> anyhow::Result<String> {
    let all = || Value::Array(entries.iter().map(entry).collect());
    Ok(match output {
        Output::Table if entries.is_empty() => String::new(),
        Output::Table => format!("{}\n", table(entries)),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&all())?),
        Output::Yaml => serde_saphyr::to_string(&all()).context("the decisions cannot be written as YAML")?,
    })
}

/// One decision, as programs read it.
fn entry(entry: &Entry) -> Value {
    let clusters =
        entry.clusters.iter().map(|(name, replicas)| json!({ "name": name, "replicas": replicas }));
    json!({
        "apiVersion": entry.key.api_version,
        "kind": entry.key.kind,
        "namespace": entry.key.namespace,
        "name": entry.key.name,
        "policy": entry.decision.policy.as_ref().map(ToString::to_string),
        "clusters": clusters.collect::<Vec<_>>(),
        "reason": entry.reason(),
        "error": entry.error(),
        "rendered": entry.rendered,
    })
}

fn table(entries: &[Entry]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["TEMPLATE", "POLICY", "CLUSTERS", "REASON"]);
    for entry in entries {
        table.add_row(row(entry));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

fn row(entry: &Entry) -> [String; 4] {
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let cluster = |(name, replicas): (&String, &Option<u32>)| match replicas {
        Some(replicas) => format!("{name}:{replicas}"),
        None => name.clone(),
    };
    let said = [entry.error().map(|error| format!("error: {error}")), entry.reason()];
    [
        entry.key.to_string(),
        or_none(entry.decision.policy.as_ref().map(ToString::to_string).unwrap_or_default()),
        or_none(entry.clusters.iter().map(cluster).collect::<Vec<_>>().join(" ")),
        said.into_iter().flatten().collect::<Vec<_>>().join("; "),
    ]
}

#[cfg(test)]
mod tests;
