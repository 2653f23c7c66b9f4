//! How much longer it takes to create a pod where a policy covers its namespace: the host then asks `federlet serve`,
//! which looks for the Deployment that the pod came from. Of every other pod the ReplicaSet in between was made a moment
//! ago, so that nobody has told of it yet and it has to be read. Pods are created with `dryRun`, which goes the whole way
//! but stores nothing, so nothing else is measured.

use std::time::Duration;

use anyhow::{Result, ensure};
use federlet_sandbox::{Cluster, eventually, progress::Progress, state::State, up::build_federlet};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    arms::{Line, percentile, table},
    bars::Bars,
    clusters::with_clusters,
    members::{join, start_serve},
};

/// The most milliseconds that one in a hundred may take longer.
const BAR: f64 = 10.0;

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
    with_clusters(&["--members", "1"], async |instance| {
        let state = State::running(instance)?;
        let host = Cluster::open(instance, &state, "host")?;
        let client = host.client().await?;
        let gateway = state.plan.subnet.gateway();
        let url = format!("https://{gateway}:9443");
        let _serve = start_serve(&binary, &host, &state, &["--webhook-url", &url])?;
        join(&binary, &host, &Cluster::open(instance, &state, "member1")?).await?;
        prepare(&client, args.policies).await?;
        let step = progress.step("measure");
        let [covered, plain] = Box::pin(measure(&client, args.pods)).await?;
        step.done("");
        show(&covered, &plain)
    })
    .await
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
        let object = if number + 1 == policies { "web".to_owned() } else { format!("other-{number}") };
        let policy = serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "name": format!("policy-{number}") },
            "spec": {
                "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": object }],
                "placement": { "clusterAffinity": { "clusterNames": ["member1"] } },
            },
        }))?;
        api.create(&PostParams::default(), &policy).await?;
    }
    Ok(())
}

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// A namespace with a Deployment that makes nothing by itself.
struct Side {
    pods: Api<Pod>,
    sets: Api<ReplicaSet>,
    deployment: Deployment,
    /// One that was there from the beginning.
    known: ReplicaSet,
}

impl Side {
    async fn new(client: &Client, namespace: &str) -> Result<Self> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": {
                "replicas": 0, "paused": true, "revisionHistoryLimit": 1_000_000,
                "selector": { "matchLabels": { "app": "web" } }, "template": template(),
            },
        }))?;
        let deployment = deployments.create(&PostParams::default(), &deployment).await?;
        let sets = Api::namespaced(client.clone(), namespace);
        let known = make_set(&sets, &deployment, "known").await?;
        Ok(Self { pods: Api::namespaced(client.clone(), namespace), sets, deployment, known })
    }

    async fn is_steered(&self) -> Result<()> {
        eventually("pods are steered", Duration::from_secs(60), async || {
            let made = self.pods.create(&dry(), &pod(&self.known)?).await?;
            let affinity = made.spec.and_then(|spec| spec.affinity);
            ensure!(affinity.is_some(), "not yet");
            Ok(())
        })
        .await
    }
}

async fn make_set(sets: &Api<ReplicaSet>, of: &Deployment, name: &str) -> Result<ReplicaSet> {
    let set = serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": { "app": "web" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": of.name_any(), "uid": of.uid(), "controller": true,
            }],
        },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": template() },
    }))?;
    Ok(sets.create(&PostParams::default(), &set).await?)
}

fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "nginx:1" }] },
    })
}

fn pod(of: &ReplicaSet) -> Result<Pod> {
    let mut pod = template();
    pod["metadata"]["name"] = json!("pod");
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": of.name_any(), "uid": of.uid(), "controller": true,
    }]);
    Ok(serde_json::from_value(pod)?)
}

/// How long pods of a ReplicaSet took that is known, and of one that is new.
#[derive(Default)]
struct Times {
    known: Vec<Duration>,
    new: Vec<Duration>,
}

async fn measure(client: &Client, count: u32) -> Result<[Times; 2]> {
    let sides = [Side::new(client, "covered").await?, Side::new(client, "plain").await?];
    sides[0].is_steered().await?;
    let mut times = [Times::default(), Times::default()];
    for number in 0..count {
        for (side, times) in sides.iter().zip(&mut times) {
            let is_new = number % 2 == 1;
            let made = if is_new {
                Some(make_set(&side.sets, &side.deployment, &format!("set-{number}")).await?)
            } else {
                None
            };
            let (pod, dry) = (pod(made.as_ref().unwrap_or(&side.known))?, dry());
            let begun = Instant::now();
            side.pods.create(&dry, &pod).await?;
            let into = if is_new { &mut times.new } else { &mut times.known };
            into.push(begun.elapsed());
        }
    }
    Ok(times)
}

fn show(covered: &Times, plain: &Times) -> Result<()> {
    let pairs = [
        ("of a ReplicaSet that is known", &covered.known, &plain.known),
        ("of one just made", &covered.new, &plain.new),
    ];
    let lines = pairs.iter().filter(|(_, ours, _)| !ours.is_empty()).flat_map(|(what, ours, peer)| {
        [("median", 50), ("99 %", 99)].map(|(name, percent)| Line {
            what: format!("a pod {what}, {name}"),
            unit: "ms",
            ours: percentile(ours, percent).as_secs_f64() * 1000.0,
            peer: percentile(peer, percent).as_secs_f64() * 1000.0,
        })
    });
    println!("\n{}", table("covered by a policy", "not covered", lines.collect()));
    let mut bars = Bars::default();
    for (what, ours, peer) in pairs.into_iter().filter(|(_, ours, _)| !ours.is_empty()) {
        let added = percentile(ours, 99).saturating_sub(percentile(peer, 99));
        bars.at_most(&format!("added to a pod {what}, 99 %"), added.as_secs_f64() * 1000.0, BAR, "ms");
    }
    bars.all_met()
}
