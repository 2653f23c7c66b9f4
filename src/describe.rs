//! `federlet describe cluster`: all that there is to know of a member, on one page.

use std::fmt::Write as _;

use anyhow::bail;
use clap::{Args, Subcommand};
use federlet_provider::api::Cluster;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, Node},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use crate::{
    host::{HostArgs, answered},
    output::{Format, say},
    progress::awaited,
    table::{age, table},
};

/// The flags of `federlet describe`.
#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A member of the host.
    #[command(visible_alias = "clusters")]
    Cluster {
        /// Which ones.
        #[arg(required = true)]
        names: Vec<String>,

        #[command(flatten)]
        host: HostArgs,

        /// For programs: the Cluster, its node and the events of that.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Format>,
    },
}

impl DescribeArgs {
    /// Shows it.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let What::Cluster { names, host, output } = self.what;
        let client = host.client().await?;
        let says = |error: kube::Error| answered("the host", &error);
        let clusters: Api<Cluster> = Api::all(client.clone());
        let nodes: Api<Node> = Api::all(client.clone());
        let events: Api<Event> = Api::all(client);
        let mut described = vec![];
        for (number, name) in names.iter().enumerate() {
            let about = format!("involvedObject.kind=Node,involvedObject.name={name}");
            let about = ListParams::default().fields(&about);
            let ask =
                async { tokio::try_join!(clusters.get_opt(name), nodes.get_opt(name), events.list(&about)) };
            let (cluster, node, events) = awaited("asking the host", ask).await.map_err(says)?;
            let Some(cluster) = cluster else {
                bail!("there is no Cluster {name}: see `federlet get clusters`");
            };
            if output.is_some() {
                described.push(json!({ "cluster": cluster, "node": node, "events": events.items }));
                continue;
            }
            if number > 0 {
                say!("\n");
            }
            say!("{}", page(&cluster, node.as_ref(), &events.items, Timestamp::now()).trim_end());
        }
        match (output, described.as_slice()) {
            (Some(format), [one]) => format.write(one),
            (Some(format), many) => format.write(&many),
            (None, _) => Ok(()),
        }
    }
}

fn page(cluster: &Cluster, node: Option<&Node>, events: &[Event], now: Timestamp) -> String {
    let mut page = String::new();
    let mut say = |label: &str, value: &str| {
        let value = if value.is_empty() { "<none>" } else { value };
        let _ = writeln!(page, "{:<14}{value}", format!("{label}:"));
    };
    let (spec, status) = (&cluster.spec, cluster.status.clone().unwrap_or_default());
    let labels: Vec<String> = cluster.labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
    let taints: Vec<String> = spec.taints.iter().map(taint).collect();
    let nodes = status.node_summary.unwrap_or_default();
    say("Name", &cluster.name_any());
    say("Labels", &labels.join(", "));
    say("Taints", &taints.join(", "));
    say("Endpoint", &spec.api_endpoint);
    say("Id", &spec.id);
    say("Version", &status.kubernetes_version);
    say("Provider", &spec.provider);
    say("Region", &spec.region);
    say("Zones", &spec.zones().collect::<Vec<_>>().join(", "));
    say("Machines", &format!("{} of {} are Ready", nodes.ready_num, nodes.total_num));
    say("Node", &node.map_or("the host has none of this name".to_owned(), of_node));
    if let Some(federlet) = settings(cluster) {
        page += "Settings:\n";
        federlet.lines().for_each(|line| page += &format!("  {line}\n"));
    }
    let conditions = status.conditions.iter().map(|c| {
        let since = age(now.duration_since(c.last_transition_time.0).as_secs());
        vec![c.type_.clone(), c.status.clone(), since, c.reason.clone(), c.message.clone()]
    });
    section(&mut page, "Conditions", &["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], conditions.collect());
    let room = status.resource_summary.unwrap_or_default();
    let text = |quantity: Option<&Quantity>| quantity.map_or("0".to_owned(), |quantity| quantity.0.clone());
    let resources = room.allocatable.iter().map(|(name, amount)| {
        let largest = room.largest_free.get(name).map_or(String::new(), |free| free.0.clone());
        vec![name.clone(), amount.0.clone(), text(room.allocated.get(name)), largest]
    });
    let columns = ["NAME", "ALLOCATABLE", "ALLOCATED", "FREE ON ONE MACHINE"];
    section(&mut page, "Resources", &columns, resources.collect());
    let events = events.iter().map(|event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        let last = last.or_else(|| event.event_time.as_ref().map(|time| time.0));
        let seen = last.map_or("?".to_owned(), |at| age(now.duration_since(at).as_secs()));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![seen, text(&event.type_), text(&event.reason), text(&event.message)]
    });
    section(&mut page, "Events", &["LAST SEEN", "TYPE", "REASON", "MESSAGE"], events.collect());
    page
}

fn section(page: &mut String, title: &str, header: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(page, "{title}:");
    for line in table(header, rows).lines() {
        let _ = writeln!(page, "  {}", line.trim_end());
    }
}

fn taint(taint: &k8s_openapi::api::core::v1::Taint) -> String {
    let value = taint.value.as_deref().map_or(String::new(), |value| format!("={value}"));
    format!("{}{value}:{}", taint.key, taint.effect)
}

fn of_node(node: &Node) -> String {
    let status = node.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let address = status.addresses.iter().flatten().find(|address| address.type_ == "InternalIP");
    let port = status.daemon_endpoints.and_then(|all| all.kubelet_endpoint).map(|endpoint| endpoint.port);
    format!(
        "{}{}{}",
        if ready { "Ready" } else { "not Ready" },
        if cordoned { ", cordoned" } else { "" },
        match (address, port) {
            (Some(address), Some(port)) => format!(", its kubelet API is at {}:{port}", address.address),
            _ => String::new(),
        }
    )
}

/// What Karmada has no word for, as it was written.
fn settings(cluster: &Cluster) -> Option<String> {
    let spec = serde_json::to_value(&cluster.spec).ok()?;
    let federlet =
        spec.get("federlet").filter(|value| value.as_object().is_some_and(|map| !map.is_empty()))?;
    serde_saphyr::to_string(federlet).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_page_has_it_all() {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "member1", "labels": {"env": "prod"}},
            "spec": {"apiEndpoint": "https://m", "id": "1", "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
                "federlet": {"limits": {"cpu": "50%"}}},
            "status": {"kubernetesVersion": "v1.35.4", "nodeSummary": {"totalNum": 2, "readyNum": 1},
                "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "all is well",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "resourceSummary": {"allocatable": {"cpu": "4"}, "allocated": {"cpu": "1"}}},
        }))
        .unwrap();
        let page = page(&cluster, None, &[], "2026-01-01T00:01:00Z".parse().unwrap());
        for line in [
            "Name:         member1",
            "Labels:       env=prod",
            "Taints:       a=b:NoSchedule",
            "Region:       <none>",
            "Machines:     1 of 2 are Ready",
            "Node:         the host has none of this name",
            "Settings:",
            "  Ready  True    60s    ClusterReady  all is well",
            "  cpu   4            1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line:?} is not in:\n{page}");
        }
        assert!(page.contains("cpu: \"50%\"") || page.contains("cpu: 50%"), "{page}");
    }
}
