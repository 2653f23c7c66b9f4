//! What Federlet may do in either cluster: tables, from which the roles and the documentation are made.

mod host;
mod member;
mod objects;
mod policies;

use k8s_openapi::api::rbac::v1::PolicyRule;

pub use host::{
    HOST_CREDENTIAL_RIGHTS, HOST_MEMBER_RIGHTS, HOST_RIGHTS, NODE_ROLE_LABEL, host_manifests,
    host_secret_manifests, node_role, node_role_name,
};
pub use member::{MEMBER_RIGHTS, member_manifests};
pub use objects::{HOST_OBJECT_RIGHTS, HOST_SECRET_RIGHTS, MEMBER_OBJECT_RIGHTS, MoreObjects};
pub use policies::{HOST_OVERRIDE_RIGHTS, HOST_POLICY_RIGHTS};

/// Something that we may do, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The API group.
    pub group: &'static str,
    /// Resources, or parts of them.
    pub resources: &'static [&'static str],
    /// Only those of these names; all if there are none.
    pub names: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [&'static str],
    /// Only in this namespace; in all if unset.
    pub namespace: Option<&'static str>,
    /// What for.
    pub why: &'static str,
}

impl Right {
    const fn new(
        group: &'static str,
        resources: &'static [&'static str],
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { group, resources, names: &[], verbs, namespace: None, why }
    }

    const fn named(mut self, names: &'static [&'static str]) -> Self {
        self.names = names;
        self
    }

    const fn within(mut self, namespace: &'static str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// As a rule of a role.
    pub fn rule(&self) -> PolicyRule {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(vec![self.group.to_owned()]),
            resources: Some(own(self.resources)),
            resource_names: (!self.names.is_empty()).then(|| own(self.names)),
            verbs: own(self.verbs),
            non_resource_urls: None,
        }
    }
}

/// All that `federlet serve` may be allowed on the host.
pub fn all_host_rights() -> impl Iterator<Item = &'static Right> {
    let policies = [HOST_OVERRIDE_RIGHTS, HOST_POLICY_RIGHTS, HOST_OBJECT_RIGHTS, HOST_SECRET_RIGHTS];
    [HOST_RIGHTS, HOST_MEMBER_RIGHTS, HOST_CREDENTIAL_RIGHTS].into_iter().chain(policies).flatten()
}

/// All that our account may be allowed in a member.
pub fn all_member_rights() -> impl Iterator<Item = &'static Right> {
    let more = MoreObjects::ALL.iter().flat_map(|more| more.rights());
    MEMBER_RIGHTS.iter().chain(MEMBER_OBJECT_RIGHTS).chain(more)
}

/// Rights as a table in Markdown.
pub fn table(rights: &[Right]) -> String {
    let mut text = "| group | resources | verbs | what for |\n| --- | --- | --- | --- |\n".to_owned();
    for right in rights {
        let mut resources = right.resources.join(", ");
        if !right.names.is_empty() {
            resources = format!("{resources} named `{}`", right.names.join("`, `"));
        }
        if let Some(namespace) = right.namespace {
            resources = format!("{resources} in `{namespace}`");
        }
        let group = if right.group.is_empty() { "core" } else { right.group };
        text += &format!("| {group} | {resources} | {} | {} |\n", right.verbs.join(", "), right.why);
    }
    text
}

#[cfg(test)]
mod tests;
