//! What pods hold on the machines of a member. The sums are kept, because they are asked for at every change, and adding
//! up ten thousand pods for one of them is work that nobody needs.

use std::collections::HashMap;

use super::pod::Slot;
use crate::{
    capacity::{PodLoad, Resources},
    names::MemberName,
};

/// What a pod holds on its machine, and through which virtual node of this host it came.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) machine: Box<str>,
    pub(super) node: Option<Box<str>>,
    pub(super) requests: Resources,
}

/// How many pods hold how much.
#[derive(Debug, Default)]
struct Sum {
    pods: usize,
    requests: Resources,
}

/// Every pod's load, and their sums by machine and virtual node.
#[derive(Debug, Default)]
pub(super) struct Loads {
    each: HashMap<Slot, Load>,
    sums: HashMap<Box<str>, HashMap<Option<Box<str>>, Sum>>,
}

impl Loads {
    /// Takes in what a pod holds now; true if it held something else before.
    pub(super) fn set(&mut self, slot: &Slot, load: Load) -> bool {
        if self.each.get(slot) == Some(&load) {
            return false;
        }
        self.remove(slot);
        let sum = self.sums.entry(load.machine.clone()).or_default().entry(load.node.clone()).or_default();
        sum.pods += 1;
        sum.requests.add(&load.requests);
        self.each.insert(slot.clone(), load);
        true
    }

    /// True if the pod held anything.
    pub(super) fn remove(&mut self, slot: &Slot) -> bool {
        let Some(load) = self.each.remove(slot) else { return false };
        if let Some(nodes) = self.sums.get_mut(&load.machine)
            && let Some(sum) = nodes.get_mut(&load.node)
        {
            sum.pods -= 1;
            sum.requests.take_back(&load.requests);
            if sum.pods == 0 {
                nodes.remove(&load.node);
            }
            if nodes.is_empty() {
                self.sums.remove(&load.machine);
            }
        }
        true
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.each.keys()
    }

    /// What is held on each machine by pods of this virtual node, and by all others.
    pub(super) fn of(&self, node: &MemberName) -> Vec<PodLoad> {
        let mut found = vec![];
        for (machine, nodes) in &self.sums {
            for ours in [true, false] {
                let mut sums = nodes
                    .iter()
                    .filter(|(through, _)| (through.as_deref() == Some(node.as_str())) == ours)
                    .map(|(_, sum)| &sum.requests);
                if let Some(first) = sums.next() {
                    let mut requests = first.clone();
                    sums.for_each(|more| requests.add(more));
                    found.push(PodLoad { node: machine.clone(), ours, requests });
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn load((machine, node, cpu, gpu): (u8, u8, u8, bool)) -> Load {
        let mut requests = json!({"cpu": format!("{cpu}m"), "pods": "1"});
        if gpu {
            requests["nvidia.com/gpu"] = "1".into();
        }
        Load {
            machine: format!("m{machine}").into(),
            node: (node > 0).then(|| format!("n{node}").into()),
            requests: Resources::read(Some(&requests)),
        }
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_pods_that_are_there(
            steps in prop::collection::vec((0_u8..6, prop::option::of((0_u8..3, 0_u8..3, 0_u8..5, any::<bool>()))), 0..60)
        ) {
            let (mut loads, mut there) = (Loads::default(), HashMap::new());
            for (pod, what) in steps {
                let slot = Slot::new("a", &format!("p{pod}"));
                match what.map(load) {
                    Some(load) => {
                        let before = there.insert(slot.clone(), load.clone());
                        prop_assert_eq!(loads.set(&slot, load.clone()), before != Some(load));
                    }
                    None => prop_assert_eq!(loads.remove(&slot), there.remove(&slot).is_some()),
                }
            }
            let node = MemberName::new("n1").unwrap();
            let mut wanted: HashMap<(Box<str>, bool), Resources> = HashMap::new();
            for load in there.values() {
                let ours = load.node.as_deref() == Some("n1");
                wanted.entry((load.machine.clone(), ours)).or_default().add(&load.requests);
            }
            let found: HashMap<_, _> =
                loads.of(&node).into_iter().map(|load| ((load.node, load.ours), load.requests)).collect();
            for (key, wanted) in &wanted {
                for resource in ["cpu", "pods", "nvidia.com/gpu"] {
                    prop_assert_eq!(found[key].get(resource), wanted.get(resource));
                }
            }
            prop_assert_eq!(found.len(), wanted.len());
        }
    }
}
