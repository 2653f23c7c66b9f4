use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use federlet_node::contract::Phase;
use tokio::time::Instant;

use super::{
    loads::{Load, Loads},
    pod::{OurPod, Slot},
};
use crate::{
    capacity::{MemberNode, PodLoad},
    names::MemberName,
};

/// How long the end of a pod is remembered. Whoever is told of it asks within moments.
const REMEMBERED: Duration = Duration::from_secs(600);
/// And how many of them at most.
const MOST_DEPARTED: usize = 10_000;
/// So many are not worth the trouble to forget them.
const FEW_DEPARTED: usize = 256;
/// How many UIDs of pods that are gone are known. An answer is late by moments, not by thousands of pods.
const MOST_ENDED: usize = 4096;

/// The pods of a member.
#[derive(Debug, Default)]
pub(super) struct Pods {
    ours: HashMap<Slot, OurPod>,
    /// Where pods are that have another name on the host: by that name, in the member's namespace.
    renamed: HashMap<Slot, Slot>,
    loads: Loads,
    departed: HashMap<Box<str>, (Instant, Departure)>,
    /// When so many have departed, those of long ago are forgotten.
    tidy_at: usize,
    ended: Ended,
}

/// UIDs, in the member, of pods of which it said that they are gone.
#[derive(Debug, Default)]
struct Ended {
    uids: HashSet<Box<str>>,
    order: VecDeque<Box<str>>,
}

impl Ended {
    fn add(&mut self, uid: &str) {
        if uid.is_empty() || !self.uids.insert(uid.into()) {
            return;
        }
        self.order.push_back(uid.into());
        if self.order.len() > MOST_ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
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
        self.loads.of(node)
    }

    /// Takes in an event.
    pub(super) fn apply(&mut self, slot: &Slot, ours: Option<OurPod>, load: Option<Load>) -> Applied {
        // The member said by an answer that this one is gone, and the next one has its place: this is late.
        let other = |pod: &OurPod| self.ours.get(slot).is_some_and(|now| now.uid() != pod.uid());
        if ours.as_ref().is_some_and(|pod| self.ended.uids.contains(pod.uid()) && other(pod)) {
            return Applied { changed: None, gone: None, room: false };
        }
        let room = match load {
            Some(load) => self.loads.set(slot, load),
            None => self.loads.remove(slot),
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

    /// Takes in the answer to a write, unless an event told something newer already, and be it that the pod is gone.
    pub(super) fn apply_answer(&mut self, pod: OurPod) {
        if self.ended.uids.contains(pod.uid()) {
            return;
        }
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

    /// Takes in that this very pod is not in its place any more. None if nobody thought so.
    pub(super) fn is_gone(&mut self, slot: &Slot, uid: &str) -> Option<OurPod> {
        self.ended.add(uid);
        self.ours.get(slot).filter(|pod| pod.uid() == uid)?;
        self.remove(slot, None, true).gone
    }

    fn remove(&mut self, slot: &Slot, last: Option<OurPod>, said: bool) -> Applied {
        let room = self.loads.remove(slot);
        // The answer to a create may have brought the next pod of this name already.
        let other = |next: &OurPod| last.as_ref().is_some_and(|last| last.uid() != next.uid());
        let before = if self.ours.get(slot).is_some_and(other) { None } else { self.drop_pod(slot) };
        let gone = last.or(before);
        if let Some(gone) = gone.as_ref().filter(|_| said) {
            self.ended.add(gone.uid());
        }
        if let Some(gone) = &gone {
            self.depart(gone, said);
        }
        Applied { changed: None, gone, room }
    }

    /// What a complete list does not name is gone, whether or not anybody said so. Says which of ours are.
    pub(super) fn keep_only(&mut self, listed: &HashSet<Slot>) -> Vec<OurPod> {
        let known = self.ours.keys().chain(self.loads.slots());
        let gone: HashSet<Slot> = known.filter(|slot| !listed.contains(*slot)).cloned().collect();
        gone.iter().filter_map(|slot| self.remove(slot, None, false).gone).collect()
    }

    fn depart(&mut self, pod: &OurPod, said: bool) {
        let now = Instant::now();
        if self.departed.len() >= self.tidy_at.max(FEW_DEPARTED) {
            self.departed.retain(|_, (at, _)| now.duration_since(*at) < REMEMBERED);
            self.tidy_at = self.departed.len() * 2;
        }
        if self.departed.len() >= MOST_DEPARTED {
            self.departed.clear();
        }
        self.departed.insert(pod.host_uid().into(), (now, Departure { said, last: pod.clone() }));
    }
}

/// The end of a pod of ours.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Whether the member itself said that it deleted this pod, which is definite. Else the pod was merely not in a
    /// list, or not where it was.
    pub said: bool,
    last: OurPod,
}

impl Departure {
    /// The pod as it was last seen.
    pub fn last(&self) -> &OurPod {
        &self.last
    }

    /// Whether its containers had ended by themselves, or as they were told to: then it has said how.
    pub fn is_over(&self) -> bool {
        self.last.json().get("status").is_some_and(|status| Phase::of(status).is_terminal())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::HostId;

    fn pod(uid: &str, host_uid: &str, version: u32) -> OurPod {
        let labels =
            json!({"federlet.io/host": "h", "federlet.io/node": "m", "federlet.io/host-uid": host_uid});
        let json = json!({"metadata": {
            "namespace": "n", "name": "db-0", "uid": uid, "labels": labels, "resourceVersion": version.to_string(),
        }});
        OurPod::read(&json, &HostId::new("h").unwrap()).unwrap()
    }

    fn slot() -> Slot {
        Slot::new("n", "db-0")
    }

    #[test]
    fn an_answer_that_comes_after_the_end_brings_nothing_back() {
        let mut pods = Pods::default();
        pods.apply(&slot(), Some(pod("a", "1", 5)), None);
        pods.deleted(&slot(), Some(pod("a", "1", 7)));
        pods.apply_answer(pod("a", "1", 6));
        assert_eq!(pods.get(&slot()), None);
        assert!(pods.departed("1").is_some_and(|departure| departure.said));
        // Nor does one about a pod that was never seen otherwise: the create is answered last.
        pods.deleted(&slot(), Some(pod("b", "2", 9)));
        pods.apply_answer(pod("b", "2", 8));
        assert_eq!(pods.get(&slot()), None);
        // The next pod of the name is another one.
        pods.apply_answer(pod("c", "3", 10));
        assert_eq!(pods.get(&slot()).unwrap().uid(), "c");
    }

    #[test]
    fn the_end_of_a_pod_is_not_that_of_the_next_one() {
        let mut pods = Pods::default();
        pods.apply(&slot(), Some(pod("a", "1", 5)), None);
        pods.apply_answer(pod("b", "2", 8));
        let applied = pods.deleted(&slot(), Some(pod("a", "1", 7)));
        assert_eq!(applied.gone.unwrap().uid(), "a");
        assert_eq!(pods.get(&slot()).unwrap().uid(), "b");
    }

    #[test]
    fn a_pod_that_the_member_does_not_find_is_gone_before_any_event() {
        let mut pods = Pods::default();
        pods.apply(&slot(), Some(pod("a", "1", 5)), None);
        assert_eq!(pods.is_gone(&slot(), "another"), None);
        assert_eq!(pods.get(&slot()).unwrap().uid(), "a");
        assert_eq!(pods.is_gone(&slot(), "a").unwrap().uid(), "a");
        pods.apply_answer(pod("a", "1", 6));
        assert_eq!(pods.get(&slot()), None);
        assert!(pods.departed("1").is_some_and(|departure| departure.said));
    }

    #[test]
    fn what_is_heard_late_of_a_pod_that_is_gone_does_not_touch_the_next_one() {
        let mut pods = Pods::default();
        pods.apply(&slot(), Some(pod("a", "1", 5)), None);
        pods.is_gone(&slot(), "a");
        pods.apply_answer(pod("b", "2", 8));
        let late = pods.apply(&slot(), Some(pod("a", "1", 6)), None);
        assert_eq!((late.changed, late.gone), (None, None));
        assert_eq!(pods.get(&slot()).unwrap().uid(), "b");
        // Should it be there after all, it is not hidden.
        pods.deleted(&slot(), Some(pod("b", "2", 9)));
        pods.apply(&slot(), Some(pod("a", "1", 10)), None);
        assert_eq!(pods.get(&slot()).unwrap().uid(), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn how_a_pod_was_last_seen_is_known_for_a_while_after_it_is_gone() {
        let mut pods = Pods::default();
        let leave = |pods: &mut Pods, host_uid: &str| {
            pods.apply(&slot(), Some(pod(host_uid, host_uid, 5)), None);
            pods.deleted(&slot(), Some(pod(host_uid, host_uid, 6)));
        };
        (0..FEW_DEPARTED).for_each(|uid| leave(&mut pods, &uid.to_string()));
        let last = pods.departed("1").unwrap();
        assert_eq!((last.said, last.is_over(), last.last().uid()), (true, false, "1"));
        tokio::time::advance(REMEMBERED).await;
        leave(&mut pods, "next");
        assert_eq!(pods.departed.len(), 1, "those of long ago are forgotten");
    }

    #[test]
    fn only_so_many_ends_are_remembered() {
        let mut ended = Ended::default();
        (0..MOST_ENDED + 10).for_each(|uid| ended.add(&uid.to_string()));
        assert_eq!((ended.uids.len(), ended.order.len()), (MOST_ENDED, MOST_ENDED));
        assert!(ended.uids.contains((MOST_ENDED + 9).to_string().as_str()) && !ended.uids.contains("0"));
    }
}
