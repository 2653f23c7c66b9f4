//! Many policies, of which one is wanted at once.

use std::collections::HashMap;

use super::{Decision, Policy, decide};
use crate::{api::ResourceSelector, claim::Claim, object::Identity};

/// Policies by what they could select, so that the one of an object is found among thousands without looking at all.
pub type Index<'a> = Lookup<Policy<'a>>;

/// The same, of whatever stands for a policy.
#[derive(Clone, Debug)]
pub struct Lookup<T> {
    /// By kind, by API version, by namespace; no namespace for those of the whole host.
    kinds: HashMap<String, HashMap<String, HashMap<String, Selecting<T>>>>,
}

/// Policies that select objects of one kind in one namespace, or in all.
#[derive(Clone, Debug)]
struct Selecting<T> {
    by_name: HashMap<String, Vec<T>>,
    /// By one of the labels that an object must have, and its value.
    by_label: HashMap<String, HashMap<String, Vec<T>>>,
    otherwise: Vec<T>,
}

impl<T> Selecting<T> {
    /// The list that holds policies with such a selector.
    fn list(&mut self, selector: &ResourceSelector) -> &mut Vec<T> {
        if !selector.name.is_empty() {
            return self.by_name.entry(selector.name.clone()).or_default();
        }
        let labels = selector.label_selector.as_ref().and_then(|labels| labels.match_labels.as_ref());
        // A label that few ask for tells most.
        let asked = |(key, value): &(&String, &String)| {
            self.by_label.get(*key).and_then(|values| values.get(*value)).map_or(0, Vec::len)
        };
        match labels.into_iter().flatten().min_by_key(asked) {
            Some((key, value)) => {
                self.by_label.entry(key.clone()).or_default().entry(value.clone()).or_default()
            }
            None => &mut self.otherwise,
        }
    }

    /// What may select an object.
    fn near<'s>(&'s self, object: &'s Identity) -> impl Iterator<Item = &'s T> {
        let labelled = object.labels.iter().filter_map(|(key, value)| self.by_label.get(key)?.get(value));
        self.by_name.get(&object.name).into_iter().chain(labelled).flatten().chain(&self.otherwise)
    }
}

impl<T> Default for Lookup<T> {
    fn default() -> Self {
        Self { kinds: HashMap::new() }
    }
}

impl<T> Default for Selecting<T> {
    fn default() -> Self {
        Self { by_name: HashMap::new(), by_label: HashMap::new(), otherwise: vec![] }
    }
}

impl<T: Copy + PartialEq> Lookup<T> {
    /// Adds a policy, for which `standing` stands.
    pub fn add(&mut self, policy: &Policy<'_>, standing: T) {
        for selector in &policy.spec.resource_selectors {
            let versions = self.kinds.entry(selector.kind.clone()).or_default();
            let namespaces = versions.entry(selector.api_version.clone()).or_default();
            let own = policy.namespace.unwrap_or_default();
            let list = namespaces.entry(own.to_owned()).or_default().list(selector);
            // One policy may have many selectors of one kind.
            if list.last() != Some(&standing) {
                list.push(standing);
            }
        }
    }

    /// All policies that may select an object. One may be among them twice.
    pub fn near<'s>(&'s self, object: &'s Identity) -> impl Iterator<Item = T> + 's {
        let versions = self.kinds.get(&object.kind);
        let namespaces = versions.and_then(|versions| versions.get(&object.api_version));
        let own = Some(object.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let within = own.into_iter().chain([""]).filter_map(move |namespace| namespaces?.get(namespace));
        within.flat_map(|selecting| selecting.near(object)).copied()
    }
}

impl<'a> Index<'a> {
    /// Decides which policy has an object, as [`decide`] does among all of them.
    #[must_use]
    pub fn decide(&self, object: &Identity, claim: Option<&Claim>) -> Decision<'a> {
        decide(object, claim, &self.near(object).collect::<Vec<_>>())
    }
}

impl<'a> FromIterator<Policy<'a>> for Index<'a> {
    fn from_iter<I: IntoIterator<Item = Policy<'a>>>(policies: I) -> Self {
        let mut index = Self::default();
        policies.into_iter().for_each(|policy| index.add(&policy, policy));
        index
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::PropagationSpec;

    fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[st]", "[12]", 0..3)
    }

    proptest! {
        /// The same answer as among all of them, whatever the object carries.
        #[test]
        fn it_finds_what_the_list_finds(
            drawn in prop::collection::vec((prop::option::of("[xy]"), "[ab]", prop::collection::vec(("[kl]", "[vw]", "[no]?", labels()), 1..3), 0..3i32), 0..8),
            (namespace, kind, version, name) in ("[xy]?", "[kl]", "[vw]", "[no]"),
            carried in labels(),
            claimed in prop::option::of((prop::option::of("[xy]"), "[ab]")),
        ) {
            let specs: Vec<PropagationSpec> = drawn
                .iter()
                .map(|(_, _, selectors, priority)| {
                    let selectors: Vec<_> = selectors
                        .iter()
                        .map(|(kind, version, name, labels)| {
                            let labels = (!labels.is_empty()).then(|| json!({"matchLabels": labels}));
                            json!({"kind": kind, "apiVersion": version, "name": name, "labelSelector": labels})
                        })
                        .collect();
                    serde_json::from_value(json!({"resourceSelectors": selectors, "priority": priority})).unwrap()
                })
                .collect();
            let mut policies: Vec<Policy<'_>> = drawn
                .iter()
                .zip(&specs)
                .map(|((namespace, name, ..), spec)| Policy { namespace: namespace.as_deref(), name, id: None, deleting: false, spec })
                .collect();
            // A name is there once.
            policies.sort_by_key(|policy| (policy.namespace, policy.name));
            policies.dedup_by_key(|policy| (policy.namespace, policy.name));
            let object = Identity { api_version: version, kind, namespace, name, labels: carried, ..Identity::default() };
            let claim = claimed.map(|(namespace, name)| Claim {
                policy: crate::claim::PolicyKey { namespace, name },
                id: String::new(),
            });
            let index: Index<'_> = policies.iter().copied().collect();
            prop_assert_eq!(index.decide(&object, claim.as_ref()), decide(&object, claim.as_ref(), &policies));
        }
    }
}
