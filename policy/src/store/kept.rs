//! Objects of one kind, as a watch tells of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{ResourceExt, core::DynamicObject, runtime::watcher::Event};

/// Objects by namespace and name.
pub(super) struct Kept<V> {
    pub(super) objects: BTreeMap<(String, String), Arc<V>>,
    /// Whether a list was seen in full.
    pub(super) listed: bool,
    relisted: BTreeSet<(String, String)>,
}

impl<V> Default for Kept<V> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: false, relisted: BTreeSet::new() }
    }
}

impl<V: PartialEq> Kept<V> {
    /// Whether anything is other than before. An object that cannot be read is as one that is not there.
    pub(super) fn take(
        &mut self,
        event: Event<DynamicObject>,
        decode: impl Fn(&DynamicObject) -> Option<V>,
    ) -> bool {
        match event {
            Event::Init => {
                self.relisted.clear();
                false
            }
            Event::InitApply(object) => {
                self.relisted.insert(key(&object));
                self.apply(&object, decode(&object)) && self.listed
            }
            Event::InitDone => {
                let relisted = std::mem::take(&mut self.relisted);
                let before = self.objects.len();
                self.objects.retain(|key, _| relisted.contains(key));
                let first = !std::mem::replace(&mut self.listed, true);
                first || self.objects.len() != before
            }
            Event::Apply(object) => self.apply(&object, decode(&object)),
            Event::Delete(object) => self.objects.remove(&key(&object)).is_some(),
        }
    }

    fn apply(&mut self, object: &DynamicObject, read: Option<V>) -> bool {
        let key = key(object);
        let Some(read) = read else { return self.objects.remove(&key).is_some() };
        if self.objects.get(&key).is_some_and(|before| **before == read) {
            return false;
        }
        self.objects.insert(key, Arc::new(read));
        true
    }
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, good: bool) -> DynamicObject {
        serde_json::from_value(
            json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": name}, "good": good}),
        )
        .unwrap()
    }

    fn decode(object: &DynamicObject) -> Option<String> {
        object.data["good"].as_bool().unwrap().then(|| object.name_any())
    }

    #[test]
    fn one_that_cannot_be_read_is_not_there_and_disturbs_no_other() {
        let mut kept = Kept::default();
        assert!(!kept.take(Event::Init, decode));
        for (name, good) in [("a", true), ("b", false), ("c", true)] {
            kept.take(Event::InitApply(object(name, good)), decode);
        }
        assert!(kept.take(Event::InitDone, decode));
        assert_eq!(kept.objects.len(), 2);
        assert!(!kept.take(Event::Apply(object("a", true)), decode), "nothing changed");
        assert!(kept.take(Event::Apply(object("a", false)), decode));
        assert!(kept.take(Event::Apply(object("b", true)), decode));
        // What a new list does not name is gone.
        kept.take(Event::Init, decode);
        kept.take(Event::InitApply(object("b", true)), decode);
        assert!(kept.take(Event::InitDone, decode));
        assert_eq!(kept.objects.keys().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["b"]);
    }
}
