//! How an object differs from cluster to cluster.

mod field;
pub mod image;
mod lists;
mod meta;
mod patch;
pub mod project;
mod replicas;

use serde_json::Value;

pub use self::replicas::{PATH as REPLICAS, replicas};
use crate::{
    affinity,
    api::{Cluster, ClusterAffinity, ClusterOverridePolicy, OverridePolicy, OverrideSpec, Overriders},
    matching::{Precision, best_precision},
    object::Identity,
};

/// An override policy of either kind, looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy<'a> {
    /// Namespace; `None` for a ClusterOverridePolicy.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
    /// What it says.
    pub spec: &'a OverrideSpec,
}

impl<'a> From<&'a OverridePolicy> for Policy<'a> {
    fn from(policy: &'a OverridePolicy) -> Self {
        Self {
            namespace: Some(policy.metadata.namespace.as_deref().unwrap_or_default()),
            name: policy.metadata.name.as_deref().unwrap_or_default(),
            spec: &policy.spec,
        }
    }
}

impl<'a> From<&'a ClusterOverridePolicy> for Policy<'a> {
    fn from(policy: &'a ClusterOverridePolicy) -> Self {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        Self { namespace: None, name, spec: &policy.spec.0 }
    }
}

impl<'a> Policy<'a> {
    /// How closely the policy names an object, if it is about it. Without selectors it is about all in its reach.
    #[must_use]
    pub fn precision(&self, object: &Identity) -> Option<Precision> {
        let in_reach = self.namespace.is_none_or(|namespace| namespace == object.namespace);
        match (in_reach, self.spec.resource_selectors.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Precision::Kind),
            (true, false) => best_precision(&self.spec.resource_selectors, object),
        }
    }

    /// The rules, in the order they apply: the list, or the one rule of the former fields.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&'a ClusterAffinity>, &'a Overriders)> {
        let spec = self.spec;
        let former = spec.overriders.as_ref().filter(|_| spec.override_rules.is_empty());
        let listed = spec.override_rules.iter().map(|rule| (rule.target_cluster.as_ref(), &rule.overriders));
        listed.chain(former.map(|overriders| (spec.target_cluster.as_ref(), overriders)))
    }

    /// Makes the rules that are about a cluster. Says whether there is one.
    fn apply(&self, object: &mut Value, cluster: &Cluster) -> Result<bool, Failure> {
        let mut touched = false;
        for (rule, (target, overriders)) in self.rules().enumerate() {
            if affinity::includes(target, cluster) {
                touched = true;
                apply(object, overriders).map_err(|source| Failure { policy: self.key(), rule, source })?;
            }
        }
        Ok(touched)
    }

    /// As `namespace/name`, or `name` if it is of the whole host.
    #[must_use]
    pub fn key(&self) -> String {
        self.namespace.map_or(self.name.to_owned(), |namespace| format!("{namespace}/{}", self.name))
    }
}

/// Why an override could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    /// A path is not a JSON pointer.
    #[error("{path:?} is not a JSON pointer")]
    Pointer {
        /// The path.
        path: String,
        /// Why not.
        #[source]
        source: json_patch::jsonptr::ParseError,
    },
    /// The operation needs a value and has none.
    #[error("value is required for add or replace operation on {0}")]
    NoValue(String),
    /// The patch does not apply.
    #[error("the patch does not apply")]
    Patch(#[from] json_patch::PatchError),
    /// There is no text at the path.
    #[error("there is no text at {0}")]
    NoText(String),
    /// The text at the path is not what it should be.
    #[error("the text at {path} is not {format}: {message}")]
    Text {
        /// The path.
        path: String,
        /// JSON or YAML.
        format: &'static str,
        /// Why not.
        message: String,
    },
    /// An image reference is not one, before or after.
    #[error(transparent)]
    Image(#[from] image::ImageError),
}

/// An override that failed: the object is not sent to this cluster, others are not affected.
#[derive(Debug, thiserror::Error)]
#[error("rule {rule} of override policy {policy} failed")]
pub struct Failure {
    /// The policy, as `namespace/name` or `name`.
    pub policy: String,
    /// Index of the rule.
    pub rule: usize,
    /// Why.
    #[source]
    pub source: OverrideError,
}

/// An object as one cluster gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The object.
    pub object: Value,
    /// Names of the OverridePolicies that changed it, sorted.
    pub applied: Vec<String>,
    /// Names of the ClusterOverridePolicies that changed it, sorted.
    pub applied_cluster: Vec<String>,
}

/// The policies that are about an object, in the order they apply: those of the whole host, then those of the
/// namespace; the closer a policy names the object the later, so that it wins; then by name.
#[must_use]
pub fn applicable<'a>(object: &Identity, policies: impl IntoIterator<Item = Policy<'a>>) -> Vec<Policy<'a>> {
    let about = policies.into_iter().filter_map(|policy| Some((policy.precision(object)?, policy)));
    let mut about: Vec<_> = about.collect();
    about.sort_by_key(|(precision, policy)| (policy.namespace.is_some(), *precision, policy.name));
    about.into_iter().map(|(_, policy)| policy).collect()
}

/// Renders an object for one cluster.
pub fn render<'a>(
    object: &Value,
    cluster: &Cluster,
    policies: impl IntoIterator<Item = Policy<'a>>,
) -> Result<Rendered, Failure> {
    let mut rendered = Rendered { object: object.clone(), applied: vec![], applied_cluster: vec![] };
    for policy in applicable(&Identity::of(object), policies) {
        if policy.apply(&mut rendered.object, cluster)? {
            let list = if policy.namespace.is_some() {
                &mut rendered.applied
            } else {
                &mut rendered.applied_cluster
            };
            list.push(policy.name.to_owned());
        }
    }
    rendered.applied.sort();
    rendered.applied_cluster.sort();
    Ok(rendered)
}

/// What each policy does to a workload in a cluster: the paths that it changes outside of the pods, or why it fails. What
/// comes after one that fails is not made.
#[must_use]
pub fn effects<'a>(
    workload: &Value,
    cluster: &Cluster,
    policies: impl IntoIterator<Item = Policy<'a>>,
) -> Vec<(Policy<'a>, Result<Vec<String>, Failure>)> {
    let mut effects = vec![];
    let mut before = workload.clone();
    for policy in applicable(&Identity::of(workload), policies) {
        let mut after = before.clone();
        let outside = policy.apply(&mut after, cluster).map(|_| {
            project::Projection::between(&before, &after)
                .map(|change| change.not_applicable)
                .unwrap_or_default()
        });
        let failed = outside.is_err();
        effects.push((policy, outside));
        if failed {
            break;
        }
        before = after;
    }
    effects
}

/// Makes the changes of one rule, in their fixed order.
pub fn apply(object: &mut Value, overriders: &Overriders) -> Result<(), OverrideError> {
    for change in &overriders.image_overrider {
        image::apply(object, change)?;
    }
    for change in &overriders.command_overrider {
        lists::apply(object, "command", change);
    }
    for change in &overriders.args_overrider {
        lists::apply(object, "args", change);
    }
    for change in &overriders.labels_overrider {
        meta::apply(object, "labels", change);
    }
    for change in &overriders.annotations_overrider {
        meta::apply(object, "annotations", change);
    }
    for change in &overriders.field_overrider {
        field::apply(object, change)?;
    }
    patch::apply(object, &overriders.plaintext)
}

#[cfg(test)]
mod tests;
