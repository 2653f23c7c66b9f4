//! Pods are steered where their policy says.

use std::{fmt, sync::Arc};

use k8s_openapi::api::core::v1::Toleration;
use serde_json::Value;

use super::review::{Answer, Request};
use crate::{
    affinity,
    api::Placement,
    govern::{Governed, govern},
    object::Identity,
    owners::{Meta, Owner, Owners},
    stamp::{self, Workload},
    steer::{self, Steering, Way},
    store::{Bindings, Store, View},
};

/// All that is needed to say where a pod goes.
#[derive(Clone)]
pub struct Pods {
    /// Policies and clusters.
    pub store: Arc<Store>,
    /// What was decided before.
    pub bindings: Arc<Bindings>,
    /// Where pods come from.
    pub owners: Arc<Owners>,
    /// What the nodes of clusters are tainted with.
    pub tolerations: Arc<[Toleration]>,
    /// Our own namespace, in which nothing is ever steered.
    pub own_namespace: &'static str,
}

impl Pods {
    pub(super) async fn answer(&self, request: &Request) -> Answer {
        let pod = &request.object;
        let bound =
            pod.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
        let settled = bound || stamp::is_copy(pod);
        if request.operation != "CREATE" || settled || request.namespace == self.own_namespace {
            return Answer::Yes;
        }
        let view = self.store.view();
        if !view.complete {
            return Answer::NotNow("federlet has not read all policies yet, try again".into());
        }
        let owner = Owner::of(pod);
        let made_by_daemon_set = owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet");
        let chain = match self.owners.chain(&request.namespace, owner).await {
            Ok(chain) => chain,
            Err(error) => {
                return Answer::NotNow(format!("federlet cannot find the workload of this pod: {error}"));
            }
        };
        let Some((workload, governed)) = self.governed(&request.namespace, pod, chain, &view) else {
            return Answer::Yes;
        };
        let Some(way) = way(pod, made_by_daemon_set, &governed, &view) else { return Answer::Yes };
        let mut steered = pod.clone();
        let steering = Steering {
            workload: &workload,
            policy: &governed.claim.policy,
            placement: &governed.placement,
            scheduler: governed.scheduler.as_deref(),
            tolerations: &self.tolerations,
            way,
        };
        steer::steer(&mut steered, &steering);
        Answer::As(Box::new(steered))
    }

    /// The uppermost owner that a policy has, or the pod itself.
    fn governed(
        &self,
        namespace: &str,
        pod: &Value,
        chain: Vec<Arc<Meta>>,
        view: &View,
    ) -> Option<(Workload, Governed)> {
        let mut identity = Identity::of(pod);
        identity.api_version = "v1".into();
        identity.kind = "Pod".into();
        namespace.clone_into(&mut identity.namespace);
        if identity.name.is_empty() {
            identity.name =
                pod.pointer("/metadata/generateName").and_then(Value::as_str).unwrap_or_default().into();
        }
        let itself = Arc::new(Meta { identity, ..Meta::default() });
        chain.into_iter().rev().chain([itself]).find_map(|meta| {
            let binding = self.bindings.get(&meta.uid).filter(|_| !meta.uid.is_empty());
            let governed = govern(&meta, view, binding.as_deref())?;
            let Identity { api_version, kind, name, .. } = meta.identity.clone();
            Some((Workload { api_version, kind, name, uid: meta.uid.clone() }, governed))
        })
    }
}

/// How a pod gets to its cluster. None if it is one that no policy can move: that of a daemon set for another node.
fn way(pod: &Value, made_by_daemon_set: bool, governed: &Governed, view: &View) -> Option<Way> {
    if made_by_daemon_set {
        let node = steer::daemon_node(pod)?;
        let cluster = view.clusters.get(node)?;
        return wants(&governed.placement, cluster).then(|| Way::Daemon(node.to_owned()));
    }
    let only = steer::only_cluster(&governed.placement).filter(|_| governed.hold.is_none());
    Some(only.map_or(Way::Gate, |cluster| Way::Only(cluster.to_owned())))
}

fn wants(placement: &Placement, cluster: &crate::api::Cluster) -> bool {
    let groups = &placement.cluster_affinities;
    affinity::includes(placement.cluster_affinity.as_ref(), cluster)
        && (groups.is_empty() || groups.iter().any(|group| affinity::check(&group.affinity, cluster).is_ok()))
}

impl fmt::Debug for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pods").finish_non_exhaustive()
    }
}
