//! What is known of a workload that may have to leave a cluster, and what people are told about it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Shared,
    failover::{Departures, Look, News, Outcome},
    health::health,
    pass::about,
    plan::Situation,
    seen::{Group, SeenPod},
};
use crate::{api::Failover, owners::Meta, propagate::kinds::is_copied, tainted::Departure};

impl Shared {
    /// What the workload leaves, and what becomes of what it was leaving.
    pub(super) fn departures(&self, group: &Group, situation: &Situation<'_>, now: Timestamp) -> Outcome {
        let Situation { governed, pods, binding, fleet_node, view, .. } = *situation;
        let health = health(pods, fleet_node, view);
        let ill = self.illness.note(group, &health, Instant::now());
        let spec = binding.map(|binding| &binding.spec);
        let counting = || pods.iter().filter(|pod| pod.counts());
        let failover = governed.spec.as_ref().and_then(|spec| spec.failover.as_ref());
        // Who takes away what nobody makes again has moved nothing. And the binding of what is copied as it is, though pods
        // of the host come from it as well, is written by who copies it.
        let failover =
            failover.filter(|_| counting().all(SeenPod::comes_back) && !is_copied(situation.identity));
        let rules = failover.and_then(|failover| failover.application.as_ref());
        // Pods that were admitted before the policy said so are driven out by the host.
        let tolerations = counting().find_map(|pod| pod.tolerations.as_deref());
        let tainted = tolerations
            .filter(|_| failover.is_some_and(Failover::waits_in_failed_clusters))
            .map(|tolerations| self.nodes.departure(tolerations, now));
        let mut present: BTreeMap<String, usize> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !pod.over && !pod.is_gated()) {
            let node = pod.cluster.iter().filter(|cluster| fleet_node != Some(cluster.as_str()));
            for cluster in node.chain(pod.copies.keys()) {
                *present.entry(cluster.clone()).or_default() += 1;
            }
        }
        Look {
            rules,
            tainted: tainted.as_ref(),
            before: Departures::of(spec),
            health: &health,
            ill: &ill,
            present: &present,
            waiting: counting().any(|pod| !pod.bound),
            copied: counting().any(|pod| !pod.copies.is_empty()),
            templates: &counting().filter_map(|pod| pod.template.clone()).collect(),
            asked: spec.and_then(|spec| Some(spec.reschedule_triggered_at.as_ref()?.0)),
            now,
            elsewhere: &|leaving| situation.elsewhere(leaving),
        }
        .decide()
    }

    /// The clusters that drive copies out by themselves. Where a policy lets pods wait, departures are ours to decide.
    pub(super) fn driven(&self, pods: &[SeenPod], now: Timestamp) -> Departure {
        let node = self.fleet_node.as_ref().map(|node| node.as_str());
        let copied = |pod: &&SeenPod| pod.counts() && (pod.is_gated() || pod.cluster.as_deref() == node);
        let pod = pods.iter().find(copied).filter(|pod| node.is_some() && pod.tolerations.is_none());
        pod.map(|pod| self.nodes.driven(&pod.tolerates, now)).unwrap_or_default()
    }

    pub(super) fn tell_departures(&self, workload: &Meta, news: Vec<News>) {
        for one in news {
            match one {
                News::Leaves(what) => self.tell.warn(about(workload), "FailedOver", &what),
                News::Stuck(what) => self.tell.warn(about(workload), "CannotFailOver", &what),
                News::Over => {
                    ["FailedOver", "CannotFailOver"]
                        .iter()
                        .for_each(|reason| self.tell.over(&workload.uid, reason));
                }
            }
        }
    }
}
