//! What to grant, in words that can be copied to a shell.

use federlet_provider::{
    marks,
    rights::{HOST_OBJECT_RIGHTS, HOST_SECRET_RIGHTS, Right},
};
use kube::core::ApiResource;

use super::serving::Served;
use crate::store::Kind;

/// What we do with copies in a member.
const IN_MEMBER: &str = "get,list,watch,create,patch,delete";
/// What we do with objects of the host.
const ON_HOST: &str = "get,list,watch";

/// The account in a member may not do something.
pub(super) fn in_member(resource: &ApiResource, said: &str) -> String {
    let role = |name: &str| format!("join the cluster again with --allow-objects={name}");
    let how = match (resource.group.as_str(), resource.kind.as_str()) {
        ("rbac.authorization.k8s.io", _) => role("roles"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => role("definitions"),
        ("apps" | "batch", _) => role("workloads"),
        _ => grant(resource, IN_MEMBER, "there"),
    };
    format!("{said}; to allow it, {how}")
}

/// We may not read a kind on the host.
pub(super) fn on_host((api_version, kind): &Kind, served: Option<&Served>, said: &str) -> String {
    let how = served.map(|served| format!("; to allow it, {}", allow(&served.resource)));
    format!("{kind} of {api_version} cannot be read: {said}{}", how.unwrap_or_default())
}

/// What an installation can give is switched on there.
fn allow(resource: &ApiResource) -> String {
    let within = |rights: &[Right]| {
        rights
            .iter()
            .any(|right| right.group == resource.group && right.resources.contains(&&*resource.plural))
    };
    let (value, file) = if within(HOST_SECRET_RIGHTS) {
        ("objects.readSecrets", "host-secrets.yaml")
    } else if within(HOST_OBJECT_RIGHTS) {
        ("objects.read", "host.yaml")
    } else {
        return grant(resource, ON_HOST, "on the host");
    };
    format!(
        "set {value}=true of chart federlet (helm upgrade federlet charts/federlet --reset-then-reuse-values --set {value}=true), or \
         without the chart kubectl apply -f provider/rbac/{file}"
    )
}

fn grant(resource: &ApiResource, verbs: &str, place: &str) -> String {
    let ApiResource { group, plural, .. } = resource;
    let full = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    format!(
        "run {place}: kubectl create clusterrole federlet-{plural} --verb={verbs} --resource={full} && \
         kubectl label clusterrole federlet-{plural} {}=true",
        marks::OBJECTS_ROLE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
        ApiResource {
            group: group.into(),
            version: "v1".into(),
            api_version: if group.is_empty() { "v1".into() } else { format!("{group}/v1") },
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    #[test]
    fn they_say_exactly_what_to_do() {
        let widgets = in_member(&resource("x.io", "Widget", "widgets"), "forbidden");
        assert_eq!(
            widgets,
            "forbidden; to allow it, run there: kubectl create clusterrole federlet-widgets \
             --verb=get,list,watch,create,patch,delete --resource=widgets.x.io && kubectl label clusterrole \
             federlet-widgets federlet.io/objects=true"
        );
        let roles = in_member(&resource("rbac.authorization.k8s.io", "Role", "roles"), "no");
        assert!(roles.ends_with("join the cluster again with --allow-objects=roles"), "{roles}");
        let kind = ("v1".to_owned(), "Endpoints".to_owned());
        let served = Served { resource: resource("", "Endpoints", "endpoints"), namespaced: true };
        let host = on_host(&kind, Some(&served), "no");
        assert!(host.contains("--verb=get,list,watch --resource=endpoints "), "{host}");
        assert_eq!(
            on_host(&kind, None, "it is not served"),
            "Endpoints of v1 cannot be read: it is not served"
        );
        // What the chart can give, it gives by a value.
        for (plural, kind, expected) in [
            (
                "secrets",
                "Secret",
                "Secret of v1 cannot be read: no; to allow it, set objects.readSecrets=true of chart",
            ),
            (
                "configmaps",
                "ConfigMap",
                "ConfigMap of v1 cannot be read: no; to allow it, set objects.read=true of chart",
            ),
        ] {
            let served = Served { resource: resource("", kind, plural), namespaced: true };
            let host = on_host(&("v1".to_owned(), kind.to_owned()), Some(&served), "no");
            assert!(host.starts_with(expected), "{host}");
        }
    }
}
