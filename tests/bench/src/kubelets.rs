//! Federlet's kubelet beside KWOK's: both pretend to run pods, so what is measured is the kubelet's side alone. Pods are
//! bound by name, so no scheduler takes part.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::{
    Cluster, Instance, component,
    process::Process,
    progress::Progress,
    state::State,
    up::{build_federlet, checkout},
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::process::{Child, Command};

use crate::{
    arms::{Amount, Arm, compare, compare_cost, table},
    clusters::with_clusters,
};

const MEMBER: &str = "member1";
const KWOK_NODE: &str = "member1-kwok-0";
const OUR_NODE: &str = "federlet";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each side takes its turn
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Pods one after the other, in each round
    #[arg(long, default_value_t = 50)]
    singles: u32,
    /// Pods at once, in each round
    #[arg(long, default_value_t = 500)]
    many: u32,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0 && args.singles > 0 && args.many > 0, "each number must be at least 1");
    let progress = Progress::new();
    let binary = build_federlet(true, &progress).await?;
    with_clusters(&["--members", "1", "--kwok-nodes", &format!("{MEMBER}=1")], async |instance| {
        measure(instance, &binary, args, &progress).await
    })
    .await
}

async fn measure(instance: &Instance, binary: &PathBuf, args: &Args, progress: &Progress) -> Result<()> {
    let state = State::running(instance)?;
    let cluster = Cluster::open(instance, &state, MEMBER)?;
    let client = cluster.client().await?;
    let federlet = start_federlet(binary, &cluster, &state)?;
    let ours =
        Process::find(i32::try_from(federlet.id().context("federlet ended")?)?).context("federlet ended")?;
    wait_ready(&client, OUR_NODE).await?;
    let kwok = component::daemon(instance, MEMBER, "kwok").context("KWOK does not run")?;
    let amount = Amount { singles: args.singles, many: args.many };
    let mut arms = [
        Arm::new("federlet", &client, Some(OUR_NODE), ours),
        Arm::new("kwok", &client, Some(KWOK_NODE), kwok),
    ];
    for round in 1..=args.rounds {
        for arm in &mut arms {
            let step = progress.step(format!("round {round}, {}", arm.name));
            arm.round(amount, round).await?;
            step.done("");
        }
    }
    let mut lines = compare(&arms[0], &arms[1], amount);
    lines.extend(compare_cost(&arms[0], &arms[1]));
    println!("\n{}", table("federlet", "KWOK", lines));
    println!("\nBelow 1, federlet is the faster or smaller one.");
    Ok(())
}

fn start_federlet(binary: &PathBuf, cluster: &Cluster, state: &State) -> Result<Child> {
    let log = std::fs::File::create(checkout().join("target/bench-federlet.log"))?;
    Command::new(binary)
        .args(["node", "--provider", "memory", "--nodename", OUR_NODE, "--tls-self-signed"])
        .args(["--address", &state.plan.subnet.gateway().to_string()])
        .arg("--kubeconfig")
        .arg(cluster.admin_kubeconfig())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start federlet")
}

pub(crate) async fn wait_ready(client: &Client, node: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    federlet_sandbox::eventually("the node is Ready", Duration::from_secs(60), async || {
        let node = nodes.get_opt(node).await.map_err(|error| error.to_string())?.ok_or("there is no node")?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready =
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        if ready { Ok(()) } else { Err("it is not Ready".to_owned()) }
    })
    .await
}
