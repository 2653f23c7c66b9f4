//! How long it takes to find the policy of a workload among many.

use std::{fs, hint::black_box, time::Duration};

use anyhow::{Context, bail};
use federlet_policy::{
    api::PropagationPolicy,
    matching::{Decision, Index, Policy},
    object::Identity,
};
use serde_json::json;
use tokio::time::Instant;

/// The most that one in a hundred may take.
const BAR: Duration = Duration::from_millis(1);

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Policies on the host.
    #[arg(long, default_value_t = 1_000)]
    policies: usize,

    /// Workloads whose policy is looked for, one by one.
    #[arg(long, default_value_t = 10_000)]
    workloads: usize,
}

/// Measures, prints, and fails if the bar is not met.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.policies == 0 || args.workloads == 0 {
        bail!("there is nothing to match: give at least one policy and one workload");
    }
    let empty = memory_kib()?;
    let policies: Vec<PropagationPolicy> = (0..args.policies).map(policy).collect::<Result<_, _>>()?;
    let with_policies = memory_kib()?;
    let workloads: Vec<Identity> = (0..args.workloads).map(|index| workload(index, args.policies)).collect();
    let with_all = memory_kib()?;
    let index: Index<'_> = policies.iter().map(Policy::from).collect();

    let (mut times, mut matched) = (Vec::with_capacity(workloads.len()), 0);
    for workload in &workloads {
        let began = Instant::now();
        let decision = black_box(&index).decide(black_box(workload), None);
        times.push(began.elapsed());
        matched += usize::from(matches!(decision, Decision::Take(_)));
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!("{} workloads among {} policies, {matched} matched", args.workloads, args.policies);
    println!("median {:?}, 99 % {:?}, most {:?}", at(50), at(99), at(100));
    println!(
        "memory: policies {:.1} MiB, workloads {:.1} MiB",
        mib(with_policies.saturating_sub(empty)),
        mib(with_all.saturating_sub(with_policies)),
    );
    if at(99) > BAR {
        bail!("one in a hundred takes longer than {BAR:?}");
    }
    Ok(())
}

/// A third of them by name, by label and by kind, ten to a namespace.
fn policy(index: usize) -> serde_json::Result<PropagationPolicy> {
    let selector = match index % 3 {
        0 => json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{index}")}),
        1 => {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"team": format!("team-{index}")}}})
        }
        _ => json!({"apiVersion": "apps/v1", "kind": "StatefulSet"}),
    };
    serde_json::from_value(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": format!("policy-{index}"), "namespace": format!("space-{}", index / 10)},
        "spec": {"resourceSelectors": [selector, {"apiVersion": "v1", "kind": "Service", "name": "x"}], "priority": index % 7,
            "placement": {"clusterAffinity": {"clusterNames": ["member1", "member2"]}}},
    }))
}

fn workload(index: usize, policies: usize) -> Identity {
    let wanted = index % policies;
    let kind = if wanted % 3 == 2 { "StatefulSet" } else { "Deployment" };
    Identity::of(&json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": format!("web-{wanted}"), "namespace": format!("space-{}", wanted / 10),
            "labels": {"app": "web", "team": format!("team-{wanted}"), "tier": "front"}},
    }))
}

/// The memory of this process.
fn memory_kib() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read the memory of this process")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).and_then(|text| text.parse().ok());
    number.context("the kernel does not say how much memory this process has")
}
