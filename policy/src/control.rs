//! Policies at work: what watches, answers and places, in one process.

use std::{fmt, sync::Arc};

use federlet_node::{contract::NodeName, metrics::Metrics};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    owners::Owners,
    placer::{Lead, Placer},
    store::{Bindings, Store},
    tell::Tell,
    webhook::{Keeper, Pods, Target, Webhooks, serve},
};

/// What policies need of the process.
pub struct Control {
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

impl Control {
    /// Answers the host at `listener`, which it finds at `target`, and places pods, until told to stop.
    pub async fn run(self, listener: TcpListener, target: Target, stop: CancellationToken) {
        let tell = Tell::new(self.client.clone(), &self.identity);
        let store = Store::new(tell.clone());
        let (bindings, owners) = (Arc::<Bindings>::default(), Owners::new(self.client.clone()));
        let keeper = Keeper::new(self.client.clone(), self.own_namespace, target);
        let certificate = keeper.certificate();
        let pods = Pods {
            store: store.clone(),
            bindings: bindings.clone(),
            owners: owners.clone(),
            tolerations: tolerations(&self.taints).into(),
            own_namespace: self.own_namespace,
        };
        let webhooks = Arc::new(Webhooks { pods, metrics: self.metrics });
        let lead = Lead::new(self.heartbeat, self.own_namespace, self.identity);
        let placer = Placer {
            client: self.client,
            watch: self.watch.clone(),
            store: store.clone(),
            bindings: bindings.clone(),
            owners: owners.clone(),
            tell,
            own_namespace: self.own_namespace,
            fleet_node: self.fleet_node,
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
            store.clone().run(self.watch.clone(), stop.clone()),
            bindings.clone().run(self.watch.clone(), stop.clone()),
            owners.run(self.watch.clone(), stop.clone()),
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

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("identity", &self.identity).finish_non_exhaustive()
    }
}
