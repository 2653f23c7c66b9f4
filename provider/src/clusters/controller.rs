//! Watches what the host says about its members, and gives each of them a task.

use std::{collections::BTreeMap, fmt, hash::Hash, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    approve,
    connection::Connections,
    context::{Certificates, HostContext},
    identity,
    member::Member,
    plan::{Input, is_for, is_pushed, rivals, share_key},
    replicas::{Live, owner},
    tasks::Tasks,
};
use crate::{
    api::Cluster,
    join::{SYSTEM_NAMESPACE, leave::AccountFate},
};

/// A connection that is dead without saying so is noticed within this time.
const WATCH_SECONDS: u32 = 45;
/// Changes that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(20);

/// All members of a host.
pub struct Clusters {
    host: HostContext,
    connections: Arc<Connections>,
    clusters: Kept<Cluster>,
    secrets: Kept<Secret>,
    nodes: Kept<Node>,
    tasks: Tasks<Input>,
}

impl Clusters {
    /// The members of this host.
    pub fn new(host: HostContext) -> Self {
        let connections = Arc::default();
        let (clusters, secrets, nodes) = (Kept::default(), Kept::default(), Kept::default());
        Self { host, connections, clusters, secrets, nodes, tasks: Tasks::default() }
    }

    /// Serves those that are ours among `live` replicas until told to stop. Nodes and pods stay as they are.
    pub async fn run(mut self, mut live: watch::Receiver<Live>, stop: CancellationToken) {
        let client = self.host.watch.clone();
        let approving = self.approve(&stop);
        let mut clusters = events::<Cluster>(Api::all(client.clone()), Chosen::All);
        let mut nodes = events::<Node>(Api::all(client.clone()), Chosen::Labels("type=virtual-kubelet"));
        let watch_secrets =
            |chosen: Chosen<'_>| events::<Secret>(Api::namespaced(client.clone(), SYSTEM_NAMESPACE), chosen);
        let alone = self.host.serving.only.is_some();
        let mut secrets = if alone { stream::pending().boxed() } else { watch_secrets(Chosen::All) };
        // Until its Cluster names one, there is no Secret to wait for.
        let mut watched = None;
        self.secrets.listed = alone;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                event = clusters.next() => self.clusters.take(event, "Clusters"),
                event = secrets.next() => self.secrets.take(event, "Secrets"),
                event = nodes.next() => self.nodes.take(event, "Nodes"),
                changed = live.changed() => if changed.is_err() { break },
            }
            let rest = tokio::time::sleep(TOGETHER);
            tokio::pin!(rest);
            loop {
                tokio::select! {
                    () = &mut rest => break,
                    event = clusters.next() => self.clusters.take(event, "Clusters"),
                    event = secrets.next() => self.secrets.take(event, "Secrets"),
                    event = nodes.next() => self.nodes.take(event, "Nodes"),
                }
            }
            let named = self.only_secret();
            if named != watched {
                self.secrets = Kept::default();
                match &named {
                    Some(name) => secrets = watch_secrets(Chosen::Named(name)),
                    None => self.secrets.listed = true,
                }
                watched = named;
            }
            let replicas = live.borrow_and_update().clone();
            // Before everything was listed once, what is missing says nothing.
            if self.clusters.listed && self.secrets.listed && self.nodes.listed && !replicas.is_empty() {
                self.distribute(&replicas);
            }
        }
        std::mem::take(&mut self.tasks).end().await;
        self.connections.closed().await;
        let _ = approving.await;
    }

    /// The one Secret that concerns us if we serve one member alone: others are not ours to read.
    fn only_secret(&self) -> Option<String> {
        let cluster = self.clusters.objects.get(self.host.serving.only.as_deref()?)?;
        cluster.spec.secret_ref.as_ref().map(|secret| secret.name.clone())
    }

    /// Tells each task what there is to know, begins those that are new and ends those whose Cluster is gone.
    fn distribute(&mut self, live: &Live) {
        let only = self.host.serving.only.as_deref();
        let all: BTreeMap<String, Arc<Cluster>> = self
            .clusters
            .objects
            .iter()
            .filter(|(_, cluster)| is_pushed(cluster))
            .map(|(name, cluster)| (name.clone(), cluster.clone()))
            .collect();
        // Who serves a Cluster does not matter for whether it meets another.
        let rivals = rivals(&all);
        let served: BTreeMap<&String, &Arc<Cluster>> =
            all.iter().filter(|(_, cluster)| is_for(cluster, only)).collect();
        self.tasks.keep_only(|name| served.contains_key(&name.to_owned()));
        for (name, cluster) in served {
            let input = self.input(name, cluster, &all, &rivals, live);
            let (host, connections) = (&self.host, &self.connections);
            self.tasks.tell(name, input, |inputs, stop| {
                Member::new(host.clone(), connections.clone()).run(inputs, stop)
            });
        }
    }

    fn input(
        &self,
        name: &str,
        cluster: &Arc<Cluster>,
        all: &BTreeMap<String, Arc<Cluster>>,
        rivals: &BTreeMap<String, String>,
        live: &Live,
    ) -> Input {
        let reference = cluster.spec.secret_ref.as_ref();
        let secret = reference.filter(|secret| secret.namespace == SYSTEM_NAMESPACE);
        let others = all.iter().filter(|(other, _)| *other != name).map(|(_, cluster)| &**cluster);
        Input {
            cluster: cluster.clone(),
            secret: secret.and_then(|secret| self.secrets.objects.get(&secret.name)).cloned(),
            node: self.nodes.objects.get(name).cloned(),
            assigned: owner(live, &share_key(cluster)) == Some(&self.host.serving.identity),
            rival: rivals.get(name).cloned(),
            account: AccountFate::of(cluster, others),
        }
    }

    fn approve(&self, stop: &CancellationToken) -> JoinHandle<()> {
        let (client, stop) = (self.host.watch.clone(), stop.clone());
        let vouched = self.host.serving.vouched.clone();
        let requested = matches!(self.host.serving.certificates, Certificates::Requested { .. });
        tokio::spawn(async move {
            if requested {
                let ourselves = identity::ourselves(&client).await;
                approve::run(client, vouched, ourselves, stop).await;
            }
        })
    }
}

/// The objects of one kind, by name.
struct Kept<K> {
    objects: BTreeMap<String, Arc<K>>,
    fresh: BTreeMap<String, Arc<K>>,
    listed: bool,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), fresh: BTreeMap::new(), listed: false }
    }
}

type Event<K> = Option<Result<watcher::Event<K>, watcher::Error>>;

impl<K: Resource> Kept<K> {
    fn take(&mut self, event: Event<K>, what: &str) {
        match event {
            Some(Ok(watcher::Event::Init)) => self.fresh.clear(),
            Some(Ok(watcher::Event::InitApply(object))) => {
                self.fresh.insert(object.name_any(), Arc::new(object));
            }
            Some(Ok(watcher::Event::InitDone)) => {
                self.objects = std::mem::take(&mut self.fresh);
                self.listed = true;
            }
            Some(Ok(watcher::Event::Apply(object))) => {
                self.objects.insert(object.name_any(), Arc::new(object));
            }
            Some(Ok(watcher::Event::Delete(object))) => {
                self.objects.remove(&object.name_any());
            }
            Some(Err(error)) => tracing::warn!(%error, "watching {what} failed, trying again"),
            None => {}
        }
    }
}

/// Which objects of a kind are watched.
#[derive(Clone, Copy)]
enum Chosen<'a> {
    All,
    Labels(&'a str),
    Named(&'a str),
}

fn events<K>(api: Api<K>, chosen: Chosen<'_>) -> BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    K::DynamicType: Default + Clone + Hash + Eq,
{
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let config = match chosen {
        Chosen::All => config,
        Chosen::Labels(labels) => config.labels(labels),
        Chosen::Named(name) => config.fields(&format!("metadata.name={name}")),
    };
    watcher(api, config).default_backoff().boxed()
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clusters").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}
