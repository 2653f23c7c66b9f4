//! How much longer it takes to create a pod where a policy covers its namespace: the host then asks `federlet serve`.
//! Pods are created with `dryRun`, which goes the whole way but stores nothing, so nothing else is measured.

use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_sandbox::{
    Cluster, Instance, eventually, progress::Progress, state::State, testing::run_sandbox, up::build_federlet,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    arms::{Line, percentile, table},
    members::{join, start_serve},
};

/// The most that one in a hundred may take longer.
const BAR: Duration = Duration::from_millis(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pods on each side, in turns
    #[arg(long, default_value_t = 2000)]
    pods: u32,
    /// Policies on the host
    #[arg(long, default_value_t = 200)]
    policies: u32,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    ensure!(args.pods > 0 && args.policies > 0, "each number must be at least 1");
    let progress = Progress::new();
    let binary = build_federlet(true, &progress).await?;
    let instance = Instance::new("bench")?;
    run_sandbox(&instance, &["up", "--members", "1"]).await?;
    let measured = async {
        let state = State::running(&instance)?;
        let host = Cluster::open(&instance, &state, "host")?;
        let client = host.client().await?;
        let gateway = state.plan.subnet.gateway();
        let url = format!("https://{gateway}:9443");
        let _serve = start_serve(&binary, &host, &state, &["--webhook-url", &url])?;
        join(&binary, &host, &Cluster::open(&instance, &state, "member1")?).await?;
        prepare(&client, args.policies).await?;
        let step = progress.step("measure");
        let [covered, plain] = measure(&client, args.pods).await?;
        step.done("");
        show(&covered, &plain)
    }
    .await;
    run_sandbox(&instance, &["down"]).await?;
    measured
}

/// Two namespaces, one with policies.
async fn prepare(client: &Client, policies: u32) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["covered", "plain"] {
        let object = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        namespaces.create(&PostParams::default(), &object).await?;
    }
    let kind = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", "PropagationPolicy");
    let api: Api<DynamicObject> = Api::namespaced_with(
        client.clone(),
        "covered",
        &ApiResource::from_gvk_with_plural(&kind, "propagationpolicies"),
    );
    for number in 0..policies {
        // The last of them is the one that counts.
        let object = if number + 1 == policies { "pod".to_owned() } else { format!("other-{number}") };
        let policy = serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "name": format!("policy-{number}") },
            "spec": {
                "resourceSelectors": [{ "apiVersion": "v1", "kind": "Pod", "name": object }],
                "placement": { "clusterAffinity": { "clusterNames": ["member1"] } },
            },
        }))?;
        api.create(&PostParams::default(), &policy).await?;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "covered");
    eventually("pods are steered", Duration::from_secs(60), async || {
        let made = pods.create(&dry(), &pod()?).await?;
        let affinity = made.spec.and_then(|spec| spec.affinity);
        ensure!(affinity.is_some(), "not yet");
        Ok(())
    })
    .await
}

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn pod() -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": "pod" },
        "spec": { "containers": [{ "name": "main", "image": "nginx:1" }] },
    }))?)
}

async fn measure(client: &Client, count: u32) -> Result<[Vec<Duration>; 2]> {
    let apis = ["covered", "plain"].map(|namespace| Api::<Pod>::namespaced(client.clone(), namespace));
    let mut times = [vec![], vec![]];
    let (dry, pod) = (dry(), pod()?);
    for _ in 0..count {
        for (api, times) in apis.iter().zip(&mut times) {
            let begun = Instant::now();
            api.create(&dry, &pod).await?;
            times.push(begun.elapsed());
        }
    }
    Ok(times)
}

fn show(covered: &[Duration], plain: &[Duration]) -> Result<()> {
    let line = |what: &str, percent| Line {
        what: what.to_owned(),
        unit: "ms",
        ours: percentile(covered, percent).as_secs_f64() * 1000.0,
        peer: percentile(plain, percent).as_secs_f64() * 1000.0,
    };
    println!(
        "\n{}",
        table(
            "covered by a policy",
            "not covered",
            vec![line("one pod created, median", 50), line("one pod created, 99 %", 99),]
        )
    );
    let added = percentile(covered, 99).saturating_sub(percentile(plain, 99));
    println!("added, 99 %: {added:?}");
    ensure!(added <= BAR, "being asked takes longer than {BAR:?}");
    Ok(())
}
