//! What to grant, in words that can be copied to a shell.

use federlet_provider::marks;
use kube::core::ApiResource;

use super::templates::Served;
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
    let how = served.map_or_else(
        || "is its CustomResourceDefinition there?".to_owned(),
        |served| format!("to allow it, {}", grant(&served.resource, ON_HOST, "on the host")),
    );
    format!("{kind} of {api_version} cannot be read: {said}; {how}")
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
        assert!(on_host(&kind, None, "no").contains("CustomResourceDefinition"));
    }
}
