//! How a member gets other credentials: in the way by which it came.

use federlet_provider::api::Cluster;
use kube::ResourceExt;

/// Who looks after an object, by a label that everybody uses.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// What to do so that the member is reached with other credentials.
pub(super) fn credentials(cluster: &Cluster) -> String {
    match release(cluster) {
        Some(release) => {
            format!(
                "`helm upgrade {release} --reset-then-reuse-values --set-file kubeconfig=FILE`, with a good one"
            )
        }
        None => join(cluster),
    }
}

/// What to do so that our account there may do more.
pub(super) fn rights(cluster: &Cluster) -> String {
    match release(cluster) {
        Some(_) => {
            "apply provider/rbac/member.yaml in the member, or give its account these rights".to_owned()
        }
        None => format!("{}: it brings the role up to date", join(cluster)),
    }
}

/// The whole command: the kubeconfig of the first join was not kept, and what else it said stays as it was.
fn join(cluster: &Cluster) -> String {
    let name = cluster.name_any();
    format!("`federlet join {name} --cluster-kubeconfig FILE`, with one of its administrators")
}

/// The release and its chart, as Helm takes them, if the Cluster is of one.
fn release(cluster: &Cluster) -> Option<String> {
    cluster.labels().get(MANAGED_BY).filter(|manager| *manager == "Helm")?;
    let annotation = |key: &str| cluster.annotations().get(key).cloned();
    let name = annotation("meta.helm.sh/release-name").unwrap_or_else(|| cluster.name_any());
    Some(match annotation("meta.helm.sh/release-namespace").filter(|namespace| namespace != "default") {
        Some(namespace) => format!("{name} charts/member -n {namespace}"),
        None => format!("{name} charts/member"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(metadata: &serde_json::Value) -> Cluster {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": metadata,
            "spec": {"syncMode": "Push"},
        }))
        .unwrap()
    }

    #[test]
    fn a_member_is_mended_in_the_way_by_which_it_came() {
        let joined = cluster(&serde_json::json!({"name": "m"}));
        let again = "`federlet join m --cluster-kubeconfig FILE`, with one of its administrators";
        assert_eq!(credentials(&joined), again);
        assert_eq!(rights(&joined), format!("{again}: it brings the role up to date"));
        let helm = cluster(&serde_json::json!({
            "name": "m", "labels": {MANAGED_BY: "Helm"},
            "annotations": {"meta.helm.sh/release-name": "north", "meta.helm.sh/release-namespace": "ops"},
        }));
        assert_eq!(
            credentials(&helm),
            "`helm upgrade north charts/member -n ops --reset-then-reuse-values --set-file kubeconfig=FILE`, with a good one"
        );
        assert!(rights(&helm).contains("provider/rbac/member.yaml"));
    }
}
