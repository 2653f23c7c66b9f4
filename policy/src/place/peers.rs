//! Workloads to be together with, or apart from.

use std::collections::{BTreeMap, BTreeSet};

use crate::{api::WorkloadAffinity, object::Identity};

/// Where the workloads are that one wants to be together with, or apart from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// The clusters of each scheduled workload to be together with.
    pub near: Vec<BTreeSet<String>>,
    /// The clusters of all workloads to be apart from.
    pub apart: BTreeSet<String>,
}

/// Another workload, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its clusters; none if it is not scheduled yet.
    pub clusters: &'a BTreeSet<String>,
}

impl Peers {
    /// Finds the peers of a workload among the other workloads. Groups end at the namespace; a workload without
    /// the label is in no group. One that is not scheduled yet asks nothing, so the first of a group is free.
    #[must_use]
    pub fn of<'a>(
        affinity: &WorkloadAffinity,
        workload: &Identity,
        others: impl IntoIterator<Item = Peer<'a>>,
    ) -> Self {
        let group = |term: Option<&crate::api::WorkloadAffinityTerm>| {
            let key = &term?.group_by_label_key;
            Some((key.clone(), workload.labels.get(key)?.clone()))
        };
        let (near, apart) = (group(affinity.affinity.as_ref()), group(affinity.anti_affinity.as_ref()));
        let is_in = |group: &Option<(String, String)>, peer: &Peer<'_>| {
            group.as_ref().is_some_and(|(key, value)| peer.labels.get(key) == Some(value))
        };
        let mut peers = Self::default();
        for peer in others {
            if peer.namespace != workload.namespace || peer.clusters.is_empty() {
                continue;
            }
            if is_in(&near, &peer) {
                peers.near.push(peer.clusters.clone());
            }
            if is_in(&apart, &peer) {
                peers.apart.extend(peer.clusters.iter().cloned());
            }
        }
        peers
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_are_by_label_value_and_namespace() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let both: WorkloadAffinity = serde_json::from_value(
            json!({"affinity": {"groupByLabelKey": "team"}, "antiAffinity": {"groupByLabelKey": "role"}}),
        )
        .unwrap();
        let workload = Identity {
            namespace: "shop".into(),
            labels: labels(&[("team", "a"), ("role", "db")]),
            ..Identity::default()
        };
        let (team, role, neither) =
            (labels(&[("team", "a")]), labels(&[("role", "db")]), labels(&[("team", "b")]));
        let (m12, m3, none) = (set(&["m1", "m2"]), set(&["m3"]), set(&[]));
        let others = [
            Peer { namespace: "shop", labels: &team, clusters: &m12 },
            Peer { namespace: "shop", labels: &team, clusters: &none },
            Peer { namespace: "bank", labels: &team, clusters: &m3 },
            Peer { namespace: "shop", labels: &role, clusters: &m3 },
            Peer { namespace: "shop", labels: &neither, clusters: &m12 },
        ];
        let peers = Peers::of(&both, &workload, others);
        assert_eq!(peers, Peers { near: vec![m12.clone()], apart: m3.clone() });
        let unlabelled = Identity { namespace: "shop".into(), ..Identity::default() };
        assert_eq!(Peers::of(&both, &unlabelled, others), Peers::default());
    }
}
