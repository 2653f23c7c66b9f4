//! What there is of a pod, as the virtual kubelet asks for it.

use std::collections::{BTreeMap, BTreeSet};

use federlet_node::contract::{Pod, PodId, ProviderError};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Troubles,
    child::Child,
    status::{Copy, status},
};

/// All that is known of one name.
#[derive(Debug)]
pub(super) struct Known<'a> {
    /// The pod of that name on the fleet's node.
    pub(super) host: Option<&'a Pod>,
    /// Copies of any pod of that name.
    pub(super) children: Vec<Child>,
    /// Where the pod should have copies, if that is known.
    pub(super) chosen: Option<BTreeSet<String>>,
    /// The clusters that there are, and whether each can be reached.
    pub(super) reach: BTreeMap<String, bool>,
    /// What went wrong with some copies.
    pub(super) troubles: Troubles,
}

impl Known<'_> {
    /// The pod; none if nothing is left of it, or nothing was begun.
    pub(super) fn held(&self) -> Result<Option<Pod>, ProviderError> {
        let uid = self.host.map(Pod::uid);
        let (own, others): (Vec<&Child>, Vec<&Child>) =
            self.children.iter().partition(|child| Some(child.parent.uid()) == uid);
        // Copies of a pod that the host has no more. Those that are ending need nobody's help.
        let orphan = others.iter().find(|child| self.host.is_none() || child.ending.is_none());
        if let Some(orphan) = orphan {
            let siblings: Vec<&Child> =
                others.iter().copied().filter(|child| child.parent == orphan.parent).collect();
            let json = orphan.json();
            return shown(&orphan.parent, &json["spec"], &json["status"], ending(&siblings)).map(Some);
        }
        let Some(host) = self.host else { return Ok(None) };
        if host.deletion().is_some() {
            // A cluster that cannot be reached ends its copy when it comes back. Nobody has to wait for that.
            let waits_for = |child: &&Child| child.ending.is_none() || self.is_reachable(&child.cluster);
            let waited_for: Vec<&Child> = own.into_iter().filter(waits_for).collect();
            if waited_for.is_empty() {
                return Ok(None);
            }
            return shown(host.id(), host.spec(), host.status(), ending(&waited_for)).map(Some);
        }
        if own.is_empty() && !host.was_started() {
            return Ok(None);
        }
        // What is over is not begun again in a cluster that was chosen since. Without its copy the pod would look as if it
        // still ran, and would be ended with all that it left behind.
        if host.phase().is_terminal() && own.iter().all(|child| child.phase.is_terminal()) {
            return shown(host.id(), host.spec(), host.status(), None).map(Some);
        }
        shown(host.id(), host.spec(), &status(host, &self.copies(&own)), None).map(Some)
    }

    fn copies(&self, own: &[&Child]) -> Vec<Copy> {
        let clusters = self.chosen.clone();
        let clusters =
            clusters.unwrap_or_else(|| own.iter().map(|child| child.cluster.to_string()).collect());
        let copy = |cluster: String| Copy {
            reachable: self.is_reachable(&cluster),
            json: own.iter().find(|child| *child.cluster == *cluster).map(|child| child.json()),
            trouble: self.troubles.get(&cluster).map(|error| error.reason().to_owned()),
            cluster,
        };
        clusters.into_iter().map(copy).collect()
    }

    fn is_reachable(&self, cluster: &str) -> bool {
        self.reach.get(cluster) == Some(&true)
    }
}

/// The grace with which all of them are ending, if they all are.
fn ending(children: &[&Child]) -> Option<u64> {
    let all: Option<Vec<u64>> = children.iter().map(|child| child.ending).collect();
    all?.into_iter().max()
}

/// A pod in the host's terms, with a deletion only if it is really ending.
fn shown(id: &PodId, spec: &Value, status: &Value, ending: Option<u64>) -> Result<Pod, ProviderError> {
    let mut metadata = json!({ "namespace": id.key().namespace(), "name": id.key().name(), "uid": id.uid() });
    if let Some(grace) = ending {
        metadata["deletionTimestamp"] = Timestamp::UNIX_EPOCH.to_string().into();
        metadata["deletionGracePeriodSeconds"] = grace.into();
    }
    let pod = json!({ "metadata": metadata, "spec": spec, "status": status });
    Pod::try_from(pod).map_err(|error| ProviderError::unavailable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use federlet_node::contract::Phase;

    use super::{super::child::tests::child, *};

    fn host(extra: &Value, status: &Value) -> Pod {
        let mut metadata = json!({"namespace": "shop", "name": "web", "uid": "p1"});
        if let (Value::Object(metadata), Value::Object(extra)) = (&mut metadata, extra) {
            metadata.extend(extra.clone());
        }
        Pod::try_from(json!({"metadata": metadata, "spec": {}, "status": status})).unwrap()
    }

    /// A copy of the pod of this UID in a cluster.
    fn copy(cluster: &str, of: &str, ending: Option<u64>) -> Child {
        let mut copy = child(cluster, cluster, json!({}));
        copy["metadata"]["labels"]["federlet.io/copy-of"] = of.into();
        if let Some(grace) = ending {
            copy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            copy["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        }
        Child::read(&copy).unwrap()
    }

    /// The UID of what is held, and the grace with which it is ending. `b` cannot be reached.
    fn held(host: Option<&Pod>, children: &[Child]) -> Option<(String, Option<u64>)> {
        let reach = [("a".to_owned(), true), ("b".to_owned(), false)].into();
        let chosen = Some(["a".to_owned(), "b".to_owned()].into());
        let known = Known { host, children: children.to_vec(), chosen, reach, troubles: Troubles::new() };
        let pod = known.held().unwrap()?;
        Some((pod.uid().to_owned(), pod.deletion().map(|deletion| deletion.grace.as_secs())))
    }

    fn is(uid: &str, ending: Option<u64>) -> Option<(String, Option<u64>)> {
        Some((uid.to_owned(), ending))
    }

    #[test]
    fn a_pod_is_there_once_it_was_begun() {
        let (new, ran) = (host(&json!({}), &json!({})), host(&json!({}), &json!({"phase": "Running"})));
        assert_eq!(held(Some(&new), &[]), None, "to be created");
        assert_eq!(held(Some(&new), &[copy("a", "p1", None)]), is("p1", None));
        assert_eq!(held(Some(&ran), &[]), is("p1", None), "not lost: its copies come back");
        assert_eq!(
            held(Some(&ran), &[copy("a", "p1", Some(1))]),
            is("p1", None),
            "one that goes does not take it along"
        );
    }

    #[test]
    fn a_pod_that_is_over_stays_so_when_more_clusters_are_chosen() {
        let phase = |host: &Pod, children: &[Child]| {
            let clusters = ["a", "b", "c"].map(str::to_owned);
            let (chosen, reach) = (Some(clusters.clone().into()), clusters.map(|name| (name, true)).into());
            let known = Known {
                host: Some(host),
                children: children.to_vec(),
                chosen,
                reach,
                troubles: Troubles::new(),
            };
            known.held().unwrap().unwrap().phase()
        };
        let copy = |cluster: &str, phase: &str| {
            Child::read(&child(cluster, cluster, json!({"status": {"phase": phase}}))).unwrap()
        };
        for (over, word) in [(Phase::Succeeded, "Succeeded"), (Phase::Failed, "Failed")] {
            let job = Pod::try_from(json!({
                "metadata": {"namespace": "shop", "name": "web", "uid": "p1"}, "spec": {"restartPolicy": "Never"},
                "status": {"phase": word, "startTime": "2026-01-01T00:00:00Z"},
            }))
            .unwrap();
            assert_eq!(phase(&job, &[copy("a", word), copy("b", "Succeeded")]), over);
            assert_eq!(phase(&job, &[]), over, "its copies may have been tidied away");
            assert_eq!(
                phase(&job, &[copy("a", word), copy("b", "Running")]),
                Phase::Running,
                "it is to be ended"
            );
        }
    }

    #[test]
    fn a_pod_that_is_deleted_goes_when_its_copies_within_reach_are_gone() {
        let deleted =
            host(&json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), &json!({"phase": "Running"}));
        let held = |children: &[Child]| held(Some(&deleted), children);
        assert_eq!(
            held(&[copy("a", "p1", None), copy("b", "p1", Some(5))]),
            is("p1", None),
            "one is to be told"
        );
        assert_eq!(held(&[copy("a", "p1", Some(3)), copy("b", "p1", Some(5))]), is("p1", Some(3)));
        assert_eq!(held(&[copy("b", "p1", None)]), is("p1", None), "it must be told, too");
        assert_eq!(held(&[copy("b", "p1", Some(5))]), None, "and is not waited for");
        assert_eq!(held(&[]), None);
    }

    #[test]
    fn copies_of_a_pod_that_is_gone_are_ended_before_the_next_one_is_looked_at() {
        let new = host(&json!({}), &json!({}));
        assert_eq!(held(None, &[copy("a", "p0", None)]), is("p0", None));
        assert_eq!(held(None, &[copy("a", "p0", Some(2))]), is("p0", Some(2)));
        assert_eq!(held(Some(&new), &[copy("a", "p0", None)]), is("p0", None));
        assert_eq!(held(Some(&new), &[copy("a", "p0", Some(2))]), None, "the others need not wait for it");
    }
}
