//! `federlet top clusters`: how full the members are.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use federlet_provider::{api::Cluster, quantity::Quantity};
use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use crate::{
    clusters,
    host::HostArgs,
    output::{self, say},
    progress::awaited,
    table::table,
};

/// So many questions are open at once.
const TOGETHER: usize = 8;

/// The flags of `federlet top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What pods ask for and use of each member.
    #[command(visible_alias = "cluster")]
    Clusters(ClustersArgs),
}

#[derive(Debug, Args)]
struct ClustersArgs {
    /// Only these.
    names: Vec<String>,

    #[command(flatten)]
    host: HostArgs,

    /// How they are shown.
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Bars and shares.
    Table,
    /// Amounts, too.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Only the names.
    Name,
}

/// One resource of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    allocatable: String,
    /// What pods that have a machine ask for.
    asked: String,
    /// What the machines say that is used; none where nobody measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    nodes: String,
    cpu: Part,
    memory: Part,
    pods: Part,
}

impl TopArgs {
    /// Shows it.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let What::Clusters(args) = self.what;
        let host = args.host.client().await?;
        let wanted = match clusters::choose(clusters::list(&host, None).await?, &args.names) {
            Ok(wanted) => wanted,
            Err(name) => bail!("there is no Cluster {name}: see `federlet get clusters`"),
        };
        let ask = async |cluster: &Cluster| row(cluster, usage(&host, &cluster.name_any()).await.as_ref());
        let rows = stream::iter(&wanted).map(ask).buffered(TOGETHER).collect();
        let rows: Vec<Row> = awaited("asking the host what they use", rows).await;
        match args.output {
            Output::Json => output::json(&rows)?,
            Output::Yaml => output::yaml(&rows)?,
            Output::Name => rows.iter().for_each(|row| say!("cluster.cluster.karmada.io/{}", row.name)),
            _ if rows.is_empty() => eprintln!("no clusters joined"),
            output => say!("{}", show(&rows, output == Output::Wide)),
        }
        Ok(())
    }
}

/// What the host's metrics-server knows of a node; none where there is none, or it has not heard yet.
async fn usage(host: &Client, node: &str) -> Option<Value> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/nodes/{node}");
    let found: Value = host.request(http::Request::get(path).body(vec![]).ok()?).await.ok()?;
    Some(found["usage"].clone())
}

fn row(cluster: &Cluster, usage: Option<&Value>) -> Row {
    let status = cluster.status.clone().unwrap_or_default();
    let nodes = status.node_summary.unwrap_or_default();
    let room = status.resource_summary.unwrap_or_default();
    let text =
        |quantity: Option<&ApiQuantity>| quantity.map_or("0".to_owned(), |quantity| quantity.0.clone());
    let part = |resource: &str| Part {
        allocatable: text(room.allocatable.get(resource)),
        asked: text(room.allocated.get(resource)),
        used: usage.and_then(|usage| usage[resource].as_str()).map(str::to_owned),
    };
    Row {
        name: cluster.name_any(),
        nodes: format!("{}/{}", nodes.ready_num, nodes.total_num),
        cpu: part("cpu"),
        memory: part("memory"),
        pods: part("pods"),
    }
}

fn show(rows: &[Row], wide: bool) -> String {
    let header = ["NAME", "NODES", "CPU ASKED", "CPU USED", "MEMORY ASKED", "MEMORY USED", "PODS"];
    let line = |row: &Row| {
        let cell = |part: &Part, amount: Option<&String>| match amount {
            None => "<unknown>".to_owned(),
            Some(amount) => {
                let bar = bar(share(amount, &part.allocatable));
                if wide { format!("{bar} {amount}/{}", part.allocatable) } else { bar }
            }
        };
        vec![
            row.name.clone(),
            row.nodes.clone(),
            cell(&row.cpu, Some(&row.cpu.asked)),
            cell(&row.cpu, row.cpu.used.as_ref()),
            cell(&row.memory, Some(&row.memory.asked)),
            cell(&row.memory, row.memory.used.as_ref()),
            cell(&row.pods, Some(&row.pods.asked)),
        ]
    };
    table(&header, rows.iter().map(line))
}

/// How much of it, in thousandths; none of nothing.
fn share(amount: &str, of: &str) -> Option<u32> {
    let thousandths = |text: &str| Some(text.parse::<Quantity>().ok()?.steps_up("1m".parse().ok()?));
    let (amount, of) = (thousandths(amount)?, thousandths(of)?);
    (of > 0).then(|| u32::try_from(i128::from(amount.max(0)) * 1000 / i128::from(of)).unwrap_or(u32::MAX))
}

/// Ten fields, filled by tenths.
fn bar(thousandths: Option<u32>) -> String {
    let Some(thousandths) = thousandths else { return "<none>".to_owned() };
    let full = usize::try_from(thousandths.min(1000) / 100).unwrap_or(10);
    format!("{}{} {:>3}%", "█".repeat(full), "░".repeat(10 - full), thousandths / 10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bars_show_shares() {
        assert_eq!(bar(share("1500m", "4")), "███░░░░░░░  37%");
        assert_eq!(bar(share("8Gi", "8Gi")), "██████████ 100%");
        assert_eq!(bar(share("9", "6")), "██████████ 150%");
        assert_eq!(bar(share("1", "0")), "<none>");
        assert_eq!(bar(share("nonsense", "1")), "<none>");
    }

    #[test]
    fn a_member_that_nobody_measured_shows_what_is_asked() {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "member1"}, "spec": {},
            "status": {"nodeSummary": {"totalNum": 3, "readyNum": 2}, "resourceSummary": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "allocated": {"cpu": "1", "memory": "2Gi", "pods": "11"}}},
        }))
        .unwrap();
        let shown = show(&[row(&cluster, None)], false);
        let expected = "\
NAME     NODES  CPU ASKED        CPU USED   MEMORY ASKED     MEMORY USED  PODS
member1  2/3    ██░░░░░░░░  25%  <unknown>  ██░░░░░░░░  25%  <unknown>    █░░░░░░░░░  10%";
        assert_eq!(shown, expected);
        let usage = json!({"cpu": "400m", "memory": "1Gi"});
        assert!(show(&[row(&cluster, Some(&usage))], true).contains("█░░░░░░░░░  10% 400m/4"));
    }
}
