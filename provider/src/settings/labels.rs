use std::collections::BTreeMap;

use crate::{api::ClusterSpec, names::is_label_value};

/// Where the region of a cluster is on its node.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// Where its zone is, if it has only one.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Who runs it, as Karmada calls it.
const PROVIDER_LABEL: &str = "cluster.karmada.io/provider";

/// `kubectl get nodes` shows this as the role of a node that is a whole cluster.
pub const ROLE_CLUSTER: &str = "node-role.kubernetes.io/cluster";
/// And this as that of a region.
pub const ROLE_REGION: &str = "node-role.kubernetes.io/region";
/// The same as a value, which a node selector can name.
const ROLE: &str = "kubernetes.io/role";

/// Domains in which tools keep books about the objects that they manage. They say nothing about a cluster.
const BOOKKEEPING: [&str; 7] = [
    "app.kubernetes.io",
    "applyset.kubernetes.io",
    "argocd.argoproj.io",
    "fleet.cattle.io",
    "helm.sh",
    "olm.operatorframework.io",
    "toolkit.fluxcd.io",
];

/// Kubernetes' own domains whose labels people may put on a node.
const OF_PEOPLE: [&str; 3] = ["node-role.kubernetes.io", "node.kubernetes.io", "topology.kubernetes.io"];

/// The labels of the node: those of the Cluster that say something about it, its place, and its role.
pub fn node_labels(cluster: &BTreeMap<String, String>, spec: &ClusterSpec) -> BTreeMap<String, String> {
    let mut zones = spec.zones();
    let zone = zones.next().filter(|_| zones.next().is_none());
    let region = Some(spec.region.as_str());
    let place = [(REGION_LABEL, region), (ZONE_LABEL, zone), (PROVIDER_LABEL, Some(&spec.provider))];
    // What cannot be the value of a label is still in the Cluster; Karmada lets people write anything there.
    let place =
        place.into_iter().filter_map(|(key, value)| Some((key, value.filter(|v| is_label_value(v))?)));
    let is_region = spec.federlet.as_ref().is_some_and(|own| own.region_selector.is_some());
    let roles = if is_region {
        [(ROLE_REGION, ""), (ROLE, "region")]
    } else {
        [(ROLE_CLUSTER, ""), (ROLE, "cluster")]
    };
    let said = cluster.iter().filter(|(key, _)| is_for_nodes(key)).map(|(key, value)| (&**key, &**value));
    // The fields of the Cluster are more than its labels, in Karmada too.
    said.chain(place).chain(roles).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn is_for_nodes(key: &str) -> bool {
    // By this one the cluster autoscaler knows to leave the node alone.
    let Some((domain, _)) = key.split_once('/') else { return key != "type" };
    let within =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|left| left.is_empty() || left.ends_with('.'));
    let is_ours = key == "node.kubernetes.io/exclude-from-external-load-balancers" || within("federlet.io");
    let is_theirs = within("kubernetes.io") || within("k8s.io");
    !is_ours
        && !BOOKKEEPING.iter().any(|bookkeeping| within(bookkeeping))
        && (!is_theirs || OF_PEOPLE.contains(&domain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::FederletSpec;

    fn keys(labels: &[&str], spec: &ClusterSpec) -> Vec<String> {
        let labels = labels.iter().map(|key| ((*key).to_owned(), "v".to_owned())).collect();
        node_labels(&labels, spec).into_keys().collect()
    }

    #[test]
    fn labels_that_say_something_about_the_cluster_are_on_its_node() {
        let good = [
            "env",
            "example.com/gpu",
            "node-role.kubernetes.io/edge",
            "node.kubernetes.io/instance-type",
            "topology.kubernetes.io/region",
        ];
        let bad = [
            "app.kubernetes.io/managed-by",
            "argocd.argoproj.io/instance",
            "federlet.io/anything",
            "helm.sh/chart",
            "kubernetes.io/hostname",
            "kubernetes.io/os",
            "kustomize.toolkit.fluxcd.io/name",
            "node.kubernetes.io/exclude-from-external-load-balancers",
            "sub.federlet.io/x",
            "type",
        ];
        let mut expected = good.map(str::to_owned).to_vec();
        expected.extend([ROLE_CLUSTER, ROLE].map(str::to_owned));
        expected.sort();
        assert_eq!(keys(&[&good[..], &bad[..]].concat(), &ClusterSpec::default()), expected);
    }

    #[test]
    fn the_place_of_a_cluster_is_on_its_node() {
        let spec = |zones: &[&str]| ClusterSpec {
            region: "beijing".into(),
            provider: "two words".into(),
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            federlet: Some(FederletSpec { region_selector: Some("a".into()), ..FederletSpec::default() }),
            ..ClusterSpec::default()
        };
        let labels = node_labels(&BTreeMap::from([(REGION_LABEL.into(), "other".into())]), &spec(&["a"]));
        let expected = [(ROLE, "region"), (ROLE_REGION, ""), (REGION_LABEL, "beijing"), (ZONE_LABEL, "a")];
        assert_eq!(labels, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(!node_labels(&BTreeMap::new(), &spec(&["a", "b"])).contains_key(ZONE_LABEL));
    }
}
