//! `federlet get clusters`.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use federlet_provider::{
    api::{Cluster, SyncMode},
    clusters::READY,
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    clusters,
    host::HostArgs,
    output::{self, say},
    table::age,
};

/// The flags of `federlet get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The members of the host.
    #[command(visible_alias = "cluster")]
    Clusters(ClustersArgs),
}

#[derive(Debug, Args)]
struct ClustersArgs {
    /// Only these.
    names: Vec<String>,

    #[command(flatten)]
    host: HostArgs,

    /// Only those with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// How they are shown.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Only the names.
    Name,
}

impl GetArgs {
    /// Shows them.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let What::Clusters(args) = self.what;
        let host = args.host.client().await?;
        let found = clusters::list(&host, args.selector.as_deref()).await?;
        let wanted = match clusters::choose(found, &args.names) {
            Ok(wanted) => wanted,
            Err(name) => bail!("there is no Cluster {name}"),
        };
        show(&wanted, args.output)
    }
}

fn show(clusters: &[Cluster], format: Option<Output>) -> anyhow::Result<()> {
    match format {
        Some(Output::Json) => output::json(&list(clusters))?,
        Some(Output::Yaml) => output::yaml(&list(clusters))?,
        Some(Output::Name) => {
            clusters.iter().for_each(|cluster| say!("cluster.cluster.karmada.io/{}", cluster.name_any()));
        }
        _ if clusters.is_empty() => eprintln!("no clusters joined"),
        None | Some(Output::Wide) => {
            say!("{}", table(clusters, format == Some(Output::Wide), Timestamp::now()));
        }
    }
    Ok(())
}

fn list(clusters: &[Cluster]) -> Value {
    match clusters {
        [one] => json!(one),
        many => json!({ "apiVersion": "v1", "kind": "List", "items": many }),
    }
}

fn table(clusters: &[Cluster], wide: bool, now: Timestamp) -> String {
    let mut header = vec!["NAME", "VERSION", "MODE", "READY", "AGE"];
    if wide {
        header.extend(["REGION", "ZONES", "PROVIDER", "ENDPOINT"]);
    }
    crate::table::table(&header, clusters.iter().map(|cluster| row(cluster, wide, now)))
}

fn row(cluster: &Cluster, wide: bool, now: Timestamp) -> Vec<String> {
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let (spec, status) = (&cluster.spec, cluster.status.clone().unwrap_or_default());
    let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
    let mode = match spec.sync_mode {
        SyncMode::Push => "Push",
        SyncMode::Pull => "Pull",
    };
    let created = cluster.creation_timestamp().map(|time| now.duration_since(time.0).as_secs());
    let mut row = vec![
        cluster.name_any(),
        or_none(&status.kubernetes_version),
        mode.to_owned(),
        ready.map_or("Unknown".to_owned(), |condition| condition.status.clone()),
        created.map_or("<unknown>".to_owned(), age),
    ];
    if wide {
        let zones = spec.zones().collect::<Vec<_>>().join(",");
        row.extend([&spec.region, &zones, &spec.provider, &spec.api_endpoint].map(|text| or_none(text)));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str, more: &Value) -> Cluster {
        let mut json = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "spec": {},
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        for (key, value) in more.as_object().unwrap() {
            json[key] = value.clone();
        }
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_table_is_the_one_that_people_know() {
        let ready = json!({"kubernetesVersion": "v1.35.4", "conditions": [{
            "type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        let spec = json!({"region": "beijing", "zones": ["a", "b"], "apiEndpoint": "https://m"});
        let clusters =
            [cluster("member1", &json!({"spec": spec, "status": ready})), cluster("m2", &json!({}))];
        let now: Timestamp = "2026-01-01T00:02:03Z".parse().unwrap();
        let expected = "\
NAME     VERSION  MODE  READY    AGE   REGION   ZONES   PROVIDER  ENDPOINT
member1  v1.35.4  Push  True     2m3s  beijing  a,b     <none>    https://m
m2       <none>   Push  Unknown  2m3s  <none>   <none>  <none>    <none>";
        assert_eq!(table(&clusters, true, now), expected);
        assert!(table(&clusters, false, now).starts_with("NAME     VERSION  MODE  READY    AGE\n"));
    }

    #[test]
    fn one_object_is_itself_and_several_are_a_list() {
        let one = cluster("a", &json!({}));
        assert_eq!(list(std::slice::from_ref(&one))["kind"], "Cluster");
        assert_eq!(list(&[one.clone(), one])["kind"], "List");
        assert_eq!(list(&[])["kind"], "List");
    }
}
