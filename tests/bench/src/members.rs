//! Pods through the virtual node of a member beside pods created in the member itself, which is the floor: nobody can be
//! faster than the member. KWOK plays its nodes, so that what is measured is the way there and back.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::{
    Cluster, Instance, component,
    process::Process,
    progress::Progress,
    shell,
    state::State,
    up::{build_federlet, checkout},
};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{
    apart::set_apart,
    arms::{Amount, Arm, compare, millis, percentile, table},
    bars::Bars,
    clusters::with_clusters,
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
    #[arg(long, default_value_t = 70)]
    singles: u32,
    /// Pods at once, in each round
    #[arg(long, default_value_t = 1000)]
    many: u32,
    /// In the end, so many pods are held at once to see how much memory that takes
    #[arg(long, default_value_t = 10_000)]
    held: u32,
    /// With many pods, too, let both clusters share all processors, rather than half of them for each
    #[arg(long)]
    together: bool,
    /// Measure this program, rather than build one from the sources as they are
    #[arg(long, value_name = "PATH")]
    federlet: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0 && args.singles > 0 && args.many > 0, "each number must be at least 1");
    let progress = Progress::new();
    let binary = match &args.federlet {
        Some(binary) => binary.clone(),
        None => build_federlet(true, &progress).await?,
    };
    let nodes = args.held.max(args.many).div_ceil(900) + 1;
    with_clusters(&["--members", "1", "--kwok-nodes", &format!("{MEMBER}={nodes}")], async |instance| {
        measure(instance, &binary, args, &progress).await
    })
    .await
}

async fn measure(instance: &Instance, binary: &Path, args: &Args, progress: &Progress) -> Result<()> {
    let state = State::running(instance)?;
    let (host, member) = (Cluster::open(instance, &state, "host")?, Cluster::open(instance, &state, MEMBER)?);
    let (to_host, to_member) = (host.client().await?, member.client().await?);
    let serve = start_serve(binary, &host, &state, &[])?;
    let ours = Process::find(i32::try_from(serve.id().context("federlet ended")?)?).context("it ended")?;
    let this = Process::find(std::process::id().cast_signed()).context("this program runs")?;
    join(binary, &host, &member).await?;
    let mib = || ours.resident() as f64 / f64::from(1 << 20);
    let empty = mib();
    let kwok = component::daemon(instance, MEMBER, "kwok").context("KWOK does not run")?;
    let mut arms =
        [Arm::new("federlet", &to_host, Some(MEMBER), ours), Arm::new("direct", &to_member, None, kwok)];
    let mut spent = Spent::of(instance, &["host", MEMBER], &[("federlet", ours), ("this program", this)]);
    // A pod that is alone keeps one cluster busy at a time, whichever it is; a thousand keep both.
    let alone = Amount { singles: args.singles, many: 0 };
    rounds(&mut arms, &mut spent, alone, 1..=args.rounds, progress).await?;
    let mut load = Load::new(&to_host, "said", Some("nobody"), 0).await?;
    let least = millis(percentile(&load.said_to_run(args.singles * args.rounds).await?, 50));
    load.end().await?;
    waiting(&to_host, args.singles).await?;
    if !args.together {
        set_apart(instance, "host", &[ours, this], MEMBER)?;
    }
    let at_once = Amount { singles: 0, many: args.many };
    rounds(&mut arms, &mut spent, at_once, args.rounds + 1..=args.rounds * 2, progress).await?;
    println!("memory after the rounds: {:.1} MiB", mib());

    let [through, direct] = &arms;
    println!("\n{}", table("through the node", "in the member", compare(through, direct, at_once)));
    let pods = f64::from(args.rounds * (args.singles + args.many));
    println!("\n{}\n", spent.table("through the node", "in the member", pods));
    let mut bars = Bars::default();
    // In the member that is one create and one delete, and for each namespace it and what owns its objects.
    for (side, cluster, most) in [("host", &host, 3.0), ("member", &member, 2.01)] {
        let per_pod = |count: u32| f64::from(count) / pods;
        let counted = writes(cluster)?;
        let told: Vec<String> =
            counted.iter().map(|(what, count)| format!("{what} {:.2}", per_pod(*count))).collect();
        println!("writes by federlet per pod life, {side}: {}", told.join(", "));
        bars.at_most(&format!("writes per pod life, {side}"), per_pod(counted.values().sum()), most, "");
    }
    let (ours, floor) = (through.until_running(), direct.until_running());
    let at = |times: &[Duration], percent| millis(percentile(times, percent));
    println!(
        "{:.1} ms of what one pod takes are over when the host shows it on its node (median)",
        millis(percentile(&through.until_placed(), 50)),
    );
    println!("to create it and to say that it runs takes the host {least:.1} ms, without federlet");
    bars.at_most("added to one pod, median", at(&ours, 50) - at(&floor, 50), 15.0, "ms");
    bars.at_most("added to one pod, 99 %", at(&ours, 99) - at(&floor, 99), 60.0, "ms");
    bars.at_most("one pod beside the member itself, median", at(&ours, 50) / at(&floor, 50), 2.0, "x");
    let burst = |arm: &Arm| millis(percentile(&arm.starts, 50));
    bars.at_most(
        &format!("{} pods beside the member itself", args.many),
        burst(through) / burst(direct),
        1.5,
        "x",
    );
    println!("memory with no pods: {empty:.1} MiB");
    for count in [args.held / 10, args.held].into_iter().filter(|count| *count > 0) {
        let full = held(&to_host, &mib, count, count < args.held, progress).await?;
        if count == args.held {
            bars.at_most("memory per 10,000 pods", (full - empty) * 10_000.0 / f64::from(count), 60.0, "MiB");
        }
    }
    bars.all_met()
}

/// Rounds in which each side takes its turn.
async fn rounds(
    arms: &mut [Arm; 2],
    spent: &mut Spent,
    amount: Amount,
    numbers: RangeInclusive<u32>,
    progress: &Progress,
) -> Result<()> {
    for round in numbers {
        for (side, arm) in arms.iter_mut().enumerate() {
            let step = progress.step(format!("round {round}, {}", arm.name));
            let before = spent.now();
            arm.round(amount, round).await?;
            spent.add(side, &before);
            step.done("");
        }
    }
    Ok(())
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

/// Memory while so many pods run. The last ones go with their cluster.
async fn held(
    client: &kube::Client,
    mib: &impl Fn() -> f64,
    count: u32,
    more_follow: bool,
    progress: &Progress,
) -> Result<f64> {
    let step = progress.step(format!("hold {count} pods"));
    let mut load = Load::new(client, &format!("held{count}"), Some(MEMBER), 0).await?;
    load.all_at_once(count).await?;
    step.done("");
    let full = mib();
    println!("memory with {count} pods: {full:.1} MiB");
    if more_follow {
        load.delete_all(count).await?;
        load.end().await?;
    }
    Ok(full)
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
