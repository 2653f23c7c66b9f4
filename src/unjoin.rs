//! `federlet unjoin`: a member is a node no more.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use federlet_node::metrics::Metrics;
use federlet_provider::{
    api::Cluster,
    clusters::{READY, any_live},
    join::{
        SYSTEM_NAMESPACE,
        account::Account,
        leave::{AccountFate, leave_host, leave_member},
        node::is_virtual,
    },
    member::{Access, Way},
    names::{HostId, MemberName},
};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};

use crate::{
    host::{HostArgs, answered, host_id},
    node_commands::set_cordoned,
    output::say,
    progress::{Spinner, awaited},
    work::parse_duration,
};

/// The flags of `federlet unjoin`.
#[derive(Debug, Args)]
pub(crate) struct UnjoinArgs {
    /// The name of the Cluster.
    name: MemberName,

    #[command(flatten)]
    host: HostArgs,

    /// Finish at once, without the member. What was made there stays there.
    #[arg(long)]
    force: bool,

    /// Wait for the member, and if it is not done by then, finish without it.
    #[arg(long, conflicts_with = "force")]
    or_force: bool,

    /// That there is no such Cluster is no error.
    #[arg(long)]
    ignore_not_found: bool,

    /// How long to wait until everything is gone.
    #[arg(long, default_value = "5m", value_parser = parse_duration, value_name = "DURATION")]
    wait: Duration,
}

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);

impl UnjoinArgs {
    /// Takes away what joining and serving made, in the member and on the host.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let name = self.name.as_str();
        let host = self.host.client().await?;
        let clusters: Api<Cluster> = Api::all(host.clone());
        let says = |error: kube::Error| answered("the host", &error);
        if !awaited("asking the host", self.begin(&host)).await? {
            if self.ignore_not_found {
                say!("there is no Cluster {name}");
                return Ok(());
            }
            bail!("there is no Cluster {name}: see `federlet get clusters`");
        }
        if self.force {
            return self.force(&host).await;
        }
        let mut spinner = Spinner::start(format!("removing what was made in {name}"));
        let begun = tokio::time::Instant::now();
        let mut alone = false;
        while let Some(cluster) = clusters.get_opt(name).await.map_err(says)? {
            // One that ended without a word counts as there for a while.
            let served = any_live(&host, &cluster).await.map_err(says)?;
            if !served && !std::mem::replace(&mut alone, true) {
                spinner.say(format!("no `federlet serve` runs: removing what was made in {name} from here"));
            }
            let why = if served {
                said(&cluster)
            } else {
                match self.leave_from_here(&host, &cluster).await {
                    // It may answer the next time.
                    Err(why) if self.or_force => Some(format!("{why:#}")),
                    answer => answer?,
                }
            };
            if let Some(why) = &why {
                spinner.say(format!("removing what was made in {name}: {why}"));
            }
            if begun.elapsed() >= self.wait {
                let why = why.unwrap_or_else(|| "nobody says why".into());
                if self.or_force {
                    drop(spinner);
                    eprintln!("{name} is not gone after {}s: {why}", self.wait.as_secs());
                    return self.force(&host).await;
                }
                bail!(
                    "{name} is not gone after {}s: {why}; `federlet unjoin {name} --force` finishes on the host alone",
                    self.wait.as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        drop(spinner);
        say!("cluster {name} left");
        Ok(())
    }

    /// Cordons the node and deletes the Cluster. False if there is none.
    async fn begin(&self, host: &Client) -> anyhow::Result<bool> {
        let name = self.name.as_str();
        let clusters: Api<Cluster> = Api::all(host.clone());
        let says = |error: kube::Error| answered("the host", &error);
        let Some(cluster) = clusters.get_opt(name).await.map_err(says)? else { return Ok(false) };
        let nodes: Api<Node> = Api::all(host.clone());
        if nodes.get_opt(name).await.map_err(says)?.is_some_and(|node| is_virtual(&node)) {
            set_cordoned(host, name, true).await?;
        }
        if cluster.meta().deletion_timestamp.is_none() {
            clusters.delete(name, &DeleteParams::default()).await.map_err(says)?;
        }
        Ok(true)
    }

    /// Goes on with leaving where nobody serves. None when the Cluster is gone.
    async fn leave_from_here(&self, host: &Client, cluster: &Cluster) -> anyhow::Result<Option<String>> {
        let id = host_id(host).await?;
        let others = others(host, cluster).await?;
        let secret = secret(host, cluster).await?;
        if !cluster.spec.id.is_empty() {
            let member = member(cluster, secret.as_ref()).map_err(|why| {
                why.context(format!(
                    "the member cannot be reached; --force finishes on the host alone, and leaves there {}",
                    left_there(&id, &self.name)
                ))
            })?;
            let account = AccountFate::of(cluster, &others);
            let remains = leave_member(host, &member, &id, cluster, &account).await?;
            if !remains.is_empty() {
                return Ok(Some(format!("waiting for these to go in the member: {remains}")));
            }
            if let Some(awaited) = account.awaited() {
                return Ok(Some(awaited));
            }
        }
        leave_host(host, host, cluster).await?;
        Ok(None)
    }

    async fn force(&self, host: &Client) -> anyhow::Result<()> {
        let name = self.name.as_str();
        let clusters: Api<Cluster> = Api::all(host.clone());
        let says = |error: kube::Error| answered("the host", &error);
        let leave = async {
            if let Some(cluster) = clusters.get_opt(name).await.map_err(says)? {
                leave_host(host, host, &cluster).await?;
            }
            host_id(host).await
        };
        let id = awaited("removing what belongs to it on the host", leave).await?;
        say!("cluster {name} left on the host");
        say!(
            "the member was not asked; if it comes back, these are left there: {}",
            left_there(&id, &self.name)
        );
        say!("pods that ran there may still run");
        Ok(())
    }
}

/// What to look for in a member that nobody cleaned.
fn left_there(host: &HostId, node: &MemberName) -> String {
    format!(
        "all objects labelled federlet.io/host={host},federlet.io/node={node}, and the ClusterRole {} with its namespace",
        Account::of(host).namespace
    )
}

/// What the Cluster says about its leaving.
fn said(cluster: &Cluster) -> Option<String> {
    let conditions = &cluster.status.as_ref()?.conditions;
    conditions.iter().find(|c| c.type_ == READY && c.status == "False").map(|c| c.message.clone())
}

async fn others(host: &Client, cluster: &Cluster) -> anyhow::Result<Vec<Cluster>> {
    let clusters: Api<Cluster> = Api::all(host.clone());
    let all = clusters.list(&ListParams::default()).await.map_err(|error| answered("the host", &error))?;
    Ok(all.items.into_iter().filter(|other| other.uid() != cluster.uid()).collect())
}

async fn secret(host: &Client, cluster: &Cluster) -> anyhow::Result<Option<Secret>> {
    let reference = cluster.spec.secret_ref.as_ref().filter(|secret| secret.namespace == SYSTEM_NAMESPACE);
    let Some(reference) = reference else { return Ok(None) };
    let secrets: Api<Secret> = Api::namespaced(host.clone(), SYSTEM_NAMESPACE);
    secrets.get_opt(&reference.name).await.map_err(|error| answered("the host", &error))
}

/// A client of the member, with the credentials that the host has.
fn member(cluster: &Cluster, secret: Option<&Secret>) -> anyhow::Result<Client> {
    let keys = secret.and_then(|secret| secret.data.clone()).unwrap_or_default();
    let keys = keys.into_iter().map(|(key, value)| (key, value.0)).collect();
    let access = Access::new(Way::read(&cluster.spec, &keys)?, Metrics::default().into());
    Ok(access.clients(&cluster.spec.id)?.0.pods)
}
