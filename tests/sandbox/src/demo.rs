//! The first thing to see: members and regions as nodes of the host, and something that runs on each.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use serde_json::json;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    Cluster, Instance,
    component::{self, Component},
    lock::{Lock, Purpose},
    machine::Machine,
    plan::{DEFAULT_KUBERNETES, Shape},
    progress::Progress,
    shell,
    state::State,
    up::{self, build_federlet},
};

/// Federlet among the daemons of the host: `cargo sandbox logs host federlet`.
const COMPONENT: &str = "federlet";

/// The first port of the virtual nodes' kubelet APIs. The host's real kubelet has 10250.
const FIRST_PORT: &str = "10300";

/// Where the host's API server asks about policies.
const WEBHOOK_PORT: u16 = 9443;

/// The nodes of the demo: a name, the cluster behind it, and what makes a region of it.
const NODES: [(&str, &str, Option<&str>); 4] = [
    ("member1", "member1", None),
    ("member2", "member2", None),
    ("ke-beijing-cluster", "edge", Some("location=beijing")),
    ("ke-hangzhou-cluster", "edge", Some("location=hangzhou")),
];

/// How long a first workload may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// What the demo is made of: a host, two members and an edge cluster with two regions.
pub fn shape() -> Shape {
    Shape {
        members: 2,
        edge: true,
        kubernetes: DEFAULT_KUBERNETES.to_owned(),
        member_kubernetes: DEFAULT_KUBERNETES.to_owned(),
        kwok_nodes: Default::default(),
    }
}

/// Where `federlet` of this sandbox is, for the PATH of people who try it.
pub fn programs(instance: &Instance) -> PathBuf {
    instance.dir().join("bin")
}

/// Starts the clusters, Federlet beside the host, joins everything, and runs a web server on each node. Done again, it
/// does what is missing.
pub async fn demo(instance: &Instance, progress: &Progress) -> Result<()> {
    up::up(instance, &shape(), progress).await?;
    let _lock = Lock::take(instance, Purpose::Change, "sandbox demo")?;
    let state = State::running(instance)?;
    let federlet = build_federlet(false, progress).await?;
    let host = Cluster::open(instance, &state, "host")?;
    let program = programs(instance).join("federlet");
    if !component::is_running(instance, "host", COMPONENT) {
        let step = progress.step("federlet serve");
        fs::create_dir_all(programs(instance))?;
        fs::copy(&federlet, &program)?;
        serve(instance, &state, &host, &program).await?;
        step.done("");
    }
    // One after the other: the first join also brings what the host needs to know about clusters.
    for (node, cluster, region) in NODES {
        let step = progress.step(format!("federlet join {node}"));
        let member = Cluster::open(instance, &state, cluster)?;
        let mut command = Command::new(&program);
        command
            .args(["join", node, "--kubeconfig"])
            .arg(host.admin_kubeconfig())
            .arg("--cluster-kubeconfig")
            .arg(member.admin_kubeconfig())
            .env_remove("KUBECONFIG");
        if let Some(region) = region {
            command.args(["--region-selector", region]);
        }
        shell::output(&mut command).await.with_context(|| {
            format!("{node} did not join; see `cargo sandbox --name {instance} logs host {COMPONENT}`")
        })?;
        step.done(region.unwrap_or(cluster));
    }
    let step = progress.step("a web server on each");
    try_join_all(NODES.map(|(node, ..)| deploy(&host, node))).await?;
    step.done("");
    Ok(())
}

async fn serve(instance: &Instance, state: &State, host: &Cluster, program: &std::path::Path) -> Result<()> {
    let plan = state.plan.cluster("host")?;
    let machine = plan.machines.first().context("the host has no machine")?;
    let address = machine.address.to_string();
    let words = [
        "serve",
        "--kubeconfig",
        &host.admin_kubeconfig().display().to_string(),
        "--address",
        &address,
        "--kubelet-port",
        FIRST_PORT,
        "--webhook-port",
        &WEBHOOK_PORT.to_string(),
        "--webhook-url",
        &format!("https://{address}:{WEBHOOK_PORT}"),
        "--metrics-addr",
        "",
    ];
    let component = Component {
        id: COMPONENT.to_owned(),
        machine: machine.name.clone(),
        program: program.to_owned(),
        args: words.iter().map(|word| (*word).to_owned()).collect(),
    };
    component.start(&Machine::running(instance, &machine.name)?, "host").await
}

async fn deploy(host: &Cluster, node: &str) -> Result<()> {
    let name = format!("web-{node}");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "tolerations": [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}],
                    "containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}],
                },
            },
        },
    });
    let mut child = host
        .kubectl()?
        .args(["apply", "-f", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
    stdin.write_all(deployment.to_string().as_bytes()).await?;
    drop(stdin);
    anyhow::ensure!(child.wait().await?.success(), "kubectl apply failed");
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    host.kubectl_output(&["rollout", "status", &format!("deployment/{name}"), &timeout]).await?;
    Ok(())
}

/// What a person looks at first, and what to try.
pub async fn tour(instance: &Instance, option: &str) -> Result<String> {
    let host = Cluster::open(instance, &State::running(instance)?, "host")?;
    let nodes = host.kubectl_output(&["get", "nodes"]).await?;
    let pods = host.kubectl_output(&["get", "pods", "-o", "wide"]).await?;
    let kubectl = format!("cargo sandbox {option}kubectl host");
    Ok(format!(
        "$ kubectl get nodes\n{nodes}\n$ kubectl get pods -o wide\n{pods}\n\
         Try:        {kubectl} exec deploy/web-member1 -- hostname\n\
         \u{20}           {kubectl} logs deploy/web-ke-beijing-cluster\n\
         \u{20}           {kubectl} scale deploy/web-member2 --replicas=3\n\
         A policy:   {kubectl} apply -f examples/weighted.yaml\n\
         \u{20}           {kubectl} get pods -n weighted -o wide\n\
         In a shell: eval \"$(cargo sandbox {option}env)\"\n\
         Stop it:    cargo sandbox {option}down"
    ))
}
