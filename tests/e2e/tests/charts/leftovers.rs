//! What is in a cluster, before and after.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use federlet_sandbox::{Cluster, eventually};

/// Everything that a cluster can list, in all namespaces but those that are going: another test left them. Of
/// namespaces, the labels too.
pub(crate) async fn everything(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let kinds = cluster.kubectl_output(&["api-resources", "--verbs=list", "--output=name"]).await?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !is_no_matter(kind)).collect();
    ensure!(kinds.len() > 30, "{kinds:?}");
    let ending = ["get", "namespaces", "--field-selector=status.phase=Terminating", "-o", "name"];
    let ending = cluster.kubectl_output(&ending).await?;
    let ending: Vec<&str> = ending.lines().filter_map(|name| name.strip_prefix("namespace/")).collect();
    let is_ending = |line: &String| line.split(' ').skip(1).any(|word| ending.contains(&word));
    let mut found = String::new();
    for (kinds, columns) in [
        (&*kinds.join(","), "custom-columns=K:.kind,NS:.metadata.namespace,N:.metadata.name"),
        ("namespaces", "custom-columns=K:.apiVersion,N:.metadata.name,L:.metadata.labels"),
    ] {
        let words = ["get", kinds, "--all-namespaces", "--no-headers", "-o", columns];
        found += &cluster.kubectl_output(&words).await?;
    }
    let lines = found.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let stays = |line: &str| STAYS.iter().any(|stays| line.starts_with(stays));
    Ok(lines.filter(|line| !stays(line) && !is_ending(line)).collect())
}

/// What comes and goes by itself, or is shown under two names.
fn is_no_matter(kind: &str) -> bool {
    let (name, group) = kind.split_once('.').unwrap_or((kind, ""));
    match (name, group) {
        // Kubernetes forgets both after an hour.
        ("events", _) | ("certificatesigningrequests", _) => true,
        // How the host remembers which addresses Services have; it is tidied up at leisure.
        ("ipaddresses", _) => true,
        // What is measured, and what nobody has had a use for in years.
        (_, "metrics.k8s.io") | ("componentstatuses", _) => true,
        _ => false,
    }
}

/// Our namespace stays, with what Kubernetes puts into every namespace, and the definitions (docs/install.md).
const STAYS: [&str; 14] = [
    "Namespace <none> federlet-system",
    "v1 federlet-system ",
    "ServiceAccount federlet-system default",
    "ConfigMap federlet-system kube-root-ca.crt",
    "CustomResourceDefinition <none> clusters.cluster.karmada.io",
    "CustomResourceDefinition <none> propagationpolicies.policy.karmada.io",
    "CustomResourceDefinition <none> clusterpropagationpolicies.policy.karmada.io",
    "CustomResourceDefinition <none> overridepolicies.policy.karmada.io",
    "CustomResourceDefinition <none> clusteroverridepolicies.policy.karmada.io",
    "CustomResourceDefinition <none> resourcebindings.work.karmada.io",
    "CustomResourceDefinition <none> clusterresourcebindings.work.karmada.io",
    "APIService <none> v1alpha1.cluster.karmada.io",
    "APIService <none> v1alpha1.policy.karmada.io",
    "APIService <none> v1alpha2.work.karmada.io",
];

pub(crate) async fn nothing_is_left(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    eventually("both sides are as before", Duration::from_secs(120), async || {
        let after = everything(cluster).await?;
        let differ: Vec<&String> = after.symmetric_difference(before).collect();
        ensure!(differ.is_empty(), "{}: {differ:?}", cluster.name());
        Ok(())
    })
    .await
    .context("after uninstalling")
}
