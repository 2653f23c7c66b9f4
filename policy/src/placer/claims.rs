//! Pods with copies whose claims cannot be copied say so, instead of waiting without a word.
//!
//! One claim of the host is one volume. The scheduler does not bind a pod before its claims are bound, and nobody makes
//! a volume for the node that stands for several clusters.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::{Shared, pass::reference, seen::SeenPod};

const REASON: &str = "ClaimNotBound";
/// So many pods are looked at in one pass: what one says, the others would say as well.
const AT_MOST: usize = 10;

/// The claims that a pod uses.
pub(super) fn claims(pod: &Value) -> Vec<String> {
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    let claim = |volume: &Value| {
        let named = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str);
        let ephemeral = volume.get("ephemeral").and_then(|_| volume.get("name")?.as_str());
        named.map(str::to_owned).or_else(|| ephemeral.map(|volume| format!("{name}-{volume}")))
    };
    volumes.filter_map(claim).collect()
}

/// Pods that have a place among copies, and are not bound to it.
fn waiting<'a>(pods: &'a [SeenPod], fleet: &str) -> impl Iterator<Item = &'a SeenPod> {
    let waits = |pod: &&SeenPod| {
        pod.counts()
            && !pod.bound
            && !pod.is_gated()
            && !pod.claims.is_empty()
            && pod.cluster.as_deref() == Some(fleet)
    };
    pods.iter().filter(waits).take(AT_MOST)
}

fn note(unbound: &BTreeSet<String>) -> String {
    let names = unbound.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    format!(
        "it waits for claim {names}, which is bound to no volume: one claim is one volume, and this pod has a copy in each \
         of several clusters. Divide the workload, send it to one cluster, or let members run it with claims of their own \
         (annotation federlet.io/run-by: member)"
    )
}

impl Shared {
    /// Looks at the claims of pods that wait. True if some wait for claims.
    pub(super) async fn look_at_claims(&self, pods: &[SeenPod]) -> bool {
        let Some(fleet) = &self.fleet_node else { return false };
        let mut some = false;
        for pod in waiting(pods, fleet.as_str()) {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &pod.namespace);
            let mut unbound = BTreeSet::new();
            for name in &pod.claims {
                // Of a claim that is not there, or that nobody can read, the scheduler itself tells.
                if let Ok(Some(claim)) = api.get_opt(name).await {
                    let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
                    unbound.extend((!bound).then(|| claim.name_any()));
                }
            }
            some = true;
            if !unbound.is_empty() {
                self.tell.warn(reference(pod), REASON, &note(&unbound));
            }
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_named_or_made_for_the_pod() {
        let pod = json!({"metadata": {"name": "db-0"}, "spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "none", "emptyDir": {}}]}});
        assert_eq!(claims(&pod), ["data-db-0", "db-0-scratch"]);
        assert!(claims(&json!({})).is_empty());
    }

    #[test]
    fn only_pods_that_were_sent_to_the_fleet_and_are_not_bound_wait() {
        let pod = |cluster: &str, bound: bool, claims: &[&str]| SeenPod {
            cluster: Some(cluster.into()),
            bound,
            claims: claims.iter().map(|name| (*name).to_owned()).collect(),
            ..SeenPod::default()
        };
        let pods = [
            pod("fleet", false, &["c"]),
            pod("fleet", true, &["c"]),
            pod("fleet", false, &[]),
            pod("a", false, &["c"]),
            SeenPod { gate: Some(0), ..pod("fleet", false, &["c"]) },
        ];
        assert_eq!(waiting(&pods, "fleet").count(), 1);
        assert!(note(&["data".to_owned()].into()).contains("claim \"data\""));
    }
}
