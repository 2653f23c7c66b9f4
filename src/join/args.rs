use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use federlet_provider::{
    api::{ClusterSpec, FederletSpec, MappingKind, NamespaceMapping, OfflineMode},
    names::MemberName,
    rights::MoreObjects,
};
use k8s_openapi::api::core::v1::Taint;

use crate::{
    host::HostArgs,
    work::{parse_duration, parse_taint},
};

/// The flags of `federlet join`.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The name of the Cluster and of its node.
    pub(crate) name: MemberName,

    #[command(flatten)]
    pub(crate) host: HostArgs,

    #[command(flatten)]
    pub(crate) member: MemberArgs,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) region: RegionArgs,

    /// Kinds of objects that policies may bring there beside harmless ones, separated by commas [default: what was
    /// allowed before].
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    pub(crate) allow_objects: Option<Vec<AllowedObjects>>,

    /// How long to wait until the node is Ready; 0 to return at once.
    #[arg(long, default_value = "2m", value_parser = parse_duration, value_name = "DURATION")]
    pub(crate) wait: Duration,
}

/// The member, as the person who joins it reaches it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Member")]
pub(crate) struct MemberArgs {
    /// A kubeconfig with which an account can be made in the member. It is used once and not kept.
    #[arg(long, value_name = "FILE")]
    pub(crate) cluster_kubeconfig: PathBuf,

    /// The context in it [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_context: Option<String>,

    /// Where the host reaches the member's API server [default: where the kubeconfig does].
    #[arg(long, value_name = "URL")]
    pub(crate) cluster_endpoint: Option<String>,

    /// The proxy between the host and the member: http://, https:// or socks5://.
    #[arg(long, value_name = "URL")]
    pub(crate) proxy_url: Option<String>,
}

/// What is known of the member.
#[derive(Debug, Args)]
#[command(next_help_heading = "Node")]
pub(crate) struct PlaceArgs {
    /// Labels of the Cluster and its node, as `key=value,…`; can be given several times.
    #[arg(long, value_delimiter = ',', value_parser = parse_label, value_name = "LABELS")]
    pub(crate) labels: Vec<(String, String)>,

    /// Taints of the Cluster and its node, as `key[=value]:Effect,…`; can be given several times.
    #[arg(long, value_delimiter = ',', value_parser = parse_taint, value_name = "TAINTS")]
    pub(crate) taints: Vec<Taint>,

    /// Who runs the cluster.
    #[arg(long, alias = "cluster-provider", value_name = "NAME")]
    pub(crate) provider: Option<String>,

    /// The region that the cluster is in.
    #[arg(long, alias = "cluster-region", value_name = "NAME")]
    pub(crate) region: Option<String>,

    /// The zones that it spans, separated by commas.
    #[arg(long = "zone", alias = "cluster-zones", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) zones: Vec<String>,
}

/// Which part of the member, and where in it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scope")]
pub(crate) struct RegionArgs {
    /// Join only the nodes with these labels, as a region: `location=beijing`.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) region_selector: Option<String>,

    /// Namespaces of the host have this at their end in the member [default for a region: `-` and its name].
    #[arg(long, value_name = "SUFFIX", allow_hyphen_values = true, conflicts_with = "namespace_prefix")]
    pub(crate) namespace_suffix: Option<String>,

    /// Or this at their beginning.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) namespace_prefix: Option<String>,

    /// What becomes of its pods while the member cannot be reached [default: evict; for a region keep].
    #[arg(long, value_name = "WHAT")]
    pub(crate) offline: Option<Offline>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllowedObjects {
    /// No others.
    Basic,
    /// CustomResourceDefinitions.
    Definitions,
    /// Roles and their bindings: whoever may write them on the host may then do anything in the member.
    Roles,
    /// Workloads that the member runs by itself.
    Workloads,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Offline {
    /// The node is NotReady, and the host moves its pods as it does for any node.
    Evict,
    /// The node stays Ready, takes no new pods, and keeps those it has.
    Keep,
}

impl JoinArgs {
    /// What a Cluster says of this, beside how it is reached.
    pub(crate) fn spec(&self) -> ClusterSpec {
        let RegionArgs { region_selector, namespace_suffix, namespace_prefix, offline } = &self.region;
        let mapped = |mapping, value: &String| NamespaceMapping { mapping, value: Some(value.clone()) };
        let suffix = namespace_suffix.as_ref().map(|value| mapped(MappingKind::Suffix, value));
        let prefix = namespace_prefix.as_ref().map(|value| mapped(MappingKind::Prefix, value));
        let own = FederletSpec {
            region_selector: region_selector.clone(),
            namespaces: suffix.or(prefix),
            offline: offline.map(|offline| match offline {
                Offline::Evict => OfflineMode::Evict,
                Offline::Keep => OfflineMode::Keep,
            }),
            ..FederletSpec::default()
        };
        ClusterSpec {
            provider: self.place.provider.clone().unwrap_or_default(),
            region: self.place.region.clone().unwrap_or_default(),
            zones: self.place.zones.clone(),
            taints: self.place.taints.clone(),
            proxy_url: self.member.proxy_url.clone().unwrap_or_default(),
            federlet: (own != FederletSpec::default()).then_some(own),
            ..ClusterSpec::default()
        }
    }

    /// The kinds of objects to be allowed, if somebody says so.
    pub(crate) fn more_objects(&self) -> Option<Vec<MoreObjects>> {
        let more = |allowed: &AllowedObjects| match allowed {
            AllowedObjects::Basic => None,
            AllowedObjects::Definitions => Some(MoreObjects::Definitions),
            AllowedObjects::Roles => Some(MoreObjects::Roles),
            AllowedObjects::Workloads => Some(MoreObjects::Workloads),
        };
        Some(self.allow_objects.as_ref()?.iter().filter_map(more).collect())
    }

    /// The labels of the Cluster.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        self.place.labels.iter().cloned().collect()
    }
}

fn parse_label(text: &str) -> anyhow::Result<(String, String)> {
    let (key, value) = text.split_once('=').context("a label is key=value")?;
    if key.is_empty() {
        bail!("a label needs a key");
    }
    Ok((key.to_owned(), value.to_owned()))
}
