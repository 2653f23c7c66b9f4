//! OverridePolicy and ClusterOverridePolicy: how an object differs from cluster to cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClusterAffinity, ResourceSelector};

/// Which objects differ, where, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "OverridePolicy",
    plural = "overridepolicies",
    namespaced,
    status = "OverrideStatus",
    shortname = "op",
    category = "karmada-io",
    derive = "PartialEq",
    doc = "Changes objects of its namespace on their way to some clusters."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.overrideRules) && size(self.overrideRules) > 0 && has(self.targetCluster))").message("overrideRules and targetCluster can't co-exist"),
    validation = Rule::new("!(has(self.overrideRules) && size(self.overrideRules) > 0 && has(self.overriders) && (has(self.overriders.plaintext) || has(self.overriders.imageOverrider) || has(self.overriders.commandOverrider) || has(self.overriders.argsOverrider) || has(self.overriders.labelsOverrider) || has(self.overriders.annotationsOverrider) || has(self.overriders.fieldOverrider)))").message("overrideRules and overriders can't co-exist")
)]
pub struct OverrideSpec {
    /// The objects. Empty means all in the reach of the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_selectors: Vec<ResourceSelector>,
    /// What changes in which clusters. All matching rules apply, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub override_rules: Vec<RuleWithCluster>,
    /// The former way to say where; used only without `overrideRules`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// The former way to say how; used only without `overrideRules`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overriders: Option<Overriders>,
}

/// The same words for objects of every namespace and of none.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "ClusterOverridePolicy",
    plural = "clusteroverridepolicies",
    status = "OverrideStatus",
    shortname = "cop",
    category = "karmada-io",
    derive = "PartialEq",
    doc = "Changes objects of any namespace, or of none, on their way to some clusters."
)]
#[serde(transparent)]
pub struct ClusterOverrideSpec(pub OverrideSpec);

/// What hinders a policy. Karmada's policies have no status; nobody who writes policies has to know of this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideStatus {
    /// `PathsApplicable`: `False` while the policy changes something of a workload that means nothing for its pods, with what.
    /// `RulesApplied`: `False` while a rule cannot be made on a workload in a cluster, with why; its pods wait there.
    /// Each is absent as long as nothing was wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What changes in some clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleWithCluster {
    /// The clusters. Absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// The changes.
    pub overriders: Overriders,
}

/// Changes of an object, made in the order image, command, args, labels, annotations, field, plaintext.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    /// Any change of any field, as one JSON patch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plaintext: Vec<PlaintextOverrider>,
    /// Changes of image references.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_overrider: Vec<ImageOverrider>,
    /// Changes of the command of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_overrider: Vec<CommandArgsOverrider>,
    /// Changes of the arguments of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args_overrider: Vec<CommandArgsOverrider>,
    /// Changes of the object's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels_overrider: Vec<LabelAnnotationOverrider>,
    /// Changes of the object's annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations_overrider: Vec<LabelAnnotationOverrider>,
    /// Changes inside a JSON or YAML text that a field holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub field_overrider: Vec<FieldOverrider>,
}

/// One operation of the JSON patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaintextOverrider {
    /// JSON pointer of the field.
    pub path: String,
    /// What is done.
    pub operator: PatchOperator,
    /// The value, for `add` and `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::any_value")]
    pub value: Option<Value>,
}

/// What is done with a field, a label or a part of an image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PatchOperator {
    /// Put it there.
    Add,
    /// Take it away.
    Remove,
    /// Put it in place of what is there.
    Replace,
}

/// What is done with a list of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListOperator {
    /// Append them.
    Add,
    /// Take them away.
    Remove,
}

/// A change of image references.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageOverrider {
    /// Which image. Absent means the images of all containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// The part of the reference.
    pub component: ImageComponent,
    /// What is done with the part.
    pub operator: PatchOperator,
    /// The value, for `add` and `replace`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// One image, by its place in the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePredicate {
    /// JSON pointer of the field that holds the reference.
    pub path: String,
}

/// A part of an image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ImageComponent {
    /// Host and port of the registry.
    Registry,
    /// Path in the registry.
    Repository,
    /// Tag or digest.
    Tag,
}

/// A change of a container's command or arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandArgsOverrider {
    /// Name of the container.
    pub container_name: String,
    /// What is done.
    pub operator: ListOperator,
    /// The words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value: Vec<String>,
}

/// A change of labels or annotations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelAnnotationOverrider {
    /// What is done. `replace` and `remove` touch only keys that are there.
    pub operator: PatchOperator,
    /// Keys and values. Values do not matter for `remove`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub value: BTreeMap<String, String>,
}

/// A change inside a text that a field holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldOverrider {
    /// JSON pointer of the field.
    pub field_path: String,
    /// Operations when the text is JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json: Vec<FieldPatch>,
    /// Operations when the text is YAML.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yaml: Vec<FieldPatch>,
}

/// One operation inside the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldPatch {
    /// JSON pointer inside the text.
    pub sub_path: String,
    /// What is done.
    pub operator: PatchOperator,
    /// The value, for `add` and `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::any_value")]
    pub value: Option<Value>,
}
