//! What is found out about override policies, without asking anybody.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Basis;
use crate::{conditions::Verdict, object::Identity, overrides, workload::replicas};

/// The condition that says whether all that a policy changes means something for pods, and why it does not.
pub(super) const APPLICABLE: (&str, &str) = ("PathsApplicable", "NotApplicableAtPodLevel");
/// The condition that says whether its rules can be made, and why they are not.
pub(super) const APPLIED: (&str, &str) = ("RulesApplied", "ApplyOverridePolicyFailed");
/// So many workloads are named; more say no more.
const NAMED: usize = 20;

/// What one policy does to one workload that its author should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Finding {
    /// Paths outside of the pods.
    outside: BTreeSet<String>,
    /// Why a rule fails, by cluster.
    failed: BTreeMap<String, String>,
}

/// By the UID of the policy.
pub(super) type Findings = BTreeMap<String, Finding>;

/// Finds out what the policies do to the workload in its clusters.
pub(super) fn find(workload: &Value, basis: &Basis) -> Findings {
    let mut found = Findings::new();
    let (identity, own) = (Identity::of(workload), replicas(workload).unwrap_or(1));
    for cluster in &basis.clusters {
        let name = cluster.metadata.name.clone().unwrap_or_default();
        for (policy, effect) in
            overrides::effects(workload, cluster, basis.policies.iter().map(|policy| policy.policy()))
        {
            let uid = basis.policies.iter().find(|one| one.policy().key() == policy.key());
            let finding = found.entry(uid.map(|one| one.uid.clone()).unwrap_or_default()).or_default();
            match effect {
                Ok(mut paths) => {
                    // How many copies there are in a cluster, the placer sees to. They are copies of the pods that there are.
                    if basis.copied && paths.iter().any(|path| path == overrides::REPLICAS) {
                        paths.retain(|path| path != overrides::REPLICAS);
                        let wanted = overrides::replicas(&identity, cluster, [policy]);
                        if wanted.is_some_and(|wanted| wanted > own) {
                            finding.outside.insert(format!("{} above its own {own}", overrides::REPLICAS));
                        }
                    }
                    finding.outside.extend(paths);
                }
                // It stops nothing where the workload does not go.
                Err(_) if !basis.certain => {}
                Err(failure) => {
                    finding.failed.insert(name.clone(), format!("{failure}: {}", failure.source));
                }
            }
        }
    }
    found
}

/// What to say on a policy, given what it does to each workload, and what of it has no effect anywhere.
pub(super) fn verdicts(about: &BTreeMap<String, &Finding>, idle: &[String]) -> [(&'static str, Verdict); 2] {
    let outside =
        about.iter().filter(|(_, finding)| !finding.outside.is_empty()).map(|(workload, finding)| {
            format!(
                "{workload}: {}",
                finding.outside.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            )
        });
    let failed = about.iter().flat_map(|(workload, finding)| {
        finding.failed.iter().map(move |(cluster, why)| format!("{workload} in {cluster}: {why}"))
    });
    let outside = list(&outside.collect::<Vec<_>>())
        .map(|listed| format!("what it changes outside of the pods has no effect on pods: {listed}"));
    let said: Vec<String> = outside.into_iter().chain(list(idle)).collect();
    let verdict = |(kind, reason): (&'static str, &'static str), what: Option<String>, fine| match what {
        None => (kind, Verdict::Fine(fine, "nothing hinders it")),
        Some(what) => (kind, Verdict::Wrong(reason, what)),
    };
    [
        verdict(APPLICABLE, (!said.is_empty()).then(|| said.join("; ")), "Applicable"),
        verdict(APPLIED, list(&failed.collect::<Vec<_>>()), "Applied"),
    ]
}

fn list(all: &[String]) -> Option<String> {
    let mut listed = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    if all.len() > NAMED {
        listed += &format!("; and {} more", all.len() - NAMED);
    }
    (!all.is_empty()).then_some(listed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{affinity::tests::cluster, api::OverridePolicy, owners::Meta, store::Override};

    fn policy(name: &str, target: &str, plaintext: &Value) -> Arc<Override> {
        let policy: OverridePolicy = serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"overrideRules": [{"targetCluster": {"clusterNames": [target]}, "overriders": {"plaintext": plaintext}}]},
        }))
        .unwrap();
        Arc::new(policy.into())
    }

    fn basis(policies: Vec<Arc<Override>>, certain: bool, copied: bool) -> Basis {
        let clusters = ["a", "b"].map(|name| Arc::new(cluster(name, json!({}), json!({}))));
        Basis { workload: Arc::new(Meta::default()), policies, clusters: clusters.into(), certain, copied }
    }

    fn said(basis: &Basis, uid: &str) -> Vec<(&'static str, Option<String>)> {
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "n"},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        let found = find(&workload, basis);
        let about: BTreeMap<String, &Finding> =
            found.get(uid).into_iter().map(|finding| ("Deployment web".to_owned(), finding)).collect();
        let words = |(kind, verdict)| match verdict {
            Verdict::Wrong(_, what) => (kind, Some(what)),
            Verdict::Fine(..) | Verdict::Unknown => (kind, None),
        };
        verdicts(&about, &[]).map(words).into()
    }

    #[test]
    fn each_policy_says_what_it_does_itself() {
        let replicas = json!([{"path": "/spec/replicas", "operator": "replace", "value": 7}]);
        let inside = json!([{"path": "/spec/template/spec/hostNetwork", "operator": "add", "value": true}]);
        let broken = json!([{"path": "/spec/no/such", "operator": "replace", "value": 1}]);
        let all = || {
            vec![
                policy("broken", "b", &broken),
                policy("inside", "a", &inside),
                policy("outside", "a", &replicas),
            ]
        };
        let outside = Some(
            "what it changes outside of the pods has no effect on pods: Deployment web: /spec/replicas"
                .to_owned(),
        );
        let running = basis(all(), true, false);
        assert_eq!(said(&running, "inside"), [("PathsApplicable", None), ("RulesApplied", None)]);
        assert_eq!(said(&running, "outside"), [("PathsApplicable", outside.clone()), ("RulesApplied", None)]);
        let failed = said(&running, "broken");
        assert_eq!(failed[0], ("PathsApplicable", None));
        let why = failed[1].1.clone().unwrap();
        assert!(why.starts_with("Deployment web in b: rule 0 of override policy n/broken failed: "), "{why}");
        // Before it is anywhere, only what is true everywhere is said.
        let coming = basis(all(), false, false);
        assert_eq!(said(&coming, "outside")[0].1, outside);
        assert_eq!(said(&coming, "broken")[1].1, None);
        // Where each pod has copies, replicas of a cluster mean something, as long as there are so many.
        for (count, expected) in [(1, None), (2, None), (7, Some("/spec/replicas above its own 2"))] {
            let change = json!([{"path": "/spec/replicas", "operator": "replace", "value": count}]);
            let found = said(&basis(vec![policy("o", "a", &change)], true, true), "o")[0].1.clone();
            assert_eq!(found.is_some(), expected.is_some(), "{count}: {found:?}");
            assert!(expected.is_none_or(|end| found.unwrap().ends_with(end)), "{count}");
        }
    }

    #[test]
    fn what_has_no_effect_anywhere_is_said_as_well() {
        let idle = ["spec.overriders.imageOverrider[0] has no effect: it has no value".to_owned()];
        let finding = Finding { outside: ["/x".to_owned()].into(), ..Finding::default() };
        for (about, expected) in [
            (BTreeMap::new(), idle[0].clone()),
            (
                [("Deployment web".to_owned(), &finding)].into(),
                format!(
                    "what it changes outside of the pods has no effect on pods: Deployment web: /x; {}",
                    idle[0]
                ),
            ),
        ] {
            let [(_, Verdict::Wrong(_, what)), (_, Verdict::Fine(..))] = verdicts(&about, &idle) else {
                panic!("nothing is said")
            };
            assert_eq!(what, expected);
        }
    }

    #[test]
    fn only_some_are_named() {
        let finding = Finding { outside: ["/x".to_owned()].into(), ..Finding::default() };
        let about = (0..25).map(|number| (format!("Deployment {number:02}"), &finding)).collect();
        let [(_, Verdict::Wrong(reason, what)), _] = verdicts(&about, &[]) else { panic!("nothing is said") };
        assert_eq!(reason, "NotApplicableAtPodLevel");
        assert!(what.ends_with("Deployment 19: /x; and 5 more"), "{what}");
    }
}
