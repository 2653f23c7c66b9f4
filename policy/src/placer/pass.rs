//! One look at all pods of a workload: see, decide, act, report.

use std::{collections::BTreeSet, time::Duration};

use federlet_provider::{capacity::fit_expressions, errors::brief, fleet::FLEET_TAINT};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

use super::{
    Shared,
    evict::Evicted,
    failover::{Outcome, Pace},
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
    stamp::{DELETION_COST, GATE, NODE_LABEL},
};

/// How soon something that went wrong is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How often what waits for room or for a cluster is looked at.
const WAITING: Duration = Duration::from_secs(15);
/// Clusters say of their room what it was at most so long ago.
const SETTLED: Duration = Duration::from_secs(15);
/// How soon the next pods are moved.
const NEXT_MOVE: Duration = Duration::from_secs(3);
/// What admission requires of the nodes of a gated pod; it can be tightened there.
const EXPRESSIONS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions";
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
            (recorded && self.write_pods(&pods, &plan).await, recorded)
        } else {
            tokio::join!(self.write_pods(&pods, &plan), recorded)
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
    async fn write_pods(&self, pods: &[SeenPod], plan: &Plan) -> bool {
        let fleet = self.fleet_node.as_ref().map(|node| node.as_str());
        let pins = plan.pins.iter().map(|pin| (&pods[pin.pod], pin_patch(&pods[pin.pod], pin, fleet)));
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

/// The gate off, the node in, and the order in which it goes: one write, on exactly this pod, and only while it is gated.
fn pin_patch(pod: &SeenPod, pin: &Pin, fleet: Option<&str>) -> Value {
    let gate = format!("/spec/schedulingGates/{}", pod.gate.unwrap_or_default());
    let mut patch = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": pod.uid }),
        json!({ "op": "test", "path": format!("{gate}/name"), "value": GATE }),
        json!({ "op": "remove", "path": gate }),
    ];
    patch.push(if pod.has_node_selector {
        let path = format!("/spec/nodeSelector/{}", escaped(NODE_LABEL));
        json!({ "op": "add", "path": path, "value": pin.cluster })
    } else {
        json!({ "op": "add", "path": "/spec/nodeSelector", "value": { NODE_LABEL: pin.cluster } })
    });
    if fleet == Some(pin.cluster.as_str()) {
        let toleration = json!({ "key": FLEET_TAINT, "operator": "Exists", "effect": "NoSchedule" });
        patch.push(if pod.has_tolerations {
            json!({ "op": "add", "path": "/spec/tolerations/-", "value": toleration })
        } else {
            json!({ "op": "add", "path": "/spec/tolerations", "value": [toleration] })
        });
    } else if pod.has_our_affinity && !pod.may_preempt {
        // A sum of machines with a little room each must not draw a pod that fits on none of them.
        let room = fit_expressions(&pod.requests).into_iter();
        patch
            .extend(room.map(|one| json!({ "op": "add", "path": format!("{EXPRESSIONS}/-"), "value": one })));
    }
    patch.extend(pin.cost.map(|cost| cost_operation(pod, cost)));
    Value::Array(patch)
}

fn cost_patch(pod: &SeenPod, cost: i64) -> Value {
    json!([{ "op": "test", "path": "/metadata/uid", "value": pod.uid }, cost_operation(pod, cost)])
}

fn cost_operation(pod: &SeenPod, cost: i64) -> Value {
    if !pod.has_annotations {
        let value = json!({ DELETION_COST: cost.to_string() });
        return json!({ "op": "add", "path": "/metadata/annotations", "value": value });
    }
    let path = format!("/metadata/annotations/{}", escaped(DELETION_COST));
    json!({ "op": "add", "path": path, "value": cost.to_string() })
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
