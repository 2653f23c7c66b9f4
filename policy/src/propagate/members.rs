//! The members that copies are sent to, each with a connection of its own: a broken one disturbs no other.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use federlet_node::metrics::Metrics;
use federlet_provider::{
    api::{Cluster, SyncMode},
    join::SYSTEM_NAMESPACE,
    member::{Access, Way},
    names::HostId,
    settings::MemberSettings,
    version::Version,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, runtime::watcher};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    job::{Job, Jobs},
    link::Link,
    wanted::stays,
};
use crate::{
    inventory::Key,
    store::{Kind, View},
    watching,
};

/// Fields of pods depend on the version; copies do not.
const SOME_VERSION: Version = Version::v1(30);

type Keys = BTreeMap<String, Vec<u8>>;

/// All members.
pub(super) struct Members {
    host: HostId,
    metrics: Arc<Metrics>,
    jobs: Jobs,
    stop: CancellationToken,
    secrets: Mutex<HashMap<String, Keys>>,
    listed: watch::Sender<bool>,
    links: Mutex<BTreeMap<String, Result<Arc<Link>, String>>>,
}

impl Members {
    pub(super) fn new(host: HostId, metrics: Arc<Metrics>, jobs: Jobs, stop: CancellationToken) -> Self {
        let (secrets, listed, links) = (Mutex::default(), watch::Sender::default(), Mutex::default());
        Self { host, metrics, jobs, stop, secrets, listed, links }
    }

    /// Follows the credentials until told to stop.
    pub(super) async fn run(&self, client: Client) {
        let api: Api<Secret> = Api::namespaced(client, SYSTEM_NAMESPACE);
        let mut fresh: HashMap<String, Keys> = HashMap::new();
        let keys = |secret: Secret| -> Keys {
            secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
        };
        watching::follow(api, watcher::Config::default(), "secrets", &self.stop, |event| {
            match event {
                watcher::Event::Init => return fresh.clear(),
                watcher::Event::InitApply(secret) => {
                    fresh.insert(secret.name_any(), keys(secret));
                    return;
                }
                watcher::Event::InitDone => {
                    *self.secrets.lock() = std::mem::take(&mut fresh);
                    self.listed.send_replace(true);
                }
                watcher::Event::Apply(secret) => {
                    self.secrets.lock().insert(secret.name_any(), keys(secret));
                }
                watcher::Event::Delete(secret) => drop(self.secrets.lock().remove(&secret.name_any())),
            }
            self.jobs.soon(Job::Everything);
        })
        .await;
    }

    /// Waits until the credentials were listed once.
    pub(super) async fn complete(&self) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Connects to what there is now, and lets go of what there is no more.
    pub(super) fn refresh(&self, view: &View) {
        let mut links = self.links.lock();
        links.retain(|name, _| view.clusters.get(name).is_some_and(|cluster| stays(cluster)));
        for (name, cluster) in view.clusters.iter().filter(|(_, cluster)| stays(cluster)) {
            let before = links.remove(name).and_then(Result::ok);
            links.insert(name.clone(), self.connect(cluster, before));
        }
    }

    fn connect(&self, cluster: &Cluster, before: Option<Arc<Link>>) -> Result<Arc<Link>, String> {
        let spec = &cluster.spec;
        if spec.sync_mode != SyncMode::Push {
            return Err("objects are not sent to members in pull mode".into());
        }
        if spec.id.is_empty() {
            return Err("the member was not reached yet".into());
        }
        let settings = MemberSettings::try_from(cluster).map_err(|error| error.to_string())?;
        let reference = spec.secret_ref.as_ref().ok_or("its Cluster names no Secret")?;
        let secrets = self.secrets.lock();
        let keys = secrets
            .get(&reference.name)
            .filter(|_| reference.namespace == SYSTEM_NAMESPACE)
            .ok_or_else(|| format!("Secret {} is not in namespace {SYSTEM_NAMESPACE}", reference.name))?;
        let way = Way::read(spec, keys).map_err(|error| error.to_string())?;
        let version = cluster.status.as_ref().and_then(|status| status.kubernetes_version.parse().ok());
        let target = settings.target(self.host.clone(), version.unwrap_or(SOME_VERSION), None, vec![]);
        if let Some(link) = before.filter(|link| link.fits(&spec.id, &way.endpoint)) {
            link.access.renew(way.token);
            link.target.store(Arc::new(target));
            return Ok(link);
        }
        let access = Access::new(way, self.metrics.clone());
        let (clients, _) = access.clients(&spec.id).map_err(|error| error.to_string())?;
        Ok(Link::new(cluster, access, clients, target, self.jobs.clone(), &self.stop))
    }

    /// The way to a member, or why there is none.
    pub(super) fn get(&self, cluster: &str) -> Result<Arc<Link>, String> {
        let links = self.links.lock();
        links.get(cluster).cloned().unwrap_or_else(|| Err("there is no such Cluster".into()))
    }

    fn all(&self) -> Vec<Arc<Link>> {
        self.links.lock().values().filter_map(|link| link.as_ref().ok()).cloned().collect()
    }

    /// The host's names of all copies of a kind, as far as they are known.
    pub(super) fn keys(&self, kind: &Kind) -> Vec<Key> {
        self.all().iter().flat_map(|link| link.keys(kind)).collect()
    }

    /// The clusters where copies of an object are, as far as it is known.
    pub(super) fn with(&self, key: &Key) -> Vec<Arc<str>> {
        self.all().iter().filter(|link| link.has(key)).map(|link| link.name.clone()).collect()
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}
