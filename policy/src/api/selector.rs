//! Which objects a policy is about.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selects objects of one kind: all of them, those with some labels, or the one with a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// API version of the objects, such as `apps/v1`. Compared exactly.
    pub api_version: String,
    /// Kind of the objects, such as `Deployment`. Compared exactly.
    pub kind: String,
    /// Namespace of the objects. Empty means any; a namespaced policy reaches no further than its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the one object. Empty means any. When set, the label selector is not looked at.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Labels the objects must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}
