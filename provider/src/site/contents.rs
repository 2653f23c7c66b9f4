//! What is in a namespace of the member: before one that we made is taken away, somebody has to look who else uses it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind, PartialObjectMeta},
};

use crate::{
    marks,
    names::{HostId, MemberName},
};

/// What people run, or keep their data in: group, version, kind, resource.
///
/// Not in it are things that clusters put into every namespace, such as quotas, roles and network policies: they would
/// keep each namespace for ever.
const KINDS: [(&str, &str, &str, &str); 11] = [
    ("", "v1", "Pod", "pods"),
    ("", "v1", CLAIM, "persistentvolumeclaims"),
    ("", "v1", "Service", "services"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Secret", "secrets"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("batch", "v1", "Job", "jobs"),
    ("batch", "v1", "CronJob", "cronjobs"),
];
const CLAIM: &str = "PersistentVolumeClaim";

/// ConfigMaps that controllers of clusters put into every namespace: Kubernetes, OpenShift, Istio.
const CLUSTERS_OWN: [&str; 3] = ["kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"];
/// Annotation of Secrets with tokens of service accounts, which some clusters make in every namespace.
const TOKEN_OF: &str = "kubernetes.io/service-account.name";

/// How many objects of others are named.
const NAMED: usize = 5;

/// What is in a namespace, as far as it decides about the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// How many claims of ours, and copies of policies, are still there: about each of them somebody decides.
    undecided: usize,
    /// Some of what is not ours, as `ConfigMap settings`.
    others: Vec<String>,
}

/// What becomes of a namespace that we made and that nobody on the host needs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Something in it has to be decided first.
    Wait,
    /// It goes, and all that is in it.
    Remove,
    /// What is ours goes. The namespace stays for what is not, and is not ours any more.
    Release,
}

impl Contents {
    /// Reads what is there. Of a kind that we may not list there may be some.
    pub(crate) async fn of(
        client: &Client,
        namespace: &str,
        host: &HostId,
        node: &MemberName,
    ) -> Result<Self, kube::Error> {
        let mut contents = Self::default();
        for (group, version, kind, plural) in KINDS {
            let kinds = GroupVersionKind::gvk(group, version, kind);
            let resource = ApiResource::from_gvk_with_plural(&kinds, plural);
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::namespaced_with(client.clone(), namespace, &resource);
            let mut params = ListParams::default().limit(500);
            loop {
                let page = match api.list(&params).await {
                    Ok(page) => page,
                    Err(kube::Error::Api(status)) if status.code == 404 => break,
                    Err(kube::Error::Api(status)) if status.code == 403 => {
                        contents.others.push(format!("any {kind}, which may not be listed"));
                        break;
                    }
                    Err(error) => return Err(error),
                };
                page.items.iter().for_each(|object| contents.add(kind, &object.metadata, host, node));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
        }
        Ok(contents)
    }

    fn add(&mut self, kind: &str, object: &ObjectMeta, host: &HostId, node: &MemberName) {
        let name = object.name.as_deref().unwrap_or_default();
        let label = |key: &str| object.labels.as_ref()?.get(key).map(String::as_str);
        let annotated = |key: &str| object.annotations.as_ref().is_some_and(|all| all.contains_key(key));
        let ours = label(marks::HOST) == Some(host.as_str()) && label(marks::NODE) == Some(node.as_str());
        let clusters_own = match kind {
            "ConfigMap" => CLUSTERS_OWN.contains(&name),
            "Secret" => annotated(TOKEN_OF),
            _ => false,
        };
        let going = object.deletion_timestamp.is_some();
        if ours && !annotated(marks::PRESERVED) {
            // A claim goes only when that is decided, and is not gone before its data is.
            self.undecided += usize::from(kind == CLAIM || label(marks::PROPAGATED).is_some());
        } else if !clusters_own && !going && self.others.len() < NAMED {
            self.others.push(format!("{kind} {name}"));
        }
    }

    /// Some of what is not ours.
    pub(crate) fn others(&self) -> &[String] {
        &self.others
    }

    /// What that means.
    pub(crate) fn fate(&self) -> Fate {
        match (self.undecided, self.others.is_empty()) {
            (0, true) => Fate::Remove,
            (0, false) => Fate::Release,
            _ => Fate::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn contents(objects: &[(&str, Value)]) -> Contents {
        let (host, node) = (HostId::new("h").unwrap(), MemberName::new("m").unwrap());
        let mut contents = Contents::default();
        for (kind, metadata) in objects {
            contents.add(kind, &serde_json::from_value(metadata.clone()).unwrap(), &host, &node);
        }
        contents
    }

    #[test]
    fn a_namespace_stays_for_what_is_not_ours() {
        let ours = json!({marks::HOST: "h", marks::NODE: "m"});
        let copy = json!({marks::HOST: "h", marks::NODE: "m", marks::PROPAGATED: "true"});
        let now = "2026-01-01T00:00:00Z";
        for (fate, kind, metadata) in [
            (Fate::Remove, "Pod", json!({"name": "a", "labels": ours})),
            (Fate::Remove, "ConfigMap", json!({"name": "federlet-x-m", "labels": ours})),
            (Fate::Remove, "ConfigMap", json!({"name": "kube-root-ca.crt"})),
            (Fate::Remove, "Secret", json!({"name": "default-token", "annotations": {TOKEN_OF: "default"}})),
            (Fate::Remove, "Pod", json!({"name": "a", "deletionTimestamp": now})),
            (Fate::Release, "Pod", json!({"name": "a"})),
            (Fate::Release, "Secret", json!({"name": "kube-root-ca.crt"})),
            // A claim that was let go, and what another host or node has there.
            (Fate::Release, CLAIM, json!({"name": "data", "labels": {"app": "db"}})),
            (
                Fate::Release,
                "ConfigMap",
                json!({"name": "a", "labels": {marks::HOST: "h2", marks::NODE: "m"}}),
            ),
            (
                Fate::Release,
                "ConfigMap",
                json!({"name": "a", "labels": {marks::HOST: "h", marks::NODE: "m2"}}),
            ),
            (
                Fate::Release,
                "Service",
                json!({"name": "a", "labels": copy, "annotations": {marks::PRESERVED: "true"}}),
            ),
            // Whether the data of a claim is kept is decided elsewhere, and until then nothing goes.
            (Fate::Wait, CLAIM, json!({"name": "data", "labels": ours})),
            (Fate::Wait, CLAIM, json!({"name": "data", "labels": ours, "deletionTimestamp": now})),
            (Fate::Wait, "Deployment", json!({"name": "web", "labels": copy})),
        ] {
            let found = contents(&[(kind, metadata.clone())]);
            assert_eq!(found.fate(), fate, "{kind} {metadata}: {found:?}");
        }
        assert_eq!(contents(&[]).fate(), Fate::Remove);
    }

    #[test]
    fn what_is_undecided_is_waited_for_whoever_else_is_there() {
        let ours = json!({marks::HOST: "h", marks::NODE: "m"});
        let both = contents(&[
            ("ConfigMap", json!({"name": "theirs"})),
            (CLAIM, json!({"name": "data", "labels": ours})),
        ]);
        assert_eq!((both.fate(), both.others()), (Fate::Wait, &["ConfigMap theirs".to_owned()][..]));
    }
}
