//! Many policies, of which one is wanted at once.

use std::collections::HashMap;

use super::{Decision, Policy, decide};
use crate::{claim::Claim, object::Identity};

/// Policies by what they could select, so that the one of an object is found among thousands without looking at all.
#[derive(Clone, Debug, Default)]
pub struct Index<'a> {
    /// By kind, by API version, by namespace; no namespace for those of the whole host.
    kinds: HashMap<&'a str, HashMap<&'a str, HashMap<&'a str, Vec<Policy<'a>>>>>,
}

impl<'a> Index<'a> {
    /// Adds a policy.
    pub fn add(&mut self, policy: Policy<'a>) {
        let spec = policy.spec;
        for selector in &spec.resource_selectors {
            let versions = self.kinds.entry(&selector.kind).or_default();
            let namespaces = versions.entry(&selector.api_version).or_default();
            let policies = namespaces.entry(policy.namespace.unwrap_or_default()).or_default();
            // One policy may have many selectors of one kind.
            let same = |one: &Policy<'a>| (one.namespace, one.name) == (policy.namespace, policy.name);
            if !policies.last().is_some_and(same) {
                policies.push(policy);
            }
        }
    }

    /// Decides which policy has an object, as [`decide`] does among all of them.
    #[must_use]
    pub fn decide(&self, object: &Identity, claim: Option<&Claim>) -> Decision<'a> {
        decide(object, claim, &self.near(object))
    }

    fn near(&self, object: &Identity) -> Vec<Policy<'a>> {
        let kind = self.kinds.get(object.kind.as_str());
        let Some(namespaces) = kind.and_then(|versions| versions.get(object.api_version.as_str())) else {
            return vec![];
        };
        let of = |namespace: &str| namespaces.get(namespace).into_iter().flatten().copied();
        let own = Some(object.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        own.into_iter().flat_map(of).chain(of("")).collect()
    }
}

impl<'a> FromIterator<Policy<'a>> for Index<'a> {
    fn from_iter<I: IntoIterator<Item = Policy<'a>>>(policies: I) -> Self {
        let mut index = Self::default();
        policies.into_iter().for_each(|policy| index.add(policy));
        index
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::PropagationSpec;

    proptest! {
        /// The same answer as among all of them, whatever the object carries.
        #[test]
        fn it_finds_what_the_list_finds(
            drawn in prop::collection::vec((prop::option::of("[xy]"), "[ab]", prop::collection::vec(("[kl]", "[vw]", "[no]?"), 1..3), 0..3i32), 0..8),
            (namespace, kind, version, name) in ("[xy]?", "[kl]", "[vw]", "[no]"),
            claimed in prop::option::of((prop::option::of("[xy]"), "[ab]")),
        ) {
            let specs: Vec<PropagationSpec> = drawn
                .iter()
                .map(|(_, _, selectors, priority)| {
                    let selectors: Vec<_> = selectors
                        .iter()
                        .map(|(kind, version, name)| json!({"kind": kind, "apiVersion": version, "name": name}))
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
            let object = Identity { api_version: version, kind, namespace, name, ..Identity::default() };
            let claim = claimed.map(|(namespace, name)| Claim {
                policy: crate::claim::PolicyKey { namespace, name },
                id: String::new(),
            });
            let index: Index<'_> = policies.iter().copied().collect();
            prop_assert_eq!(index.decide(&object, claim.as_ref()), decide(&object, claim.as_ref(), &policies));
        }
    }
}
