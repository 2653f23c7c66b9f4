//! One member: the way to it, and the copies that are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use arc_swap::ArcSwap;
use federlet_provider::{
    api::Cluster,
    copied::CopiedKind,
    marks,
    member::{Access, Endpoint},
    site::{Clients, Spaces},
    target::Target,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::ApiResource,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    copies::{Copies, Follow, There},
    job::{Job, Jobs},
};
use crate::{inventory::Key, store::Kind};

/// A member that copies are sent to.
pub(super) struct Link {
    /// The name of the Cluster.
    pub(super) name: Arc<str>,
    /// Which cluster it really is. Regions of one have the same.
    pub(super) id: String,
    pub(super) access: Access,
    pub(super) clients: Clients,
    pub(super) target: ArcSwap<Target>,
    pub(super) spaces: Spaces,
    kinds: Mutex<BTreeMap<Kind, (Arc<Copies>, DropGuard)>>,
    noted: tokio::sync::Mutex<BTreeSet<CopiedKind>>,
    jobs: Jobs,
    stop: CancellationToken,
    _ends: DropGuard,
}

impl Link {
    pub(super) fn new(
        cluster: &Cluster,
        access: Access,
        clients: Clients,
        target: Target,
        jobs: Jobs,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let stop = stop.child_token();
        let link = Arc::new(Self {
            name: target.node.as_str().into(),
            id: cluster.spec.id.clone(),
            access,
            spaces: Spaces::new(clients.pods.clone()),
            clients,
            target: ArcSwap::from_pointee(target),
            kinds: Mutex::default(),
            noted: tokio::sync::Mutex::new(CopiedKind::all(cluster)),
            jobs,
            _ends: stop.clone().drop_guard(),
            stop,
        });
        // What was sent before is looked for, whether or not anybody still wants it.
        for copied in CopiedKind::all(cluster) {
            link.copies(&copied.resource());
        }
        link
    }

    /// Whether it leads to this cluster in this way.
    pub(super) fn fits(&self, id: &str, endpoint: &Endpoint) -> bool {
        self.id == id && self.access.endpoint() == endpoint
    }

    /// The copies of a kind, watched from now on.
    pub(super) fn copies(&self, resource: &ApiResource) -> Arc<Copies> {
        let kind = (resource.api_version.clone(), resource.kind.clone());
        let mut kinds = self.kinds.lock();
        let (copies, _) = kinds.entry(kind).or_insert_with(|| {
            let (copies, stop) = (Arc::<Copies>::default(), self.stop.child_token());
            let follow = Follow {
                copies: copies.clone(),
                cluster: self.name.clone(),
                resource: resource.clone(),
                target: self.target.load_full(),
                jobs: self.jobs.clone(),
            };
            let (client, term) = (self.clients.watch.clone(), stop.clone());
            tokio::spawn(async move { follow.run(client, term).await });
            (copies, stop.drop_guard())
        });
        copies.clone()
    }

    /// Begins anew to look at kinds that the member did not serve: a definition came.
    pub(super) fn look_again(&self) {
        let mut kinds = self.kinds.lock();
        kinds.retain(|kind, (copies, _)| {
            let lost = copies.are_not_served();
            if lost {
                self.jobs.after(Job::Kind(kind.clone()), std::time::Duration::from_secs(1));
            }
            !lost
        });
    }

    /// The host's names of all copies of a kind, as far as they are known.
    pub(super) fn keys(&self, kind: &Kind) -> Vec<Key> {
        let copies = self.kinds.lock().get(kind).map(|(copies, _)| copies.clone());
        let target = self.target.load_full();
        copies.map(|copies| copies.keys(kind, &target)).unwrap_or_default()
    }

    /// Whether a copy of this object is there, as far as it is known.
    pub(super) fn has(&self, key: &Key) -> bool {
        let kind = (key.api_version.clone(), key.kind.clone());
        let copies = self.kinds.lock().get(&kind).map(|(copies, _)| copies.clone());
        copies.is_some_and(|copies| matches!(copies.find(key, &self.target.load()), There::Known(Some(_))))
    }

    /// Notes on the Cluster that copies of a kind may be there, before the first one is: whoever comes after us must be
    /// able to find them.
    pub(super) async fn note(&self, host: &Client, resource: &ApiResource) -> Result<(), kube::Error> {
        let kind = CopiedKind::from(resource);
        let mut noted = self.noted.lock().await;
        if noted.contains(&kind) {
            return Ok(());
        }
        let mut all = noted.clone();
        all.insert(kind);
        let list = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let clusters: Api<Cluster> = Api::all(host.clone());
        let patch = json!({ "metadata": { "annotations": { marks::COPIED_KINDS: list } } });
        clusters.patch_metadata(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        *noted = all;
        Ok(())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}
