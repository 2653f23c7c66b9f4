//! The status of a Cluster, from what is known of its member.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;

use super::conditions::{REACHABLE, READY, Say};
use crate::{
    api::{ApiEnablement, ApiResourceEnablement, Cluster, ClusterStatus, NodeSummary, ResourceSummary},
    capacity::Resources,
    cluster::{MemberReport, Summary},
};

/// What there is to say about a member.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) ready: Say,
    pub(super) reachable: Say,
    pub(super) report: MemberReport,
    /// The APIs it serves, if they were asked for.
    pub(super) enablements: Option<Vec<ApiEnablement>>,
}

impl Told {
    /// The whole status. What is not known now stays as it was.
    pub(super) fn status(&self, cluster: &Cluster, now: Timestamp) -> ClusterStatus {
        let mut status = cluster.status.clone().unwrap_or_default();
        let generation = cluster.metadata.generation;
        let condition = |say: &Say, kind| say.condition(kind, &status.conditions, generation, now);
        let conditions = vec![condition(&self.ready, READY), condition(&self.reachable, REACHABLE)];
        status.conditions = conditions;
        if !self.report.version.is_empty() {
            status.kubernetes_version.clone_from(&self.report.version);
        }
        if let Some(enablements) = &self.enablements {
            status.api_enablements.clone_from(enablements);
        }
        if let Some(Summary { nodes, allocatable, allocated, largest }) = &self.report.summary {
            let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
            status.node_summary =
                Some(NodeSummary { total_num: count(nodes.total), ready_num: count(nodes.ready) });
            let before = status.resource_summary.take().unwrap_or_default();
            status.resource_summary = Some(ResourceSummary {
                allocatable: amounts(allocatable),
                allocated: amounts(allocated),
                largest_free: amounts(largest),
                ..before
            });
        }
        status
    }
}

fn amounts(resources: &Resources) -> BTreeMap<String, Quantity> {
    resources.iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_string()))).collect()
}

/// Whether two statuses differ in something that people wait for; how much room there is changes all the time.
pub(super) fn differ_in_more_than_room(a: &ClusterStatus, b: &ClusterStatus) -> bool {
    let without = |status: &ClusterStatus| ClusterStatus { resource_summary: None, ..status.clone() };
    without(a) != without(b)
}

/// The APIs that a member serves, in order.
pub(super) async fn enablements(member: &Client) -> Result<Vec<ApiEnablement>, kube::Error> {
    let (core, groups) =
        tokio::try_join!(member.list_core_api_versions_aggregated(), member.list_api_groups_aggregated())?;
    let mut found = vec![];
    for group in core.items.iter().chain(&groups.items) {
        let name = group.metadata.as_ref().and_then(|meta| meta.name.clone()).unwrap_or_default();
        for version in &group.versions {
            let version_name = version.version.clone().unwrap_or_default();
            let resources = version.resources.iter().map(|resource| ApiResourceEnablement {
                name: resource.resource.clone().unwrap_or_default(),
                kind: resource.response_kind.as_ref().and_then(|kind| kind.kind.clone()).unwrap_or_default(),
            });
            let mut resources: Vec<_> = resources.collect();
            resources.sort_by(|a, b| a.name.cmp(&b.name));
            let group_version = if name.is_empty() { version_name } else { format!("{name}/{version_name}") };
            found.push(ApiEnablement { group_version, resources });
        }
    }
    found.sort_by(|a, b| a.group_version.cmp(&b.group_version));
    Ok(found)
}
