use std::collections::{HashMap, HashSet};

/// Namespace and name on the host. What has no namespace has an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl Name {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// What is kept of the objects of one kind, by namespace and name.
#[derive(Debug)]
pub(super) struct Shelf<V> {
    by_namespace: HashMap<Box<str>, HashMap<Box<str>, V>>,
    listed: bool,
}

impl<V> Default for Shelf<V> {
    fn default() -> Self {
        Self { by_namespace: HashMap::new(), listed: false }
    }
}

impl<V> Shelf<V> {
    /// Puts something in its place, or takes away what is there. What was there before.
    pub(super) fn put(&mut self, name: &Name, value: Option<V>) -> Option<V> {
        if let Some(value) = value {
            return self
                .by_namespace
                .entry(name.namespace.clone())
                .or_default()
                .insert(name.name.clone(), value);
        }
        let things = self.by_namespace.get_mut(&name.namespace)?;
        let gone = things.remove(&name.name);
        if things.is_empty() {
            self.by_namespace.remove(&name.namespace);
        }
        gone
    }

    /// All were seen: what is not among these is gone.
    pub(super) fn keep_only(&mut self, listed: &HashSet<Name>) {
        for (namespace, things) in &mut self.by_namespace {
            things.retain(|name, _| {
                listed.contains(&Name { namespace: namespace.clone(), name: name.clone() })
            });
        }
        self.by_namespace.retain(|_, things| !things.is_empty());
        self.listed = true;
    }

    /// Whether all were seen once.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    pub(super) fn get(&self, name: &Name) -> Option<&V> {
        self.by_namespace.get(&name.namespace)?.get(&name.name)
    }

    /// Those of one namespace, by name.
    pub(super) fn within(&self, namespace: &str) -> impl Iterator<Item = (&str, &V)> {
        self.by_namespace.get(namespace).into_iter().flatten().map(|(name, value)| (&**name, value))
    }

    /// All.
    pub(super) fn all(&self) -> impl Iterator<Item = (Name, &V)> {
        self.by_namespace.iter().flat_map(|(namespace, things)| {
            things
                .iter()
                .map(move |(name, value)| (Name { namespace: namespace.clone(), name: name.clone() }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_complete_list_does_not_name_is_gone() {
        let mut shelf = Shelf::default();
        let (a, b) = (Name::new("shop", "a"), Name::new("bank", "a"));
        assert_eq!(
            (shelf.put(&a, Some(1)), shelf.put(&a, Some(2)), shelf.put(&b, Some(3))),
            (None, Some(1), None)
        );
        assert!(!shelf.is_listed());
        shelf.keep_only(&HashSet::from([a.clone()]));
        assert!(shelf.is_listed());
        assert_eq!((shelf.get(&a), shelf.get(&b)), (Some(&2), None));
        assert_eq!(shelf.within("shop").collect::<Vec<_>>(), [("a", &2)]);
        assert_eq!((shelf.put(&a, None), shelf.put(&a, None), shelf.all().count()), (Some(2), None, 0));
    }
}
