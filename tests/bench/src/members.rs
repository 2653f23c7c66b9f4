//! Pods through the virtual node of a member beside pods created in the member itself, which is the floor: nobody can be
//! faster than the member. KWOK plays its nodes, so that what is measured is the way there and back.

use std::{collections::BTreeMap, path::Path, process::Stdio};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::{
    Cluster, Instance, component,
    process::Process,
    progress::Progress,
    shell,
    state::State,
    testing::run_sandbox,
    up::{build_federlet, checkout},
};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{
    arms::{Amount, Arm, compare, percentile, table},
    kubelets::wait_ready,
    load::Load,
    spent::Spent,
};

const MEMBER: &str = "member1";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each side takes its turn
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Pods one after the other, in each round
    #[arg(long, default_value_t = 50)]
    singles: u32,
    /// Pods at once, in each round
    #[arg(long, default_value_t = 1000)]
    many: u32,
    /// In the end, so many pods are held at once to see how much memory that takes
    #[arg(long, default_value_t = 10_000)]
    held: u32,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0 && args.singles > 0 && args.many > 0, "each number must be at least 1");
    let progress = Progress::new();
    let binary = build_federlet(true, &progress).await?;
    let instance = Instance::new("bench")?;
    let nodes = args.held.max(args.many).div_ceil(900) + 1;
    run_sandbox(&instance, &["up", "--members", "1", "--kwok-nodes", &format!("{MEMBER}={nodes}")]).await?;
    let measured = measure(&instance, &binary, args, &progress).await;
    run_sandbox(&instance, &["down"]).await?;
    measured
}

async fn measure(instance: &Instance, binary: &Path, args: &Args, progress: &Progress) -> Result<()> {
    let state = State::running(instance)?;
    let (host, member) = (Cluster::open(instance, &state, "host")?, Cluster::open(instance, &state, MEMBER)?);
    let (to_host, to_member) = (host.client().await?, member.client().await?);
    let serve = start_serve(binary, &host, &state, &[])?;
    let ours = Process::find(i32::try_from(serve.id().context("federlet ended")?)?).context("it ended")?;
    join(binary, &host, &member).await?;
    let kwok = component::daemon(instance, MEMBER, "kwok").context("KWOK does not run")?;
    let amount = Amount { singles: args.singles, many: args.many };
    let mut arms =
        [Arm::new("federlet", &to_host, Some(MEMBER), ours), Arm::new("direct", &to_member, None, kwok)];
    let mut spent = Spent::of(instance, &["host", MEMBER], ("federlet", ours));
    for round in 1..=args.rounds {
        for (side, arm) in arms.iter_mut().enumerate() {
            let step = progress.step(format!("round {round}, {}", arm.name));
            let before = spent.now();
            arm.round(amount, round).await?;
            spent.add(side, &before);
            step.done("");
        }
    }
    println!("\n{}", table("through the node", "in the member", compare(&arms[0], &arms[1], amount)));
    let pods = f64::from(args.rounds * (args.singles + args.many));
    println!("\n{}\n", spent.table("through the node", "in the member", pods));
    for (side, cluster) in [("host", &host), ("member", &member)] {
        let counted: Vec<String> = writes(cluster)?
            .into_iter()
            .map(|(what, count)| format!("{what} {:.2}", f64::from(count) / pods))
            .collect();
        println!("writes by federlet per pod life, {side}: {}", counted.join(", "));
    }
    waiting(&to_host, args.singles).await?;
    held(&to_host, ours, args.held, progress).await
}

/// Pods that wait for a Secret: how long from the moment that it is there until they run.
async fn waiting(client: &kube::Client, count: u32) -> Result<()> {
    let mut load = Load::new(client, "waiting", Some(MEMBER), 0).await?;
    let mut times = load.after_their_secret(count).await?;
    load.delete_all(count).await?;
    load.end().await?;
    times.sort();
    let last = times.last().copied().unwrap_or_default();
    println!("a pod that waited for a Secret runs after: median {:?}, most {last:?}", percentile(&times, 50));
    Ok(())
}

/// `federlet join` of the member, until its node is Ready.
pub(crate) async fn join(binary: &Path, host: &Cluster, member: &Cluster) -> Result<()> {
    let mut join = Command::new(binary);
    join.args(["join", MEMBER, "--kubeconfig"])
        .arg(host.admin_kubeconfig())
        .arg("--cluster-kubeconfig")
        .arg(member.admin_kubeconfig());
    shell::output(&mut join).await?;
    wait_ready(&host.client().await?, MEMBER).await
}

/// Memory while so many pods run.
async fn held(client: &kube::Client, serve: Process, most: u32, progress: &Progress) -> Result<()> {
    let mib = || serve.resident() as f64 / f64::from(1 << 20);
    println!("memory with no pods: {:.1} MiB", mib());
    for count in [most / 10, most] {
        if count == 0 {
            continue;
        }
        let step = progress.step(format!("hold {count} pods"));
        let mut load = Load::new(client, &format!("held{count}"), Some(MEMBER), 0).await?;
        load.all_at_once(count).await?;
        step.done("");
        println!("memory with {count} pods: {:.1} MiB", mib());
        load.delete_all(count).await?;
        load.end().await?;
    }
    Ok(())
}

/// How often federlet wrote what, about pods of the rounds, as the audit log counts it.
fn writes(cluster: &Cluster) -> Result<BTreeMap<String, u32>> {
    let mut counted = BTreeMap::new();
    for line in std::fs::read_to_string(cluster.audit_log())?.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let ours = text("/userAgent").starts_with("federlet/") && text("/stage") == "ResponseComplete";
        let about = text("/objectRef/namespace").starts_with("bench-federlet-");
        if ours && about && ["create", "update", "patch", "delete"].contains(&text("/verb")) {
            *counted.entry(format!("{} {}", text("/verb"), text("/objectRef/resource"))).or_default() += 1;
        }
    }
    Ok(counted)
}

/// `federlet serve` for the host.
pub(crate) fn start_serve(binary: &Path, host: &Cluster, state: &State, words: &[&str]) -> Result<Child> {
    let log = std::fs::File::create(checkout().join("target/bench-federlet.log"))?;
    Command::new(binary)
        .args(["serve", "--metrics-addr", "", "--address", &state.plan.subnet.gateway().to_string()])
        .arg("--kubeconfig")
        .arg(host.admin_kubeconfig())
        .args(words)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start federlet")
}
