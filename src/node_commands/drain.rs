use std::{collections::BTreeMap, time::Duration};

use anyhow::bail;
use clap::Args;
use federlet_provider::names::MemberName;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Preconditions},
};

use super::{
    drainable::{Allowed, Fate, fate},
    set_cordoned,
};
use crate::{
    host::{HostArgs, answered},
    output::say,
    progress::{Spinner, awaited},
    work::parse_duration,
};

/// How often pods are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How soon an eviction that a PodDisruptionBudget did not allow is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The flags of `federlet drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// The name of the Cluster.
    name: MemberName,

    #[command(flatten)]
    host: HostArgs,

    /// Leave pods of DaemonSets.
    #[arg(long)]
    ignore_daemonsets: bool,

    /// Evict pods that have data in emptyDir volumes, and lose it.
    #[arg(long)]
    delete_emptydir_data: bool,

    /// Evict pods that nobody starts again elsewhere.
    #[arg(long)]
    force: bool,

    /// How many seconds pods have to end [default: what each says itself].
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,

    /// How long to wait; 0 for ever.
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    timeout: Duration,
}

impl DrainArgs {
    /// Cordons the node and evicts its pods, as fast as their budgets allow.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let host = self.host.client().await?;
        let name = self.name.as_str();
        let changed = awaited("cordoning the node", set_cordoned(&host, name, true)).await?;
        say!("node/{name} {}cordoned", if changed { "" } else { "already " });
        let mut going = awaited("asking the host for its pods", self.choose(&host)).await?;
        let mut spinner = Spinner::start(format!("evicting {} pods", going.len()));
        let begun = tokio::time::Instant::now();
        while !going.is_empty() {
            let mut held = None;
            for pod in going.values_mut() {
                if let Some(why) = pod.evict(&host, self.grace_period).await? {
                    held = Some(why);
                }
            }
            let gone = self.gone(&host, &going).await?;
            for uid in gone {
                if let Some(pod) = going.remove(&uid) {
                    say!("pod/{} evicted", pod.name);
                }
            }
            let left = going.len();
            spinner.say(match held {
                Some(why) => format!("evicting {left} pods: {why}"),
                None => format!("evicting {left} pods"),
            });
            if !self.timeout.is_zero() && begun.elapsed() >= self.timeout {
                let names: Vec<&str> = going.values().map(|pod| pod.name.as_str()).collect();
                bail!(
                    "node {name} is not drained after {}s: {} still there",
                    self.timeout.as_secs(),
                    names.join(", ")
                );
            }
            if left > 0 {
                tokio::time::sleep(LOOK).await;
            }
        }
        drop(spinner);
        say!("node/{name} drained");
        Ok(())
    }

    /// The pods to evict, by UID; or why none is.
    async fn choose(&self, host: &Client) -> anyhow::Result<BTreeMap<String, Going>> {
        let allowed = Allowed {
            daemon_sets: self.ignore_daemonsets,
            empty_dirs: self.delete_emptydir_data,
            force: self.force,
        };
        let (mut going, mut stops) = (BTreeMap::new(), vec![]);
        for pod in pods(host, self.name.as_str()).await? {
            let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            match fate(&pod, allowed) {
                Fate::Evict => {
                    let (namespace, uid) =
                        (pod.namespace().unwrap_or_default(), pod.uid().unwrap_or_default());
                    let going_pod =
                        Going { name: pod.name_any(), namespace, uid: uid.clone(), next: None, asked: false };
                    going.insert(uid, going_pod);
                }
                Fate::Leave(why) => say!("leaving pod {name}: {why}"),
                Fate::Stop(why) => stops.push(format!("{name}: {why}")),
            }
        }
        if !stops.is_empty() {
            bail!("the node is cordoned, but these pods would be lost:\n  {}", stops.join("\n  "));
        }
        Ok(going)
    }

    /// Which of these are gone.
    async fn gone(&self, host: &Client, going: &BTreeMap<String, Going>) -> anyhow::Result<Vec<String>> {
        let there: Vec<Option<String>> =
            pods(host, self.name.as_str()).await?.iter().map(ResourceExt::uid).collect();
        Ok(going
            .keys()
            .filter(|uid| !there.iter().any(|other| other.as_ref() == Some(uid)))
            .cloned()
            .collect())
    }
}

/// A pod that has to go.
struct Going {
    name: String,
    namespace: String,
    uid: String,
    next: Option<tokio::time::Instant>,
    asked: bool,
}

impl Going {
    /// Asks for its eviction, unless that was granted. What holds it up, if anything does.
    async fn evict(&mut self, host: &Client, grace: Option<u32>) -> anyhow::Result<Option<String>> {
        if self.asked || self.next.is_some_and(|at| tokio::time::Instant::now() < at) {
            return Ok(None);
        }
        let api: Api<Pod> = Api::namespaced(host.clone(), &self.namespace);
        let only_this = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let delete =
            DeleteParams { grace_period_seconds: grace, ..DeleteParams::default().preconditions(only_this) };
        let params = EvictParams { delete_options: Some(delete), ..EvictParams::default() };
        match api.evict(&self.name, &params).await {
            Ok(_) => self.asked = true,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => self.asked = true,
            Err(kube::Error::Api(status)) if status.code == 429 => {
                self.next = Some(tokio::time::Instant::now() + AGAIN);
                return Ok(Some(format!("{} waits: {}", self.name, status.message)));
            }
            Err(error) => return Err(answered("the host", &error)),
        }
        Ok(None)
    }
}

async fn pods(host: &Client, node: &str) -> anyhow::Result<Vec<Pod>> {
    let api: Api<Pod> = Api::all(host.clone());
    let there = api.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await;
    Ok(there.map_err(|error| answered("the host", &error))?.items)
}
