use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use federlet_node::PackedJson;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pod::{OurPod, Slot};
use crate::{
    capacity::{MemberNode, PodLoad, Resources},
    json::Object,
    names::MemberName,
};

/// How long the end of a pod is remembered. Whoever is told of it asks within moments.
const REMEMBERED: Duration = Duration::from_secs(600);
/// And how many of them at most.
const MOST_DEPARTED: usize = 10_000;

/// What a pod holds on its machine, and through which virtual node of this host it came.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) machine: Box<str>,
    pub(super) node: Option<Box<str>>,
    pub(super) requests: Resources,
}

/// The pods of a member.
#[derive(Debug, Default)]
pub(super) struct Pods {
    ours: HashMap<Slot, OurPod>,
    /// Where pods are that have another name on the host: by that name, in the member's namespace.
    renamed: HashMap<Slot, Slot>,
    loads: HashMap<Slot, Load>,
    departed: HashMap<Box<str>, (Instant, Departure)>,
}

impl Pods {
    pub(super) fn get(&self, slot: &Slot) -> Option<OurPod> {
        self.ours.get(slot).cloned()
    }

    /// The pod that has this name on the host, and another one in the member.
    pub(super) fn renamed(&self, on_host: &Slot) -> Option<OurPod> {
        self.ours.get(self.renamed.get(on_host)?).cloned()
    }

    pub(super) fn of(&self, node: &MemberName) -> Vec<OurPod> {
        self.ours.values().filter(|pod| pod.node() == node.as_str()).cloned().collect()
    }

    pub(super) fn departed(&self, host_uid: &str) -> Option<Departure> {
        self.departed.get(host_uid).map(|(_, departure)| departure.clone())
    }

    /// What is held on each machine by pods of this virtual node, and by all others.
    pub(super) fn loads(&self, node: &MemberName) -> Vec<PodLoad> {
        let mut sums: HashMap<(&str, bool), Resources> = HashMap::new();
        for load in self.loads.values() {
            let ours = load.node.as_deref() == Some(node.as_str());
            sums.entry((&load.machine, ours)).or_default().add(&load.requests);
        }
        sums.into_iter()
            .map(|((machine, ours), requests)| PodLoad { node: machine.into(), ours, requests })
            .collect()
    }

    /// Takes in an event.
    pub(super) fn apply(&mut self, slot: &Slot, ours: Option<OurPod>, load: Option<Load>) -> Applied {
        let room = match load {
            Some(load) => self.loads.insert(slot.clone(), load.clone()).is_none_or(|before| before != load),
            None => self.loads.remove(slot).is_some(),
        };
        let before = match &ours {
            Some(pod) => self.keep(pod.clone()),
            None => self.drop_pod(slot),
        };
        let changed = ours.filter(|pod| before.as_ref() != Some(pod));
        let same =
            |before: &OurPod| self.ours.get(slot).is_some_and(|now| now.host_uid() == before.host_uid());
        // Taken out of our hands, or its place taken by a pod of another UID on the host: the one before is gone.
        let gone = before.filter(|before| !same(before));
        if let Some(gone) = &gone {
            self.depart(gone, false);
        }
        if let Some(pod) = &changed {
            self.departed.remove(pod.host_uid());
        }
        Applied { changed, gone, room }
    }

    /// Takes in the answer to a write, unless an event told something newer already.
    pub(super) fn apply_answer(&mut self, pod: OurPod) {
        let known = self.ours.get(pod.slot());
        if known.is_none_or(|known| pod.is_newer_than(known)) {
            self.departed.remove(pod.host_uid());
            self.keep(pod);
        }
    }

    fn keep(&mut self, pod: OurPod) -> Option<OurPod> {
        let before = self.drop_pod(pod.slot());
        if let Some(on_host) = other_name(&pod) {
            self.renamed.insert(on_host, pod.slot().clone());
        }
        self.ours.insert(pod.slot().clone(), pod);
        before
    }

    fn drop_pod(&mut self, slot: &Slot) -> Option<OurPod> {
        let before = self.ours.remove(slot)?;
        if let Some(on_host) = other_name(&before)
            && self.renamed.get(&on_host) == Some(slot)
        {
            self.renamed.remove(&on_host);
        }
        Some(before)
    }

    /// Takes in that the member deleted a pod.
    pub(super) fn deleted(&mut self, slot: &Slot, last: Option<OurPod>) -> Applied {
        self.remove(slot, last, true)
    }

    fn remove(&mut self, slot: &Slot, last: Option<OurPod>, said: bool) -> Applied {
        let room = self.loads.remove(slot).is_some();
        let before = self.drop_pod(slot);
        let gone = last.or(before);
        if let Some(gone) = &gone {
            self.depart(gone, said);
        }
        Applied { changed: None, gone, room }
    }

    /// What a complete list does not name is gone, whether or not anybody said so. Says which of ours are.
    pub(super) fn keep_only(&mut self, listed: &HashSet<Slot>) -> Vec<OurPod> {
        let known = self.ours.keys().chain(self.loads.keys());
        let gone: HashSet<Slot> = known.filter(|slot| !listed.contains(*slot)).cloned().collect();
        gone.iter().filter_map(|slot| self.remove(slot, None, false).gone).collect()
    }

    fn depart(&mut self, pod: &OurPod, said: bool) {
        let now = Instant::now();
        if self.departed.len() >= MOST_DEPARTED {
            self.departed.retain(|_, (at, _)| now.duration_since(*at) < REMEMBERED);
        }
        if self.departed.len() >= MOST_DEPARTED {
            self.departed.clear();
        }
        self.departed.insert(pod.host_uid().into(), (now, Departure::of(pod, said)));
    }
}

/// The end of a pod of ours.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Whether the member itself said that it deleted this pod, which is definite. Else the pod was merely not in a
    /// list, or not where it was.
    pub said: bool,
    last: PackedJson,
}

impl Departure {
    fn of(pod: &OurPod, said: bool) -> Self {
        let pod = pod.json();
        let status = |field: &str| pod.pointer(&format!("/status/{field}")).cloned().unwrap_or_default();
        let why = ["reason", "message", "conditions"].map(|field| (field.to_owned(), status(field)));
        let last = json!({ "status": Object::from_iter(why) });
        Self { said, last: PackedJson::new(&last) }
    }

    /// What the pod said last of why it ends, as a pod with nothing else.
    pub fn last(&self) -> Value {
        self.last.open()
    }
}

/// The name that a pod has on the host, if it is another one than in the member.
fn other_name(pod: &OurPod) -> Option<Slot> {
    let slot = pod.slot();
    (pod.host_name() != &*slot.name).then(|| Slot::new(&slot.namespace, pod.host_name()))
}

/// What an event changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) changed: Option<OurPod>,
    pub(super) gone: Option<OurPod>,
    pub(super) room: bool,
}

/// The machines of a member.
#[derive(Debug, Default)]
pub(super) struct Nodes(HashMap<Box<str>, MemberNode>);

impl Nodes {
    pub(super) fn all(&self) -> Vec<MemberNode> {
        let mut nodes: Vec<MemberNode> = self.0.values().cloned().collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    /// True if anything that counts is not what it was: machines report every few seconds, mostly that nothing is new.
    pub(super) fn apply(&mut self, node: MemberNode) -> bool {
        let changed = self.0.get(&node.name).is_none_or(|before| *before != node);
        self.0.insert(node.name.clone(), node);
        changed
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    pub(super) fn keep_only(&mut self, listed: &HashSet<Box<str>>) {
        self.0.retain(|name, _| listed.contains(name));
    }
}
