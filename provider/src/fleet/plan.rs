//! What to do about the copies of a pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use federlet_node::contract::{Phase, Pod};
use jiff::Timestamp;
use serde_json::Value;

use super::{child::Child, choice::Chosen, copy, status};

/// A copy that fails at once is not replaced at once, or it would be for ever.
const REPLACED_AFTER: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Clusters that need a copy.
    pub(super) create: Vec<String>,
    /// Copies that have to go.
    pub(super) delete: Vec<Child>,
    /// Copies that have to change.
    pub(super) patch: Vec<(Child, Value)>,
    /// When to look again, whatever happens.
    pub(super) again: Option<Duration>,
}

/// Decides for one pod, given the clusters that were chosen and the copies that there are.
///
/// Like whoever made the pod would do it for one cluster: a copy that is missing or failed is replaced if it is to run
/// for ever. One that ends by itself is not started a second time, for it may have finished.
pub(super) fn plan(pod: &Pod, chosen: &Chosen, children: &[Child], now: Timestamp) -> Plan {
    // Copies of an earlier pod of this name have the names that we need. When they are gone, the next ones come.
    let (children, earlier): (Vec<&Child>, Vec<&Child>) =
        children.iter().partition(|child| child.parent == *pod.id());
    let mut plan = Plan::default();
    let there: BTreeMap<&str, &Child> = children.iter().map(|child| (&*child.cluster, *child)).collect();
    let taken = |cluster: &str| earlier.iter().any(|child| *child.cluster == *cluster);
    let began = if pod.restarts_always() { BTreeSet::new() } else { status::began(pod.status()) };
    for cluster in chosen.clusters.difference(&chosen.held) {
        match there.get(cluster.as_str()) {
            None if began.contains(cluster) || taken(cluster) => {}
            None => plan.create.push(cluster.clone()),
            // It is on its way out; when it is gone, the next one comes.
            Some(child) if child.ending.is_some() => {}
            Some(child) if child.phase == Phase::Failed && pod.restarts_always() => {
                let rest = REPLACED_AFTER.saturating_sub(age(child, now));
                if rest.is_zero() {
                    plan.delete.push((*child).clone());
                } else {
                    plan.again = Some(plan.again.map_or(rest, |other| other.min(rest)));
                }
            }
            Some(child) => {
                let patch = copy::patch(pod, &child.json(), chosen.uncounted);
                plan.patch.extend(patch.map(|patch| ((*child).clone(), patch)));
            }
        }
    }
    let over = children
        .into_iter()
        .filter(|child| !chosen.clusters.contains(&*child.cluster) && child.ending.is_none());
    plan.delete.extend(over.cloned());
    plan
}

fn age(child: &Child, now: Timestamp) -> Duration {
    let json = child.json();
    let created = json.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let created: Option<Timestamp> = created.and_then(|text| text.parse().ok());
    created
        .map_or(REPLACED_AFTER, |created| Duration::try_from(now.duration_since(created)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::child::tests::child, *};

    fn pod(restart: &str, copies: &str) -> Pod {
        Pod::try_from(json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "p1"},
            "spec": {"restartPolicy": restart},
            "status": {"conditions": [{"type": status::COPIES, "status": "False", "message": copies}]},
        }))
        .unwrap()
    }

    fn there(pods: &[Value]) -> Vec<Child> {
        pods.iter().map(|pod| Child::read(pod).unwrap()).collect()
    }

    fn decide(pod: &Pod, chosen: &[&str], children: &[Value]) -> (Vec<String>, Vec<String>, usize, bool) {
        // A name in brackets is that of a cluster that gets nothing for now.
        let bare = |name: &str| name.trim_matches(['(', ')']).to_owned();
        let held = chosen.iter().filter(|name| name.starts_with('(')).map(|name| bare(name)).collect();
        let clusters = chosen.iter().map(|name| bare(name)).collect();
        let chosen = Chosen { owner: Value::Null, clusters, held, uncounted: false };
        let now = "2026-01-01T00:00:30Z".parse().unwrap();
        let plan = plan(pod, &chosen, &there(children), now);
        let gone = plan.delete.iter().map(|child| child.cluster.to_string()).collect();
        (plan.create, gone, plan.patch.len(), plan.again.is_some())
    }

    #[test]
    fn each_chosen_cluster_has_one_copy_and_no_other_has_any() {
        let web = pod("Always", "");
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (a, c) = (child("a", "1", json!({})), child("c", "3", json!({})));
        assert_eq!(decide(&web, &["a", "b"], &[]), (names(&["a", "b"]), vec![], 0, false));
        assert_eq!(
            decide(&web, &["a", "b"], &[a.clone(), c.clone()]),
            (names(&["b"]), names(&["c"]), 0, false)
        );
        let settled = decide(&web, &["a"], std::slice::from_ref(&a));
        assert_eq!(settled, (vec![], vec![], 0, false), "nothing to do");
        let mut stale = a.clone();
        stale["metadata"]["labels"]["more"] = "yes".into();
        assert_eq!(
            decide(&web, &["a"], &[stale]),
            (vec![], vec![], 1, false),
            "it says what its pod does not"
        );
        let mut ending = c;
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(
            decide(&web, &["a"], &[a.clone(), ending.clone()]),
            (vec![], vec![], 0, false),
            "it goes already"
        );
        assert_eq!(
            decide(&web, &["a", "c"], &[a, ending]),
            (vec![], vec![], 0, false),
            "and then comes back"
        );
        let mut stale = child("b", "2", json!({}));
        stale["metadata"]["labels"]["more"] = "yes".into();
        assert_eq!(decide(&web, &["(a)", "(b)"], &[stale]), (vec![], vec![], 0, false), "it is held back");
        let mut earlier = child("a", "0", json!({}));
        earlier["metadata"]["labels"]["federlet.io/copy-of"] = "p0".into();
        assert_eq!(
            decide(&web, &["a", "b"], &[earlier]),
            (names(&["b"]), vec![], 0, false),
            "it has the name"
        );
    }

    #[test]
    fn one_that_failed_is_replaced_though_not_at_once() {
        let failed = |created: &str| {
            let mut failed = child("a", "1", json!({"status": {"phase": "Failed"}}));
            failed["metadata"]["creationTimestamp"] = created.into();
            failed
        };
        let old = failed("2026-01-01T00:00:00Z");
        assert_eq!(decide(&pod("Always", ""), &["a"], std::slice::from_ref(&old)).1, ["a"]);
        let young = failed("2026-01-01T00:00:25Z");
        assert_eq!(decide(&pod("Always", ""), &["a"], &[young]), (vec![], vec![], 0, true));
        assert_eq!(decide(&pod("Never", ""), &["a"], &[old]), (vec![], vec![], 0, false), "a Job counts it");
    }

    #[test]
    fn what_may_have_finished_does_not_run_again() {
        let said = "a=Running, b=Pending, c=Succeeded";
        let created = |restart: &str| decide(&pod(restart, said), &["a", "b", "c", "d"], &[]).0;
        assert_eq!(created("Never"), ["b", "d"]);
        assert_eq!(created("OnFailure"), ["b", "d"]);
        assert_eq!(created("Always"), ["a", "b", "c", "d"]);
    }
}
