//! Policies at work: what watches, answers and places, in one process.

use std::{fmt, sync::Arc};

use federlet_node::{contract::NodeName, metrics::Metrics};
use federlet_provider::names::HostId;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    copies::Copies,
    owners::Owners,
    placer::{Lead, Placer},
    propagate::Propagator,
    rewrite::Rewriter,
    store::{Bindings, Store},
    tell::Tell,
    webhook::{Keeper, Pods, Registration, Webhooks, serve},
};

/// What policies need of the process.
pub struct Host {
    /// Which host: the UID of its `kube-system` namespace.
    pub id: HostId,
    /// For requests that are answered at once or not at all.
    pub client: Client,
    /// To watch with.
    pub watch: Client,
    /// For the Lease of the placer.
    pub heartbeat: Client,
    /// The name of this replica.
    pub identity: String,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What the nodes of clusters are tainted with.
    pub taints: Vec<Taint>,
    /// Our own namespace.
    pub own_namespace: &'static str,
    /// The node that stands for several clusters at once, if there is one.
    pub fleet_node: Option<NodeName>,
}

/// Policies at work.
pub struct Control {
    host: Host,
    tell: Tell,
    store: Arc<Store>,
    bindings: Arc<Bindings>,
    owners: Arc<Owners>,
}

impl Control {
    /// Nothing happens until [`run`](Self::run).
    #[must_use]
    pub fn new(host: Host) -> Self {
        let tell = Tell::new(host.client.clone(), &host.identity);
        let store = Store::new(tell.clone());
        let owners = Owners::new(host.client.clone());
        Self { host, tell, store, bindings: Arc::default(), owners }
    }

    /// What makes overrides, for those who send pods to members.
    #[must_use]
    pub fn rewriter(&self) -> Arc<Rewriter> {
        let Self { host, store, owners, tell, .. } = self;
        Rewriter::new(host.client.clone(), store.clone(), owners.clone(), tell.clone())
    }

    /// What says where pods of the fleet's node have copies, for those who serve it.
    #[must_use]
    pub fn copies(&self) -> Arc<Copies> {
        Arc::new(Copies::new(self.store.clone(), self.bindings.clone()))
    }

    /// Knows what overrides need to know, and decides nothing, until told to stop: for those who serve one member alone.
    pub async fn overrides_only(self, stop: CancellationToken) {
        let Self { host, store, owners, .. } = self;
        tokio::join!(
            store.run(host.watch.clone(), stop.clone()),
            owners.run(host.watch.clone(), stop.clone()),
        );
    }

    /// Answers the host at `listener`, which it finds as `registration` says, and places pods, until told to stop.
    pub async fn run(self, listener: TcpListener, registration: Registration, stop: CancellationToken) {
        let Self { host, tell, store, bindings, owners } = self;
        let taints = host.taints.iter().map(|taint| taint.key.clone()).collect();
        let keeper = Keeper::new(host.client.clone(), host.own_namespace, registration, taints);
        let certificate = keeper.certificate();
        let pods = Pods {
            store: store.clone(),
            bindings: bindings.clone(),
            owners: owners.clone(),
            tolerations: tolerations(&host.taints).into(),
            own_namespace: host.own_namespace,
        };
        let webhooks = Arc::new(Webhooks { pods, metrics: host.metrics.clone() });
        let cluster_bindings = Arc::<Bindings>::default();
        let propagator = Propagator {
            client: host.client.clone(),
            watch: host.watch.clone(),
            store: store.clone(),
            bindings: bindings.clone(),
            cluster_bindings: cluster_bindings.clone(),
            tell: tell.clone(),
            metrics: host.metrics,
            host: host.id,
        };
        let lead = Lead::new(host.heartbeat, host.own_namespace, host.identity);
        let placer = Placer {
            client: host.client,
            watch: host.watch.clone(),
            store: store.clone(),
            bindings: bindings.clone(),
            owners: owners.clone(),
            tell,
            own_namespace: host.own_namespace,
            fleet_node: host.fleet_node,
            propagator,
        };
        let registered = async {
            // Whoever is asked must know the answer.
            tokio::select! {
                () = stop.cancelled() => return,
                () = async { tokio::join!(store.complete(), bindings.complete()); } => {}
            }
            keeper.run(stop.clone()).await;
        };
        tokio::join!(
            store.clone().run(host.watch.clone(), stop.clone()),
            bindings.clone().run(host.watch.clone(), stop.clone()),
            cluster_bindings.run_cluster(host.watch.clone(), stop.clone()),
            owners.run(host.watch.clone(), stop.clone()),
            serve(listener, certificate, webhooks, stop.clone()),
            Box::pin(placer.run(lead, stop.clone())),
            registered,
        );
    }
}

fn tolerations(taints: &[Taint]) -> Vec<Toleration> {
    let tolerate = |taint: &Taint| Toleration {
        key: Some(taint.key.clone()),
        operator: Some("Exists".into()),
        effect: Some(taint.effect.clone()),
        ..Toleration::default()
    };
    taints.iter().map(tolerate).collect()
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("identity", &self.host.identity).finish_non_exhaustive()
    }
}
