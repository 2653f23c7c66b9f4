use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::MemberNode;
use crate::{json::text, target::TAINT};

/// Taints that Kubernetes puts on a node for its condition and takes off again. They say how a machine is today.
const CONDITIONS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// One taint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: Box<str>,
    /// Its value, often empty.
    pub value: Box<str>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Box<str>,
}

impl Taint {
    /// Reads a taint. None if it has no key or no effect.
    pub fn read(taint: &Value) -> Option<Self> {
        Some(Self {
            key: text(taint, "key")?.into(),
            value: text(taint, "value").unwrap_or_default().into(),
            effect: text(taint, "effect")?.into(),
        })
    }

    /// As the API has it.
    pub fn to_json(&self) -> Value {
        let mut taint = json!({ "key": &*self.key, "effect": &*self.effect });
        if !self.value.is_empty() {
            taint["value"] = (*self.value).into();
        }
        taint
    }

    fn is_of_condition(&self) -> bool {
        CONDITIONS.iter().any(|prefix| self.key.starts_with(prefix))
    }

    fn keeps_pods_off(&self) -> bool {
        &*self.effect != "PreferNoSchedule"
    }
}

/// The taints of all machines of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taints {
    /// On every one of them: the virtual node has them too.
    pub common: Vec<Taint>,
    /// On some: pods in a region tolerate them, for the host's scheduler cannot choose between machines.
    pub others: Vec<Taint>,
}

impl Taints {
    pub(super) fn of(nodes: &[&MemberNode]) -> Self {
        let lasting = |node: &MemberNode| -> BTreeSet<Taint> {
            node.taints.iter().filter(|taint| !taint.is_of_condition()).cloned().collect()
        };
        let mut sets = nodes.iter().map(|node| lasting(node));
        let first = sets.next().unwrap_or_default();
        let (common, all) = sets.fold((first.clone(), first), |(common, all), set| {
            (common.intersection(&set).cloned().collect::<BTreeSet<_>>(), all.union(&set).cloned().collect())
        });
        Self { others: all.difference(&common).cloned().collect(), common: common.into_iter().collect() }
    }

    /// Tolerations that open all machines of a region. Never for virtual nodes: a pod would be passed on for ever.
    pub fn tolerations(&self) -> Vec<Value> {
        let keys: BTreeSet<(&str, &str)> = self
            .others
            .iter()
            .filter(|taint| taint.keeps_pods_off() && &*taint.key != TAINT)
            .map(|taint| (&*taint.key, &*taint.effect))
            .collect();
        let toleration = |(key, effect)| json!({ "key": key, "operator": "Exists", "effect": effect });
        keys.into_iter().map(toleration).collect()
    }

    /// Whether pods that tolerate the common taints, and in a region the others too, can get to this machine.
    ///
    /// A taint named like a resource of the machine (`nvidia.com/gpu`) does not close it: pods that ask for the
    /// resource tolerate it by convention, and it is for them that the machine is there.
    pub(super) fn is_open(&self, node: &MemberNode, region: bool) -> bool {
        let tolerated = |taint: &Taint| {
            !taint.is_of_condition()
                && (self.common.contains(taint)
                    || (region && &*taint.key != TAINT)
                    || node.allocatable.has(&taint.key))
        };
        node.taints.iter().all(|taint| !taint.keeps_pods_off() || tolerated(taint))
    }
}
