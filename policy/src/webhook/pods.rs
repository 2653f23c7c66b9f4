//! Pods are steered where their policy says.

use std::{fmt, sync::Arc};

use k8s_openapi::api::core::v1::Toleration;
use serde_json::Value;

use super::review::{Answer, Request};
use crate::{
    api::{Failover, ResourceBinding},
    daemon,
    govern::{Governed, govern},
    object::Identity,
    owners::{Meta, Owner, Owners},
    stamp::{self, Workload},
    steer::{self, Steering, Way},
    store::{Bindings, Store, View},
    taints,
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
        // Of a Job, a pod that goes counts as a failure, and one of its own does not come again.
        let comes_back =
            owner.as_ref().is_some_and(|owner| !matches!(owner.kind.as_str(), "Job" | "DaemonSet"));
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
        let way = if made_by_daemon_set {
            daemon_way(pod, &governed, &view, self.bindings.get(&workload.uid).as_deref())
        } else {
            Some(way(&governed))
        };
        let Some(way) = way else { return Answer::Yes };
        let tolerations = self.tolerations(&workload, &way, &view);
        let failover = governed.spec.as_ref().and_then(|spec| spec.failover.as_ref());
        let mut steered = pod.clone();
        let steering = Steering {
            workload: &workload,
            policy: &governed.claim.policy,
            placement: &governed.placement,
            scheduler: governed.scheduler.as_deref(),
            priority_class: governed.priority_class.as_deref(),
            tolerations: &tolerations,
            waits: way == Way::Gate && comes_back && failover.is_some_and(Failover::waits_in_failed_clusters),
            way,
        };
        steer::steer(&mut steered, &steering);
        Answer::As(Box::new(steered))
    }

    /// What the nodes of clusters are tainted with, and what keeps only others out of the one where the workload is.
    fn tolerations(&self, workload: &Workload, way: &Way, view: &View) -> Vec<Toleration> {
        let mut tolerations = self.tolerations.to_vec();
        let Way::Only(name) = way else { return tolerations };
        let binding = self.bindings.get(&workload.uid).filter(|_| !workload.uid.is_empty());
        let there = binding.is_some_and(|one| one.spec.clusters.iter().any(|target| &target.name == name));
        if let Some(cluster) = view.clusters.get(name).filter(|_| there) {
            tolerations.extend(taints::to_join(&cluster.spec.taints, &[]));
        }
        tolerations
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

/// A pod that no policy steers goes to a cluster only if a machine there has room for it.
pub(super) fn ask_for_room(request: &Request) -> Answer {
    let mut pod = request.object.clone();
    let asks = request.operation == "CREATE" && steer::room::ask_for_room(&mut pod);
    if asks { Answer::As(Box::new(pod)) } else { Answer::Yes }
}

/// How a pod of a daemon set gets to its cluster. None if it was made for a node that the policy does not mean, or for a
/// machine of the host: no policy can move it.
fn daemon_way(
    pod: &Value,
    governed: &Governed,
    view: &View,
    binding: Option<&ResourceBinding>,
) -> Option<Way> {
    let node = steer::daemon_node(pod)?;
    let nodes = daemon::nodes(governed, view, binding)?;
    nodes.run.contains(node).then(|| Way::Daemon(node.to_owned()))
}

/// How any other gets there.
fn way(governed: &Governed) -> Way {
    let certain = steer::certain_cluster(&governed.placement).filter(|_| governed.hold.is_none());
    certain.map_or(Way::Gate, |cluster| Way::Only(cluster.to_owned()))
}

impl fmt::Debug for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pods").finish_non_exhaustive()
    }
}
