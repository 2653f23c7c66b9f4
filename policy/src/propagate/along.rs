//! What goes along with what. No I/O.

use std::collections::{BTreeSet, HashMap};

use super::wanted::RequiredBy;
use crate::{api::BindingSnapshot, inventory::Key};

/// Who needs what, and where.
#[derive(Debug, Default)]
pub(super) struct Along {
    sources: HashMap<Key, (BindingSnapshot, BTreeSet<Key>)>,
    needed: HashMap<Key, RequiredBy>,
}

impl Along {
    /// An object needs these where it is; none if nothing goes along with it. What must be looked at again.
    pub(super) fn set(
        &mut self,
        source: &Key,
        needs: Option<(BindingSnapshot, BTreeSet<Key>)>,
    ) -> BTreeSet<Key> {
        let before = self.sources.get(source);
        if before == needs.as_ref() {
            return BTreeSet::new();
        }
        let mut changed: BTreeSet<Key> =
            before.into_iter().flat_map(|(_, targets)| targets).cloned().collect();
        for target in &changed {
            if let Some(all) = self.needed.get_mut(target) {
                all.remove(source);
                if all.is_empty() {
                    self.needed.remove(target);
                }
            }
        }
        match needs {
            None => drop(self.sources.remove(source)),
            Some((binding, targets)) => {
                for target in &targets {
                    self.needed.entry(target.clone()).or_default().insert(source.clone(), binding.clone());
                }
                changed.extend(targets.iter().cloned());
                self.sources.insert(source.clone(), (binding, targets));
            }
        }
        changed
    }

    /// Who needs an object.
    pub(super) fn of(&self, target: &Key) -> RequiredBy {
        self.needed.get(target).cloned().unwrap_or_default()
    }

    /// What each source needs.
    pub(super) fn needs(&self) -> impl Iterator<Item = (&Key, &BTreeSet<Key>)> {
        self.sources.iter().map(|(source, (_, needs))| (source, needs))
    }

    /// All that something goes along with.
    pub(super) fn sources(&self) -> Vec<Key> {
        self.sources.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { name: name.into(), ..Key::default() }
    }

    fn needs(binding: &str, targets: &[&str]) -> Option<(BindingSnapshot, BTreeSet<Key>)> {
        let snapshot = BindingSnapshot { name: binding.into(), ..BindingSnapshot::default() };
        Some((snapshot, targets.iter().map(|name| key(name)).collect()))
    }

    fn names(keys: BTreeSet<Key>) -> String {
        keys.into_iter().map(|key| key.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_what_changed_is_looked_at() {
        let mut along = Along::default();
        assert_eq!(names(along.set(&key("web"), needs("web", &["a", "b"]))), "a b");
        assert_eq!(names(along.set(&key("web"), needs("web", &["a", "b"]))), "");
        assert_eq!(names(along.set(&key("db"), needs("db", &["b"]))), "b");
        assert_eq!(along.of(&key("b")).len(), 2);
        assert_eq!(names(along.set(&key("web"), needs("web", &["a"]))), "a b");
        assert_eq!(along.of(&key("b")).into_keys().map(|key| key.name).collect::<Vec<_>>(), ["db"]);
        assert_eq!(names(along.set(&key("web"), None)), "a");
        assert!(along.of(&key("a")).is_empty());
        assert_eq!(along.sources(), [key("db")]);
    }
}
