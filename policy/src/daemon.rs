//! A DaemonSet makes each of its pods for one node, so nobody places them: its policy says which of the nodes of clusters
//! they run on. Pods for the other nodes are there and run nowhere.

use std::collections::BTreeSet;

use crate::{
    api::{Cluster, ResourceBinding},
    divide::Shares,
    govern::Governed,
    place::{Member, Peers, PlaceError, Request, place},
    placer::as_seen,
    store::View,
};

/// Which nodes its pods run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// Pods that are new run on these.
    pub(crate) run: BTreeSet<String>,
    /// Pods that run may stay on these.
    pub(crate) stay: BTreeSet<String>,
    /// The affinity group that was used.
    pub(crate) affinity: Option<String>,
}

/// Decides it. None if it is not for now to decide: what runs stays, and nothing new runs.
pub(crate) fn nodes(governed: &Governed, view: &View, binding: Option<&ResourceBinding>) -> Option<Nodes> {
    if governed.hold.is_some() {
        return None;
    }
    let targets = binding.iter().flat_map(|binding| &binding.spec.clusters);
    let previous: Shares = targets.map(|target| (target.name.clone(), 1)).collect();
    let leaving = binding.map(|binding| binding.spec.left().map(str::to_owned).collect()).unwrap_or_default();
    let status = binding.and_then(|binding| binding.status.as_ref());
    let observed = status.map(|status| status.scheduler_observed_affinity_name.as_str());
    let clusters: Vec<Cluster> = view.clusters.values().map(|cluster| as_seen(cluster)).collect();
    let members: Vec<Member<'_>> = clusters.iter().map(|cluster| Member { cluster, free: 0 }).collect();
    let request = Request {
        // Only the pods leave the host.
        api_version: "v1",
        kind: "Pod",
        uid: "",
        // One for each node is nothing to divide.
        replicas: None,
        placement: &governed.placement,
        previous: &previous,
        observed_affinity: observed.filter(|name| !name.is_empty()),
        leaving: &leaving,
        // Whoever makes pods for every node is no company.
        peers: &Peers::default(),
        fresh: false,
    };
    match place(&request, &members) {
        Ok(placed) => {
            let suspension = governed.spec.as_ref().and_then(|spec| spec.suspension.as_ref());
            let held = |name: &str| suspension.is_some_and(|suspension| suspension.holds_back(name));
            let stay: BTreeSet<String> = placed.shares.into_keys().collect();
            let run = stay.iter().filter(|name| !held(name)).cloned().collect();
            Some(Nodes { run, stay, affinity: placed.affinity })
        }
        Err(PlaceError::NoClusterFit { .. }) => Some(Nodes::default()),
        Err(PlaceError::Spread(_) | PlaceError::Divide(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        affinity::tests::cluster,
        claim::{Claim, PolicyKey},
        govern::Hold,
    };

    fn view() -> View {
        let ready = |name: &str| {
            let mut cluster = cluster(name, json!({"name": name}), json!({}));
            cluster.status =
                serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": "True",
                "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
                .unwrap();
            (name.to_owned(), Arc::new(cluster))
        };
        View { complete: true, clusters: ["a", "b", "c"].map(ready).into(), ..View::default() }
    }

    fn governed(spec: Value) -> Governed {
        let mut whole = json!({"resourceSelectors": []});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let spec: crate::api::PropagationSpec = serde_json::from_value(whole).unwrap();
        Governed {
            claim: Claim { policy: PolicyKey { namespace: None, name: "p".into() }, id: "i".into() },
            placement: spec.placement.clone(),
            scheduler: None,
            priority_class: None,
            hold: None,
            current: true,
            spec: Some(spec),
        }
    }

    fn binding(clusters: &[&str], group: &str) -> ResourceBinding {
        let clusters: Vec<Value> = clusters.iter().map(|name| json!({"name": name, "replicas": 1})).collect();
        serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "x"},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x"}, "clusters": clusters},
            "status": {"schedulerObservingAffinityName": group},
        }))
        .unwrap()
    }

    #[test]
    fn the_whole_policy_says_where() {
        let names = |names: &[&str]| json!({"clusterAffinity": {"clusterNames": names}});
        let groups = json!({"clusterAffinities": [
            {"affinityName": "gone", "clusterNames": ["x"]}, {"affinityName": "first", "clusterNames": ["b"]},
            {"affinityName": "second", "clusterNames": ["a", "c"]}]});
        let spread =
            json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}]});
        let many =
            json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 5, "maxGroups": 5}]});
        let held = json!({"dispatchingOnClusters": {"clusterNames": ["a"]}});
        let nothing: Option<(&[&str], &[&str])> = None;
        for (placement, suspension, binding, expected) in [
            (json!({}), None, None, Some((&["a", "b", "c"][..], &["a", "b", "c"][..]))),
            (names(&["a", "x"]), None, None, Some((&["a"], &["a"]))),
            (names(&["x"]), None, Some(binding(&["a"], "")), Some((&[], &[]))),
            // The first group that fits, and none after it; unless a later one was used before.
            (groups.clone(), None, None, Some((&["b"], &["b"]))),
            (groups, None, Some(binding(&["a", "c"], "second")), Some((&["a", "c"], &["a", "c"]))),
            (spread.clone(), None, None, Some((&["a", "b"], &["a", "b"]))),
            (spread, None, Some(binding(&["b", "c"], "")), Some((&["b", "c"], &["b", "c"]))),
            (many, None, Some(binding(&["a"], "")), nothing),
            (names(&["a", "b"]), Some(held), None, Some((&["b"], &["a", "b"]))),
        ] {
            let mut spec = json!({"placement": placement});
            spec["suspension"] = suspension.unwrap_or_default();
            let found = nodes(&governed(spec.clone()), &view(), binding.as_ref());
            let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
            let expected = expected.map(|(run, stay)| (set(run), set(stay)));
            assert_eq!(found.map(|found| (found.run, found.stay)), expected, "{spec}");
        }
        let mut waits = governed(json!({}));
        waits.hold = Some(Hold::Frozen);
        assert_eq!(nodes(&waits, &view(), None), None);
    }
}
