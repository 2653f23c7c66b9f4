//! How long it takes to find the policy of a workload among many.

use std::{fs, hint::black_box, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use federlet_policy::{
    api::{ClusterPropagationPolicy, PropagationPolicy},
    object::Identity,
    store::{Propagation, View},
};
use serde_json::{Value, json};
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
    let before = memory_kib()?;
    let workloads: Vec<Identity> = (0..args.workloads).map(|index| workload(index, args.policies)).collect();
    let memory = memory_kib()?.saturating_sub(before);
    println!("memory of what is known of {} workloads: {:.1} MiB", args.workloads, memory as f64 / 1024.0);
    let of_namespaces = |index: usize| -> serde_json::Result<Propagation> {
        Ok(serde_json::from_value::<PropagationPolicy>(namespaced(index))?.into())
    };
    let of_the_host = |index: usize| -> serde_json::Result<Propagation> {
        Ok(serde_json::from_value::<ClusterPropagationPolicy>(cluster(index))?.into())
    };
    let slow = measure("PropagationPolicies", args, &workloads, of_namespaces)?
        | measure("ClusterPropagationPolicies, all on one kind", args, &workloads, of_the_host)?;
    if slow {
        bail!("one in a hundred takes longer than {BAR:?}");
    }
    Ok(())
}

/// Looks for the policy of each workload as the webhook and the placer do. Whether it takes too long.
fn measure(
    what: &str,
    args: &Args,
    workloads: &[Identity],
    policy: impl Fn(usize) -> serde_json::Result<Propagation>,
) -> anyhow::Result<bool> {
    let before = memory_kib()?;
    let policies = (0..args.policies).map(|index| policy(index).map(Arc::new)).collect::<Result<_, _>>()?;
    let view = View::with(policies);
    let memory = memory_kib()?.saturating_sub(before);
    let (mut times, mut matched) = (Vec::with_capacity(workloads.len()), 0);
    for workload in workloads {
        let began = Instant::now();
        let found = black_box(&view).policy_of(black_box(workload), None);
        times.push(began.elapsed());
        matched += usize::from(found.is_some());
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    println!("{} workloads among {} {what}: {matched} matched", args.workloads, args.policies);
    println!("median {:?}, 99 % {:?}, most {:?}", at(50), at(99), at(100));
    println!("memory of the policies: {:.1} MiB", memory as f64 / 1024.0);
    Ok(at(99) > BAR)
}

/// A third of them by name, by label and by kind, ten to a namespace.
fn namespaced(index: usize) -> Value {
    let selector = match index % 3 {
        0 => json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{index}")}),
        1 => {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"team": format!("team-{index}")}}})
        }
        _ => json!({"apiVersion": "apps/v1", "kind": "StatefulSet"}),
    };
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": format!("policy-{index}"), "namespace": format!("space-{}", index / 10)},
        "spec": {"resourceSelectors": [selector, {"apiVersion": "v1", "kind": "Service", "name": "x"}], "priority": index % 7,
            "placement": {"clusterAffinity": {"clusterNames": ["member1", "member2"]}}},
    })
}

/// Half of them by name and half by label: each of the latter has to be looked at for every workload.
fn cluster(index: usize) -> Value {
    let selector = if index.is_multiple_of(2) {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{index}")})
    } else {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"team": format!("team-{index}")}}})
    };
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": {"name": format!("policy-{index}")},
        "spec": {"resourceSelectors": [selector], "priority": index % 7},
    })
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
