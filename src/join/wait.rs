use std::time::Duration;

use anyhow::bail;
use federlet_provider::{
    api::Cluster,
    clusters::{REACHABLE, READY, any_live},
};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, Client};

use crate::{
    output::say,
    {
        host::answered,
        progress::{Spinner, awaited},
    },
};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(300);

/// Waits until the node is Ready and says what to do next.
pub(super) async fn until_ready(host: &Client, name: &str, patience: Duration) -> anyhow::Result<()> {
    let clusters: Api<Cluster> = Api::all(host.clone());
    let ask = async {
        let cluster = clusters.get(name).await?;
        any_live(host, &cluster).await
    };
    if !awaited("asking the host", ask).await.map_err(|error| answered("the host", &error))? {
        say!("no `federlet serve` runs for this host yet: start one, and node {name} appears");
        return Ok(());
    }
    if patience.is_zero() {
        return Ok(());
    }
    let nodes: Api<Node> = Api::all(host.clone());
    let mut spinner = Spinner::start(format!("waiting for node {name}"));
    let begun = tokio::time::Instant::now();
    loop {
        let cluster = clusters.get(name).await.map_err(|error| answered("the host", &error))?;
        let node = nodes.get_opt(name).await.map_err(|error| answered("the host", &error))?;
        if let Some(node) = node.filter(is_ready) {
            drop(spinner);
            say!("{}", next_steps(name, &node));
            return Ok(());
        }
        let trouble = trouble(&cluster);
        spinner.say(match &trouble {
            Some(trouble) => format!("waiting for node {name}: {trouble}"),
            None => format!("waiting for node {name}"),
        });
        if begun.elapsed() >= patience {
            let why = trouble.unwrap_or_else(|| "nobody has looked at the Cluster yet".to_owned());
            bail!(
                "node {name} is not Ready after {}s: {why}; it goes on trying, see `federlet get clusters`",
                patience.as_secs()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// What the Cluster says is wrong.
fn trouble(cluster: &Cluster) -> Option<String> {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let of = |kind: &str| conditions.iter().find(|c| c.type_ == kind && c.status == "False");
    let said = |c: &Condition| format!("{} ({})", c.message, c.reason);
    of(REACHABLE).or_else(|| of(READY)).map(said)
}

fn next_steps(name: &str, node: &Node) -> String {
    let status = node.status.clone().unwrap_or_default();
    let amount = |resource: &str| {
        let amounts = status.allocatable.as_ref();
        amounts.and_then(|all| all.get(resource)).map(|amount| amount.0.clone()).unwrap_or_else(|| "?".into())
    };
    let (cpu, memory, pods) = (amount("cpu"), amount("memory"), amount("pods"));
    format!(
        "node {name} is Ready: room for {cpu} CPUs, {memory} of memory, {pods} pods\n\
         \n\
         Try:\n\
         \x20 kubectl get node {name}\n\
         \x20 kubectl run hello --image=nginx --overrides='{{\"spec\":{{\"nodeSelector\":{{\"kubernetes.io/hostname\":\"{name}\"}},\
         \"tolerations\":[{{\"key\":\"virtual-kubelet.io/provider\",\"operator\":\"Exists\"}}]}}}}'\n\
         \x20 kubectl logs hello"
    )
}
