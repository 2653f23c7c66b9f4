//! What runs, as a table.

use anyhow::Result;
use comfy_table::{Table, presets};
use futures::future::join_all;

use crate::{Instance, addons, cluster, machine::Machine, network, plan::ClusterPlan, state::State};

/// One row per cluster.
pub async fn table(instance: &Instance, state: &State) -> Result<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["CLUSTER", "VERSION", "NODES", "API", "AGE", "RSS"]);
    for row in join_all(state.plan.clusters.iter().map(|cluster| row(instance, state, cluster))).await {
        table.add_row(row?);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    Ok(table.trim_fmt())
}

async fn row(instance: &Instance, state: &State, cluster: &ClusterPlan) -> Result<[String; 6]> {
    let nodes = if network::is_partitioned(instance, &state.plan, &cluster.name).await? {
        "partitioned".to_owned()
    } else {
        let asked = async {
            let client = cluster::client_for(instance, cluster).await?;
            addons::ready_nodes(&client).await
        };
        match tokio::time::timeout(std::time::Duration::from_secs(3), asked).await {
            Ok(Ok((ready, total))) => format!("{ready}/{total} Ready"),
            Ok(Err(_)) | Err(_) => "no answer".to_owned(),
        }
    };
    let resident: u64 = cluster
        .machines
        .iter()
        .filter_map(|machine| Machine::find(instance, &machine.name))
        .map(|machine| machine.resident())
        .sum();
    Ok([
        cluster.name.clone(),
        format!("v{}", cluster.kubernetes),
        nodes,
        cluster.api_url(),
        age(jiff::Timestamp::now().as_second() - state.started.as_second()),
        format!("{} MiB", resident / 1024 / 1024),
    ])
}

/// As kubectl writes ages.
fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (200_000, "2d")]
        {
            assert_eq!(age(seconds), text);
        }
    }
}
