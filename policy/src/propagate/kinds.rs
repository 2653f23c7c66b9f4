//! Which kinds of objects concern us: only those are watched.

use std::collections::BTreeSet;

use federlet_provider::{copied::CopiedKind, marks};

use crate::{
    api::ResourceBinding,
    matching::Reserved,
    object::Identity,
    store::{Kind, Propagation, View},
    workload::pod_path,
};

/// What goes along with others.
const DEPENDENCIES: [&str; 4] = ["ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim"];

/// The value of the annotation [`RUN_BY`](marks::RUN_BY) by which a workload is an object like any other.
const MEMBER: &str = "member";

/// Whether each member runs this workload by its own controllers. Else its pods come from the host.
#[must_use]
pub(crate) fn run_by_member(object: &Identity) -> bool {
    object.annotations.get(marks::RUN_BY).is_some_and(|by| by == MEMBER)
        && pod_path(&object.api_version, &object.kind).is_some_and(|path| !path.is_empty())
}

/// Whether the object is copied as it is. Of other workloads only the pods leave the host.
#[must_use]
pub(crate) fn is_copied(object: &Identity) -> bool {
    pod_path(&object.api_version, &object.kind).is_none() || run_by_member(object)
}

/// Whether pods may come from objects of a kind. Of kinds that nobody knows, they may.
#[must_use]
pub(crate) fn may_have_pods(api_version: &str, kind: &str) -> bool {
    const WITHOUT: [&str; 8] = [
        "ConfigMap",
        "Secret",
        "Service",
        "ServiceAccount",
        "PersistentVolumeClaim",
        "Namespace",
        "LimitRange",
        "ResourceQuota",
    ];
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match group {
        "" => !WITHOUT.contains(&kind),
        "networking.k8s.io"
        | "rbac.authorization.k8s.io"
        | "policy"
        | "autoscaling"
        | "apiextensions.k8s.io"
        | "storage.k8s.io"
        | "scheduling.k8s.io" => false,
        _ => true,
    }
}

/// The kinds to be watched on the host: what policies select and what goes along with it, and whatever may have been sent
/// before, so that it can be taken back.
pub(super) fn wanted<'a>(
    view: &View,
    bindings: impl IntoIterator<Item = &'a ResourceBinding>,
) -> BTreeSet<Kind> {
    let mut kinds: BTreeSet<Kind> = BTreeSet::new();
    for policy in &view.propagation {
        let selected = policy.spec.resource_selectors.iter();
        kinds.extend(selected.map(|selector| (selector.api_version.clone(), selector.kind.clone())));
        if policy.spec.propagate_deps {
            kinds.extend(DEPENDENCIES.map(|kind| ("v1".to_owned(), kind.to_owned())));
        }
    }
    for binding in bindings {
        let resource = &binding.spec.resource;
        kinds.insert((resource.api_version.clone(), resource.kind.clone()));
        if binding.spec.propagate_deps {
            kinds.extend(DEPENDENCIES.map(|kind| ("v1".to_owned(), kind.to_owned())));
        }
    }
    for cluster in view.clusters.values() {
        kinds.extend(CopiedKind::all(cluster).into_iter().map(|copied| (copied.api_version, copied.kind)));
    }
    watchable(kinds)
}

/// The kinds that a policy selects, as far as they are watched.
pub(super) fn selected(policy: &Propagation) -> BTreeSet<Kind> {
    let selectors = policy.spec.resource_selectors.iter();
    watchable(selectors.map(|selector| (selector.api_version.clone(), selector.kind.clone())).collect())
}

fn watchable(mut kinds: BTreeSet<Kind>) -> BTreeSet<Kind> {
    let reserved = Reserved::default();
    kinds.retain(|(api_version, kind)| {
        let object = Identity { api_version: api_version.clone(), kind: kind.clone(), ..Identity::default() };
        !kind.is_empty() && kind != "Pod" && !reserved.holds(&object)
    });
    kinds
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::{Cluster, PropagationPolicy};

    fn policy(kinds: &[(&str, &str)], propagate_deps: bool) -> Arc<Propagation> {
        let selectors: Vec<_> =
            kinds.iter().map(|(version, kind)| json!({"apiVersion": version, "kind": kind})).collect();
        let policy: PropagationPolicy = serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"namespace": "a", "name": "p"},
            "spec": {"resourceSelectors": selectors, "propagateDeps": propagate_deps},
        }))
        .unwrap();
        Arc::new(policy.into())
    }

    #[test]
    fn only_what_somebody_selected_or_sent_is_watched() {
        let found = |view: &View, bindings: &[ResourceBinding]| -> Vec<String> {
            wanted(view, bindings).into_iter().map(|(version, kind)| format!("{version} {kind}")).collect()
        };
        assert!(found(&View::default(), &[]).is_empty());
        let selected = [("v1", "ConfigMap"), ("v1", "Pod"), ("policy.karmada.io/v1alpha1", "OverridePolicy")];
        let mut view = View { propagation: vec![policy(&selected, false)], ..View::default() };
        assert_eq!(found(&view, &[]), ["v1 ConfigMap"]);
        view.propagation.push(policy(&[("apps/v1", "Deployment")], true));
        assert_eq!(
            found(&view, &[]),
            [
                "apps/v1 Deployment",
                "v1 ConfigMap",
                "v1 PersistentVolumeClaim",
                "v1 Secret",
                "v1 ServiceAccount"
            ]
        );
        // The policy went; what it sent is still to be looked after.
        let mut binding = ResourceBinding::new("b", Default::default());
        (binding.spec.resource.api_version, binding.spec.resource.kind) = ("v1".into(), "Service".into());
        let mut cluster = Cluster::new("m", Default::default());
        let annotations = [(marks::COPIED_KINDS.to_owned(), "x.io/v1/widgets/Widget,odd".to_owned())];
        cluster.metadata.annotations = Some(annotations.into());
        let view = View { clusters: [("m".to_owned(), Arc::new(cluster))].into(), ..View::default() };
        assert_eq!(found(&view, &[binding]), ["v1 Service", "x.io/v1 Widget"]);
    }

    #[test]
    fn workloads_are_copied_only_if_they_say_so() {
        let object = |version: &str, kind: &str, by: &str| {
            let mut identity =
                Identity { api_version: version.into(), kind: kind.into(), ..Identity::default() };
            identity.annotations.insert(marks::RUN_BY.into(), by.into());
            identity
        };
        for (version, kind, by, expected) in [
            ("v1", "ConfigMap", "", true),
            ("apps/v1", "DaemonSet", "", false),
            ("apps/v1", "DaemonSet", "member", true),
            ("apps/v1", "DaemonSet", "host", false),
            ("batch/v1", "CronJob", "member", true),
            // A pod runs once.
            ("v1", "Pod", "member", false),
        ] {
            assert_eq!(is_copied(&object(version, kind, by)), expected, "{kind} {by}");
        }
    }
}
