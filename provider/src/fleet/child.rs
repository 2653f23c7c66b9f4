use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use federlet_node::contract::{Phase, PodId, PodKey};
use serde_json::Value;

use super::copy::{NODE_LABEL, reduced};
use crate::{
    json::{items, text},
    marks,
};

/// A copy that is there, as far as a decision about it needs.
///
/// Kept as text: parsed JSON takes several times the room, and most copies are looked at a few times in their life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    /// The pod that it is a copy of.
    pub(super) parent: PodId,
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) cluster: Box<str>,
    pub(super) phase: Phase,
    /// The grace with which it is being deleted.
    pub(super) ending: Option<u64>,
    version: u64,
    json: Arc<[u8]>,
}

impl Child {
    /// Reads a pod of the host. None if it is no copy.
    pub(super) fn read(pod: &Value) -> Option<Self> {
        let metadata = pod.get("metadata")?;
        // Whoever copies the labels of a pod makes no copy of it.
        let owned = |owner: &Value| text(owner, "kind") == Some("ResourceBinding");
        items(metadata.get("ownerReferences")).find(|owner| owned(owner))?;
        let parent = marks::annotation(pod, marks::MEMBER_NAME)?;
        let key = PodKey::new(text(metadata, "namespace")?, parent);
        let deleted = metadata.get("deletionTimestamp").is_some_and(|at| !at.is_null());
        let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(0);
        Some(Self {
            parent: PodId::new(key, marks::label(pod, marks::COPY_OF)?),
            name: text(metadata, "name")?.into(),
            uid: text(metadata, "uid")?.into(),
            cluster: pod.pointer("/spec/nodeSelector")?.get(NODE_LABEL)?.as_str()?.into(),
            phase: Phase::of(&pod["status"]),
            ending: deleted.then_some(grace),
            version: text(metadata, "resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0),
            json: serde_json::to_vec(&reduced(pod)).ok()?.into(),
        })
    }

    /// What is known of it, as JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    fn key(&self) -> PodKey {
        PodKey::new(self.parent.key().namespace(), &*self.name)
    }
}

/// So many that are gone are remembered. An answer comes moments after the event that it is late for.
const REMEMBERED: usize = 4096;

/// All copies, by the pod that they are copies of.
#[derive(Debug, Default)]
pub(super) struct Children {
    by_parent: HashMap<PodKey, BTreeMap<Box<str>, Child>>,
    parents: HashMap<PodKey, PodKey>,
    /// UIDs of those that were said to be gone: the answer to a write must not bring them back.
    gone: VecDeque<Box<str>>,
}

/// What news about a copy means for its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It has to say something else.
    Status(PodKey),
    /// And something may have to be done about its copies.
    Copies(PodKey),
}

impl Children {
    /// Every copy of a pod of this name, whichever its UID, by the name of the copy.
    pub(super) fn named(&self, parent: &PodKey) -> Vec<Child> {
        self.by_parent.get(parent).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The copies of exactly this pod.
    pub(super) fn of(&self, parent: &PodId) -> Vec<Child> {
        let mut all = self.named(parent.key());
        all.retain(|child| child.parent == *parent);
        all
    }

    /// Whose copies there are.
    pub(super) fn parents(&self) -> Vec<PodKey> {
        self.by_parent.keys().cloned().collect()
    }

    /// The pod that a pod of this name is a copy of.
    pub(super) fn parent(&self, namespace: &str, name: &str) -> Option<Child> {
        let key = PodKey::new(namespace, name);
        self.by_parent.get(self.parents.get(&key)?)?.get(name).cloned()
    }

    /// The clusters that have copies.
    pub(super) fn clusters(&self) -> HashSet<String> {
        self.by_parent.values().flat_map(BTreeMap::values).map(|child| child.cluster.to_string()).collect()
    }

    /// Takes what a watch or the answer to a write says. What is older than what is known is no news.
    pub(super) fn apply(&mut self, child: Child) -> Option<News> {
        if self.gone.contains(&child.uid) {
            return None;
        }
        let key = child.key();
        let parent = child.parent.key().clone();
        let before = self.parents.get(&key).and_then(|of| self.by_parent.get(of)?.get(&child.name)).cloned();
        if let Some(before) = &before {
            if before.uid == child.uid && before.version > child.version {
                return None;
            }
            let same = Child { version: child.version, ..before.clone() } == child;
            if same {
                self.keep(key, child);
                return None;
            }
            if before.parent.key() != &parent {
                self.remove(&key, None);
            }
        }
        let other = before.as_ref().is_none_or(|before| {
            before.uid != child.uid || (before.phase != child.phase && child.phase.is_terminal())
        });
        self.keep(key, child);
        Some(if other { News::Copies(parent) } else { News::Status(parent) })
    }

    fn keep(&mut self, key: PodKey, child: Child) {
        let parent = child.parent.key().clone();
        self.by_parent.entry(parent.clone()).or_default().insert(child.name.clone(), child);
        self.parents.insert(key, parent);
    }

    /// The host says that a copy is gone.
    pub(super) fn end(&mut self, key: &PodKey, uid: &str) -> Option<News> {
        if self.gone.len() >= REMEMBERED {
            self.gone.pop_front();
        }
        self.gone.push_back(uid.into());
        self.remove(key, Some(uid))
    }

    /// Forgets a copy; with a UID, only that one.
    fn remove(&mut self, key: &PodKey, uid: Option<&str>) -> Option<News> {
        let parent = self.parents.get(key)?.clone();
        let siblings = self.by_parent.get_mut(&parent)?;
        if siblings.get(key.name()).is_some_and(|there| uid.is_some_and(|uid| uid != &*there.uid)) {
            return None;
        }
        siblings.remove(key.name());
        if siblings.is_empty() {
            self.by_parent.remove(&parent);
        }
        self.parents.remove(key);
        Some(News::Copies(parent))
    }

    /// What a complete list does not name is gone, whether or not anybody said so.
    pub(super) fn keep_only(&mut self, listed: &HashSet<PodKey>) {
        let gone: Vec<PodKey> = self.parents.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        for key in gone {
            self.remove(&key, None);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A copy of pod `shop/web` with UID `p1`.
    pub(in super::super) fn child(cluster: &str, uid: &str, extra: Value) -> Value {
        let mut pod = json!({
            "metadata": {
                "namespace": "shop", "name": format!("web-{cluster}"), "uid": uid, "resourceVersion": "5",
                "labels": {"federlet.io/copy-of": "p1"}, "annotations": {"federlet.io/member-name": "web"},
                "ownerReferences": [{"kind": "ResourceBinding", "name": "web-deployment", "uid": "b1"}],
            },
            "spec": {"nodeSelector": {"kubernetes.io/hostname": cluster}},
            "status": {"phase": "Running"},
        });
        if let (Value::Object(pod), Value::Object(extra)) = (&mut pod, extra) {
            pod.extend(extra);
        }
        pod
    }

    #[test]
    fn copies_are_found_by_their_pod_until_they_are_gone() {
        let mut children = Children::default();
        let parent = PodKey::new("shop", "web");
        for cluster in ["b", "a"] {
            let one = Child::read(&child(cluster, cluster, json!({}))).unwrap();
            assert_eq!(children.apply(one.clone()), Some(News::Copies(parent.clone())));
            assert_eq!(children.apply(one), None, "no news");
        }
        let clusters: Vec<_> = children.named(&parent).into_iter().map(|child| child.cluster).collect();
        assert_eq!(clusters, ["a".into(), "b".into()]);
        assert_eq!(children.of(&PodId::new(parent.clone(), "p0")), []);
        assert_eq!(children.parent("shop", "web-a").unwrap().parent.uid(), "p1");
        assert_eq!(children.end(&PodKey::new("shop", "web-a"), "other"), None);
        assert_eq!(children.end(&PodKey::new("shop", "web-a"), "a"), Some(News::Copies(parent)));
        // The answer to our own delete may come after the event.
        children.apply(Child::read(&child("a", "a", json!({}))).unwrap());
        assert_eq!(children.parent("shop", "web-a"), None);
        children.keep_only(&HashSet::new());
        assert_eq!(children.parents(), []);
        // A list may be older than what was just made; then the watch tells of it again.
        children.apply(Child::read(&child("b", "b", json!({}))).unwrap());
        assert_eq!(children.parents().len(), 1);
    }

    #[test]
    fn what_is_older_is_no_news_and_a_status_is_not_much() {
        let mut children = Children::default();
        let at = |version: &str, phase: &str| {
            let mut pod = child("a", "1", json!({"status": {"phase": phase}}));
            pod["metadata"]["resourceVersion"] = version.into();
            Child::read(&pod).unwrap()
        };
        let parent = PodKey::new("shop", "web");
        children.apply(at("5", "Pending"));
        assert_eq!(children.apply(at("4", "Running")), None);
        assert_eq!(children.apply(at("6", "Running")), Some(News::Status(parent.clone())));
        assert_eq!(children.apply(at("7", "Failed")), Some(News::Copies(parent)));
    }

    #[test]
    fn other_pods_are_no_copies() {
        assert_eq!(Child::read(&json!({"metadata": {"namespace": "n", "name": "p", "uid": "u"}})), None);
        let mut unnamed = child("a", "1", json!({}));
        unnamed["metadata"]["annotations"] = json!({});
        assert_eq!(Child::read(&unnamed), None);
        let mut alike = child("a", "1", json!({}));
        alike["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet".into();
        assert_eq!(Child::read(&alike), None);
    }
}
