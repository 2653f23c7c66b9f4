//! One look at all pods of a workload: see, decide, act, report.

use std::{collections::BTreeSet, time::Duration};

use federlet_provider::errors::brief;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Toleration};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::Value;

use super::{
    Shared,
    evict::Evicted,
    failover::{Outcome, Pace},
    patch::{cost_patch, pin_patch},
    plan::{Pin, Plan, Situation},
    pods::resource,
    record::Decided,
    seen::{Group, SeenPod},
};
use crate::{
    govern::{Governed, govern},
    owners::{Meta, Owner},
    place::{Peer, Peers},
    propagate::kinds::is_copied,
    store::View,
    taints,
};

/// How soon something that went wrong is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How often what waits for room or for a cluster is looked at.
const WAITING: Duration = Duration::from_secs(15);
/// Clusters say of their room what it was at most so long ago.
const SETTLED: Duration = Duration::from_secs(15);
/// How soon the next pods are moved.
const NEXT_MOVE: Duration = Duration::from_secs(3);
/// Pods that are written at the same time.
const AT_ONCE: usize = 16;

impl Shared {
    /// Looks at one workload. Returns when to look again, whatever happens.
    pub(super) async fn pass(&self, group: &Group) -> Option<Duration> {
        let mut pods = self.pods.of(group);
        let first_ordinal = match self.count_from_zero(&group.namespace, &mut pods).await {
            Ok(first) => first,
            Err(error) => {
                tracing::warn!(error = brief(&error), "cannot read where the names of a stateful set begin");
                return Some(AGAIN);
            }
        };
        let Some(first) = pods.first() else {
            self.illness.forget(group);
            return None;
        };
        let workload = match self.owners.get(&group.namespace, &owner(first)).await {
            Ok(Some(workload)) => workload,
            // Its pods go with it.
            Ok(None) => return None,
            Err(error) => {
                tracing::warn!(
                    workload = first.workload.name,
                    error = brief(&error),
                    "cannot look at a workload"
                );
                return Some(AGAIN);
            }
        };
        let (view, binding) = (self.store.view(), self.bindings.get(&workload.uid));
        let Some(governed) = govern(&workload, &view, binding.as_deref()) else {
            return self.ungoverned(&pods).await;
        };
        // Two that looked at one another at the same time would both see nobody.
        let looks_at_others = governed.placement.workload_affinity.is_some();
        let turn = if looks_at_others { Some(self.turns.take(&group.namespace).await) } else { None };
        let peers = match self.peers(&workload, &governed).await {
            Ok(peers) => peers,
            Err(error) => {
                let name = &workload.identity.name;
                tracing::warn!(
                    workload = name,
                    error = brief(&error),
                    "cannot look at the peers of a workload"
                );
                return Some(AGAIN);
            }
        };
        let (leaving, kept, closed) = (BTreeSet::new(), BTreeSet::new(), self.nodes.keeping_out());
        let now = Timestamp::now();
        let driven = self.driven(&pods, now);
        let unsettled = now.checked_sub(SETTLED).ok().map(|since| format!("{since:.0}"));
        let situation = Situation {
            governed: &governed,
            identity: &workload.identity,
            uid: &workload.uid,
            pods: &pods,
            view: &view,
            binding: binding.as_deref(),
            peers: &peers,
            fleet_node: self.fleet_node.as_ref().map(|node| node.as_str()),
            leaving: &leaving,
            kept: &kept,
            unsettled: unsettled.as_deref(),
            driven: &driven.due,
            closed: &closed,
        };
        let Outcome { departures, news, avoided, again } = self.departures(group, &situation, now);
        let leaving = departures.clusters().union(&avoided).cloned().collect();
        let kept = departures.at(Pace::Never, now);
        let plan = Situation { leaving: &leaving, kept: &kept, ..situation }.plan();
        let count = pods.iter().filter(|pod| pod.counts()).count();
        let decided = Decided {
            workload: &workload,
            governed: &governed,
            plan: &plan,
            count,
            first_ordinal,
            departures: &departures,
            autoscaled: self.scalers.scale(&workload.identity),
        };
        // Who makes copies reads the record as soon as a pod is placed.
        let recorded = async { count == 0 || is_copied(&workload.identity) || self.record(&decided).await };
        let (written, recorded) = if looks_at_others {
            // The next one goes by the record, so no pod may be where that does not say.
            let recorded = recorded.await;
            (recorded && self.write_pods(&pods, &plan, &view).await, recorded)
        } else {
            tokio::join!(self.write_pods(&pods, &plan, &view), recorded)
        };
        drop(turn);
        self.report(&workload, &pods, &plan);
        self.tell_departures(&workload, news);
        if !recorded {
            // A departure that nobody remembers would begin anew with the pods that came for those that went.
            return Some(AGAIN);
        }
        let moved = self.move_pods(&pods, &plan, &governed, &departures.at(Pace::AtOnce, now)).await;
        let claims = self.look_at_claims(&pods).await;
        let waits = (plan.waiting.is_some() || claims).then_some(WAITING);
        let failed = (!written).then_some(AGAIN);
        let driven = driven.next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
        [moved, waits, failed, again, driven].into_iter().flatten().min()
    }

    /// Where the workloads are that this one wants to be together with, or apart from.
    async fn peers(&self, workload: &Meta, governed: &Governed) -> Result<Peers, kube::Error> {
        let Some(affinity) = &governed.placement.workload_affinity else { return Ok(Peers::default()) };
        let namespace = &workload.identity.namespace;
        let mut others = vec![];
        for binding in self.bindings.within(namespace) {
            let reference = &binding.spec.resource;
            let owner = Owner {
                api_version: reference.api_version.clone(),
                kind: reference.kind.clone(),
                name: reference.name.clone(),
                uid: reference.uid.clone(),
            };
            if reference.uid == workload.uid {
                continue;
            }
            if let Some(meta) = self.owners.get(namespace, &owner).await? {
                let clusters: BTreeSet<String> =
                    binding.spec.clusters.iter().map(|target| target.name.clone()).collect();
                others.push((meta, clusters));
            }
        }
        let others =
            others.iter().map(|(meta, clusters)| Peer { namespace, labels: &meta.identity.labels, clusters });
        Ok(Peers::of(affinity, &workload.identity, others))
    }

    /// The policy went before anything was decided. What waits for it can wait no longer.
    async fn ungoverned(&self, pods: &[SeenPod]) -> Option<Duration> {
        let mut again = None;
        for pod in pods.iter().filter(|pod| pod.counts() && pod.is_gated()) {
            if !pod.comes_back() {
                let note = "the policy that it waited for is gone: delete the pod and create it again";
                self.tell.warn(reference(pod), "NoPolicy", note);
                continue;
            }
            // It never ran, and the next one is not steered.
            if self.leading.holds()
                && !matches!(
                    self.evictions.evict(&self.client, &pod.namespace, &pod.name, &pod.uid).await,
                    Evicted::Yes | Evicted::Gone
                )
            {
                again = Some(WAITING);
            }
        }
        again
    }

    /// Writes what was decided into pods, each at most once. False if something must be tried again.
    async fn write_pods(&self, pods: &[SeenPod], plan: &Plan, view: &View) -> bool {
        let fleet = self.fleet_node.as_ref().map(|node| node.as_str());
        let pins = plan.pins.iter().map(|pin| {
            let pod = &pods[pin.pod];
            (pod, pin_patch(pod, pin, fleet, &in_use(pod, pin, plan, view)))
        });
        let costs = plan.costs.iter().map(|(pod, cost)| (&pods[*pod], cost_patch(&pods[*pod], *cost)));
        let writes: Vec<_> = pins.chain(costs).map(|(pod, patch)| self.write_pod(pod, patch)).collect();
        let done = futures::stream::iter(writes).buffer_unordered(AT_ONCE).collect::<Vec<bool>>();
        done.await.into_iter().all(|done| done)
    }

    async fn write_pod(&self, pod: &SeenPod, patch: Value) -> bool {
        if !self.leading.holds() {
            return false;
        }
        let Ok(patch) = serde_json::from_value(patch) else { return true };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &pod.namespace, &resource());
        match api.patch(&pod.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Ok(written) => {
                self.pods.note(&serde_json::to_value(&written).unwrap_or_default());
                true
            }
            // It is gone, or not as we saw it; then the watch says so.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                tracing::debug!(pod = pod.name, message = status.message, "a pod is not as it was seen");
                status.code == 404
            }
            Err(error) => {
                tracing::warn!(pod = pod.name, error = brief(&error), "cannot place a pod, trying again");
                false
            }
        }
    }

    fn report(&self, workload: &Meta, pods: &[SeenPod], plan: &Plan) {
        const REASONS: [&str; 4] = ["NoClusterFit", "Unschedulable", "NoFleetNode", "Held"];
        let Some(waiting) = &plan.waiting else {
            REASONS.iter().for_each(|reason| self.tell.over(&workload.uid, reason));
            return;
        };
        self.tell.warn(about(workload), waiting.reason, &waiting.message);
        for pod in pods.iter().filter(|pod| !pod.bound && pod.counts() && pod.uid != workload.uid) {
            self.tell.warn(reference(pod), waiting.reason, &waiting.message);
        }
    }

    /// Moves pods that must not be where they are, and those that are too many there once nothing else is going on. A few
    /// at a time, the next when the last have found their place, unless they are in a cluster to be left at once.
    async fn move_pods(
        &self,
        pods: &[SeenPod],
        plan: &Plan,
        governed: &Governed,
        at_once: &BTreeSet<String>,
    ) -> Option<Duration> {
        let counting: Vec<&SeenPod> = pods.iter().filter(|pod| pod.counts()).collect();
        let revisions = counting.iter().map(|pod| pod.revision()).collect::<BTreeSet<_>>();
        let calm = revisions.len() == 1 && counting.iter().all(|pod| pod.ready && !pod.is_gated());
        let surplus = plan.surplus.iter().filter(|_| calm && governed.current);
        let moving: Vec<&SeenPod> = plan
            .misfits
            .iter()
            .chain(surplus)
            .map(|index| &pods[*index])
            .filter(|pod| pod.comes_back() || pod.is_daemon())
            .collect();
        if moving.is_empty() {
            return (!plan.surplus.is_empty()).then_some(WAITING);
        }
        let unsettled = pods.iter().filter(|pod| !pod.over && (pod.deleting || pod.is_gated())).count()
            + counting.iter().filter(|pod| !pod.ready && !pod.is_gated() && !moving.contains(pod)).count();
        let budget = (counting.len() / 10).max(1).saturating_sub(unsettled);
        let urgent = |pod: &&SeenPod| pod.cluster.as_ref().is_some_and(|cluster| at_once.contains(cluster));
        let (now, slowly): (Vec<&SeenPod>, Vec<&SeenPod>) = moving.into_iter().partition(urgent);
        for pod in now.into_iter().chain(slowly.into_iter().take(budget)) {
            if !self.leading.holds() {
                break;
            }
            let cluster = pod.cluster.as_deref().unwrap_or_default();
            match self.evictions.evict(&self.client, &pod.namespace, &pod.name, &pod.uid).await {
                Evicted::Yes => {
                    tracing::info!(pod = pod.name, namespace = pod.namespace, cluster, "moved away");
                }
                Evicted::Gone => {}
                Evicted::NotNow(why) => {
                    let note =
                        format!("it does not belong in {cluster} any more and cannot leave yet: {why}");
                    self.tell.warn(reference(pod), "CannotMove", &note);
                }
                Evicted::Failed(why) => {
                    tracing::warn!(pod = pod.name, why, "cannot move a pod, trying again");
                }
            }
        }
        Some(NEXT_MOVE)
    }
}

fn owner(pod: &SeenPod) -> Owner {
    let workload = &pod.workload;
    if workload.uid.is_empty() {
        return Owner {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
    }
    Owner {
        api_version: workload.api_version.clone(),
        kind: workload.kind.clone(),
        name: workload.name.clone(),
        uid: workload.uid.clone(),
    }
}

pub(super) fn about(workload: &Meta) -> ObjectReference {
    ObjectReference {
        api_version: Some(workload.identity.api_version.clone()),
        kind: Some(workload.identity.kind.clone()),
        namespace: Some(workload.identity.namespace.clone()),
        name: Some(workload.identity.name.clone()),
        uid: Some(workload.uid.clone()),
        ..ObjectReference::default()
    }
}

pub(super) fn reference(pod: &SeenPod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

/// What a pod has to tolerate so that the host's scheduler lets it into clusters that were chosen because the workload is there
/// already. Its copies tolerate what it does.
fn in_use(pod: &SeenPod, pin: &Pin, plan: &Plan, view: &View) -> Vec<Toleration> {
    let copies = plan.shares.keys().filter(|_| plan.copied);
    let clusters = copies.chain([&pin.cluster]).filter_map(|name| view.clusters.get(name));
    let mut tolerations = vec![];
    for toleration in clusters.flat_map(|cluster| taints::to_join(&cluster.spec.taints, &pod.tolerates)) {
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    tolerations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::affinity::tests::cluster;

    #[test]
    fn pods_tolerate_what_keeps_only_new_workloads_out_of_their_clusters() {
        let taint = |effect: &str| json!({"taints": [{"key": effect, "value": "v", "effect": effect}]});
        let mut view = View::default();
        for (name, spec) in [
            ("a", json!({})),
            ("b", taint("NoSchedule")),
            ("c", taint("NoSchedule")),
            ("d", taint("NoExecute")),
        ] {
            view.clusters.insert(name.into(), std::sync::Arc::new(cluster(name, json!({}), spec)));
        }
        let expected: Vec<Toleration> = serde_json::from_value(
            json!([{"key": "NoSchedule", "operator": "Exists", "effect": "NoSchedule"}]),
        )
        .unwrap();
        let tolerant = SeenPod { tolerates: expected.clone(), ..SeenPod::default() };
        let divided = Plan::default();
        let shares = ["a", "b", "c"].map(|name| (name.to_owned(), 1)).into();
        let copied = Plan { copied: true, shares, ..Plan::default() };
        for (pod, plan, cluster, found) in [
            (&SeenPod::default(), &divided, "a", &vec![]),
            (&SeenPod::default(), &divided, "b", &expected),
            (&SeenPod::default(), &divided, "d", &vec![]),
            (&tolerant, &divided, "b", &vec![]),
            (&SeenPod::default(), &copied, "fleet", &expected),
        ] {
            let pin = Pin { pod: 0, cluster: cluster.into(), cost: None };
            assert_eq!(&in_use(pod, &pin, plan, &view), found, "{cluster}");
        }
    }
}
